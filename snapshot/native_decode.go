package snapshot

import (
	"fmt"
	"math"
)

func processesFromNative(list []nativeProcess) ([]Process, error) {
	if len(list) > maxProcesses {
		return nil, fmt.Errorf("%w: %d processes are more than the %d that are read", ErrInvalid, len(list), maxProcesses)
	}
	return decodeEach(list, "process", nativeProcess.process, processID)
}

func (n nativeProcess) process() (Process, error) {
	p := Process{
		PID: n.PID, Start: n.Start, UID: n.UID, Name: n.Name, Command: n.Command, Username: n.Username, UserUnknown: n.UserUnknown, Protected: n.Protected, Container: n.Container,
		EID: n.EID, Inherited: n.Inherited, EnvUnknown: n.EnvUnknown, EnvOverwritten: n.EnvOverwritten,
	}
	if n.PID < 1 || len(n.Usage) > maxDevices {
		return p, fmt.Errorf("%w: its numbers", ErrInvalid)
	}
	if err := checkTexts(string(n.EID), string(n.Inherited), n.Name, n.Command, string(n.Username), n.Protected, n.Container); err != nil {
		return p, err
	}
	var err error
	p.Usage, err = decodeEach(n.Usage, "usage", usageFromNative, usageID)
	return p, err
}

func usageFromNative(w wireUsage) (u DeviceUsage, err error) {
	if !w.Index.valid() {
		return u, fmt.Errorf("%w: device %d", ErrInvalid, w.Index)
	}
	u.Index = w.Index
	u.Memory, err = knownOrNot(w.Memory)
	return u, err
}

func (n nativeEnvironment) environment() (Environment, error) {
	e := Environment{EID: n.EID, UID: n.UID, PIDs: n.PIDs, KernelIDs: n.KernelIDs, OwnerMismatch: n.OwnerMismatch}
	e.Config.GPUs = n.Config.GPUs
	if n.Username != nil {
		e.Username = *n.Username
	}
	if n.Config.Name != nil {
		e.Config.Name = *n.Config.Name
	}
	if err := checkTexts(append([]string{string(e.EID), string(e.Username), e.Config.Name}, e.KernelIDs...)...); err != nil {
		return e, err
	}
	if e.EID == "" || len(e.PIDs) > maxPIDs || len(e.KernelIDs) > maxPIDs {
		return e, fmt.Errorf("%w: its id or its lists", ErrInvalid)
	}
	for _, pid := range e.PIDs {
		if pid < 1 {
			return e, fmt.Errorf("%w: PID %d", ErrInvalid, pid)
		}
	}
	if g := e.Config.GPUs; g != nil && (*g < 0 || *g > math.MaxInt32) {
		return e, fmt.Errorf("%w: %d devices", ErrInvalid, *g)
	}
	var err error
	if e.Creation, err = ParseDate(n.Creation); err != nil {
		return e, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	e.Config.GPUMemory, err = knownOrNot(n.Config.GPUMemory)
	return e, err
}

func (n nativeDevice) device() (Device, error) {
	d := Device{Index: n.Index, UUID: n.UUID, Name: n.Name, Utilization: n.Utilization}
	if !d.Index.valid() || len(n.Attachments) > maxAttachments {
		return d, fmt.Errorf("%w: its numbers", ErrInvalid)
	}
	if u := d.Utilization; u != nil && (*u < 0 || *u > 100) {
		return d, fmt.Errorf("%w: a utilization of %d per cent", ErrInvalid, *u)
	}
	if err := checkTexts(string(d.UUID), d.Name); err != nil {
		return d, err
	}
	var err error
	if d.TotalMemory, err = knownOrNot(&n.TotalMemory); err != nil {
		return d, err
	}
	if d.UsedMemory, err = knownOrNot(n.UsedMemory); err != nil {
		return d, err
	}
	d.Attachments, err = decodeEach(n.Attachments, "attachment", attachmentFromNative, attachmentID)
	return d, err
}

func attachmentFromNative(w wireAttachment) (a Attachment, err error) {
	if err := CheckText("eid", string(w.EID)); err != nil {
		return a, err
	}
	if w.EID == "" {
		return a, fmt.Errorf("%w: an attachment of nobody", ErrInvalid)
	}
	a.EID = w.EID
	if a.GPUMemory, err = knownOrNot(w.GPUMemory); err != nil {
		return a, err
	}
	if a.Time, err = ParseDate(w.Time); err != nil {
		return a, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return a, nil
}

func (i DeviceIndex) valid() bool { return i >= 0 && i < maxDevices }

// knownOrNot reads a memory; nothing is unknown.
func knownOrNot(text *string) (Memory, error) {
	if text == nil || *text == "" {
		return Memory{}, nil
	}
	m, err := ParseMemory(*text)
	if err != nil {
		return Memory{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return m, nil
}

func checkTexts(texts ...string) error {
	for _, t := range texts {
		if err := CheckText("a text", t); err != nil {
			return err
		}
	}
	return nil
}
