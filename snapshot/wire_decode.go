package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// The checks in this file are for both formats.

// What identifies an item in its list.
func idOfProcess(p Process) PID           { return p.PID }
func idOfEnvironment(e Environment) EnvID { return e.EID }
func idOfDevice(d Device) DeviceIndex     { return d.Index }
func idOfUsage(u DeviceUsage) DeviceIndex { return u.Index }
func idOfAttachment(a Attachment) EnvID   { return a.EID }

// errTwice is about the second of two items with the same id.
var errTwice = errors.New("it is listed twice")

// fromWire converts the items of a list. It leaves out those that convert refuses, and the second
// of two with the same id. It refuses more than limit of them.
func fromWire[Wire, Model any, ID comparable](r *reader, items []Wire, name string, limit int, convert func(Wire, *reader) (Model, error), id func(Model) ID) ([]Model, error) {
	if len(items) > limit {
		return nil, tooMany(len(items), name+" entries", limit)
	}
	out := make([]Model, 0, len(items))
	seen := make(map[ID]bool, len(items))
	r.path = append(r.path, place{})
	defer func() { r.path = r.path[:len(r.path)-1] }()
	for i := range items {
		r.path[len(r.path)-1] = place{name: name, number: i}
		v, err := convert(items[i], r)
		if errors.Is(err, ErrInvalid) { // a list in it is too long
			return nil, err
		}
		if err == nil && seen[id(v)] {
			err = errTwice
		}
		if err != nil {
			r.leaveOut("", err)
			continue
		}
		seen[id(v)] = true
		out = append(out, v)
	}
	return out, nil
}

func (w wireProcess) process(r *reader) (Process, error) {
	r.at("", int(w.PID))
	p := Process{PID: w.PID, EID: r.id(orZero(w.EID))}
	p.EnvUnknown = p.EID == "" && r.claims
	usage, err := fromWire(r, w.Usage, "usage", maxDevices, wireUsage.usage, idOfUsage)
	p.Usage = usage
	return p, cmp.Or(checkPID(p.PID), err)
}

func (w wireUsage) usage(r *reader) (DeviceUsage, error) {
	return DeviceUsage{Index: orZero(w.Index), Memory: r.memory("gpu_memory", orZero(w.Memory))}, checkIndex(w.Index)
}

func (w wireEnvironment) environment(r *reader) (Environment, error) {
	if w.EID == "" {
		return Environment{}, errors.New("it has no id")
	}
	e := Environment{EID: r.id(w.EID), UID: NoUID, Username: orZero(w.Username), PIDs: w.PIDs, KernelIDs: w.KernelIDs}
	r.at(e.EID, 0)
	clean(r, "username", &e.Username)
	if w.UID != nil {
		e.UID = *w.UID
	} else {
		r.leaveOut("uid", errMissing)
		e.Username = ""
	}
	e.PIDs = slices.DeleteFunc(e.PIDs, func(pid PID) bool { return r.leavesOut("a pid", checkPID(pid)) })
	e.KernelIDs = slices.DeleteFunc(e.KernelIDs, func(id string) bool { return r.leavesOut("a kernel id", checkID(id)) })
	e.Creation = r.date("creation", w.Creation)
	e.Config = w.Config.config(r)
	return e, nil
}

func (w wireConfig) config(r *reader) EnvConfig {
	c := EnvConfig{Name: orZero(w.Name), GPUMemory: r.memory("gpu_memory", orZero(w.GPUMemory)), GPUs: w.GPUs}
	clean(r, "name", &c.Name)
	if n := orZero(c.GPUs); n < 0 || n > math.MaxInt32 {
		r.leaveOut("gpus", fmt.Errorf("it is %d", n))
		c.GPUs = nil
	}
	return c
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

func (w wireDevice) device(r *reader) (Device, error) {
	if w.Index != nil {
		r.at("", int(*w.Index))
	}
	memory := r.memory("total_memory", w.TotalMemory)
	attachments, err := fromWire(r, w.Attachments, "attachment", maxAttachments, wireAttachment.attachment, idOfAttachment)
	return Device{Index: orZero(w.Index), TotalMemory: memory, Unified: memory.OfMachine(), Attachments: attachments}, cmp.Or(checkIndex(w.Index), err)
}

func (w wireAttachment) attachment(r *reader) (Attachment, error) {
	if w.EID == "" {
		return Attachment{}, errors.New("it has no id")
	}
	a := Attachment{EID: r.id(w.EID)}
	r.at(a.EID, 0)
	a.GPUMemory, a.Time = r.memory("gpu_memory", orZero(w.GPUMemory)), r.date("time", w.Time)
	return a, nil
}

func checkPID(pid PID) error {
	if pid < 1 {
		return fmt.Errorf("%d is not a PID", pid)
	}
	return nil
}

func checkIndex(index *DeviceIndex) error {
	if index == nil {
		return errors.New("its index is missing")
	}
	if i := *index; i < 0 || i >= maxDevices {
		return fmt.Errorf("the GPU index %d is not from 0 to %d", i, maxDevices-1)
	}
	return nil
}

// orZero is the zero value, which means unknown or none, for JSON's null.
func orZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
