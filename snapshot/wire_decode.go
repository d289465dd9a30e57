package snapshot

import (
	"cmp"
	"fmt"
	"math"
)

// The checks in this file are for both formats.

// What identifies an item in its list.
func idOfProcess(p Process) PID           { return p.PID }
func idOfEnvironment(e Environment) EnvID { return e.EID }
func idOfDevice(d Device) DeviceIndex     { return d.Index }
func idOfUsage(u DeviceUsage) DeviceIndex { return u.Index }
func idOfAttachment(a Attachment) EnvID   { return a.EID }

// fromWire converts the items of a list. It refuses more than limit of them, and
// two with the same id.
func fromWire[Wire, Model any, ID comparable](items []Wire, name string, limit int, convert func(Wire) (Model, error), id func(Model) ID) ([]Model, error) {
	if len(items) > limit {
		return nil, tooMany(len(items), name+" entries", limit)
	}
	out := make([]Model, 0, len(items))
	seen := make(map[ID]bool, len(items))
	for i := range items {
		v, err := convert(items[i])
		if err != nil {
			return nil, fmt.Errorf("%s %d: %w", name, i, err)
		}
		if seen[id(v)] {
			return nil, fmt.Errorf("%w: %s %v is listed twice", ErrInvalid, name, id(v))
		}
		seen[id(v)] = true
		out = append(out, v)
	}
	return out, nil
}

func (w wireProcess) process() (Process, error) {
	p := Process{PID: w.PID, EID: orZero(w.EID)}
	usage, err := fromWire(w.Usage, "usage", maxDevices, wireUsage.usage, idOfUsage)
	p.Usage = usage
	return p, cmp.Or(checkPID(p.PID), CheckText("eid", string(p.EID)), err)
}

func (w wireUsage) usage() (DeviceUsage, error) {
	memory, err := memoryFromWire("gpu_memory", orZero(w.Memory))
	return DeviceUsage{Index: orZero(w.Index), Memory: memory}, cmp.Or(checkIndex(w.Index), err)
}

func (w wireEnvironment) environment() (Environment, error) {
	e := Environment{EID: w.EID, UID: orZero(w.UID), Username: orZero(w.Username), PIDs: w.PIDs, KernelIDs: w.KernelIDs}
	for _, pid := range e.PIDs {
		if err := checkPID(pid); err != nil {
			return e, err
		}
	}
	for _, id := range e.KernelIDs {
		if err := checkID("kernel id", id); err != nil {
			return e, err
		}
	}
	var badDate, badConfig error
	e.Creation, badDate = dateFromWire("creation", w.Creation)
	e.Config, badConfig = w.Config.config()
	return e, cmp.Or(checkID("eid", string(e.EID)), checkGiven("uid", w.UID), badDate, CheckText("username", string(e.Username)), badConfig)
}

func (w wireConfig) config() (EnvConfig, error) {
	memory, err := memoryFromWire("gpu_memory", orZero(w.GPUMemory))
	c := EnvConfig{Name: orZero(w.Name), GPUMemory: memory, GPUs: w.GPUs}
	if n := orZero(c.GPUs); n < 0 || n > math.MaxInt32 {
		err = fmt.Errorf("%w: %d gpus", ErrInvalid, n)
	}
	return c, cmp.Or(CheckText("name", c.Name), err)
}

// boundedTogether refuses more than maxPIDs PIDs and kernels in all environments.
func boundedTogether(envs []Environment, err error) ([]Environment, error) {
	n := 0
	for i := range envs {
		n += len(envs[i].PIDs) + len(envs[i].KernelIDs)
	}
	if n > maxPIDs {
		return nil, tooMany(n, "pids and kernels", maxPIDs)
	}
	return envs, err
}

func (w wireDevice) device() (Device, error) {
	memory, err := memoryFromWire("total_memory", w.TotalMemory)
	attachments, bad := fromWire(w.Attachments, "attachment", maxAttachments, wireAttachment.attachment, idOfAttachment)
	return Device{Index: orZero(w.Index), TotalMemory: memory, Unified: memory.OfMachine(), Attachments: attachments}, cmp.Or(checkIndex(w.Index), err, bad)
}

func (w wireAttachment) attachment() (Attachment, error) {
	memory, err := memoryFromWire("gpu_memory", orZero(w.GPUMemory))
	at, bad := dateFromWire("time", w.Time)
	return Attachment{EID: w.EID, GPUMemory: memory, Time: at}, cmp.Or(checkID("eid", string(w.EID)), err, bad)
}

// memoryFromWire reads an amount of memory; the empty text is unknown.
func memoryFromWire(name, amount string) (Memory, error) {
	if amount == "" {
		return Memory{}, nil
	}
	if err := CheckText(name, amount); err != nil {
		return Memory{}, err
	}
	m, err := ParseMemory(amount)
	if err != nil {
		return Memory{}, fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
	}
	return m, nil
}

func dateFromWire(name, date string) (Date, error) {
	if err := CheckText(name, date); err != nil {
		return Date{}, err
	}
	d, err := ParseDate(date)
	if err != nil {
		return Date{}, fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
	}
	return d, nil
}

func checkPID(pid PID) error {
	if pid < 1 {
		return fmt.Errorf("%w: %d is not a PID", ErrInvalid, pid)
	}
	return nil
}

func checkIndex(index *DeviceIndex) error {
	if i := orZero(index); i < 0 || i >= maxDevices {
		return fmt.Errorf("%w: the device index %d is not from 0 to %d", ErrInvalid, i, maxDevices-1)
	}
	return checkGiven("index", index)
}

// checkGiven refuses a number that is absent or null.
func checkGiven[T any](name string, number *T) error {
	if number == nil {
		return fmt.Errorf("%w: %s is missing", ErrInvalid, name)
	}
	return nil
}

// checkID is CheckText for a text that must not be empty.
func checkID(name, id string) error {
	if id == "" {
		return fmt.Errorf("%w: %s is empty", ErrInvalid, name)
	}
	return CheckText(name, id)
}

// orZero is the zero value, which means unknown or none, for JSON's null.
func orZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
