package snapshot

import (
	"fmt"
	"math"
)

func processesFromNative(list []nativeProcess) ([]Process, error) {
	if len(list) > maxProcesses {
		return nil, fmt.Errorf("%w: %d processes are more than the %d that are read", ErrInvalid, len(list), maxProcesses)
	}
	seen := make(map[PID]bool, len(list))
	out := make([]Process, 0, len(list))
	for _, n := range list {
		p, err := n.process()
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", n.PID, err)
		}
		if seen[p.PID] {
			return nil, fmt.Errorf("%w: process %d is listed twice", ErrInvalid, p.PID)
		}
		seen[p.PID] = true
		out = append(out, p)
	}
	return out, nil
}

func (n *nativeProcess) process() (Process, error) {
	p := Process{PID: n.PID, Start: n.Start, UID: n.UID, Name: n.Name, Protected: n.Protected, EID: n.EID, EnvUnknown: n.EnvUnknown}
	if n.PID < 1 || len(n.Usage) > maxDevices {
		return p, fmt.Errorf("%w: its numbers", ErrInvalid)
	}
	if err := checkTexts(string(n.EID), n.Name, n.Protected); err != nil {
		return p, err
	}
	seen := make(map[DeviceIndex]bool, len(n.Usage))
	for _, u := range n.Usage {
		memory, err := knownOrNot(u.Memory)
		if err != nil {
			return p, err
		}
		if !u.Index.valid() || seen[u.Index] {
			return p, fmt.Errorf("%w: device %d", ErrInvalid, u.Index)
		}
		seen[u.Index] = true
		p.Usage = append(p.Usage, DeviceUsage{Index: u.Index, Memory: memory})
	}
	return p, nil
}

func environmentsFromNative(list []nativeEnvironment) ([]Environment, error) {
	seen := make(map[EnvID]bool, len(list))
	out := make([]Environment, 0, len(list))
	for _, n := range list {
		e, err := n.environment()
		if err != nil {
			return nil, fmt.Errorf("environment %q: %w", n.EID, err)
		}
		if seen[e.EID] {
			return nil, fmt.Errorf("%w: environment %q is listed twice", ErrInvalid, e.EID)
		}
		seen[e.EID] = true
		out = append(out, e)
	}
	return out, nil
}

func (n *nativeEnvironment) environment() (Environment, error) {
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

func devicesFromNative(list []nativeDevice) ([]Device, error) {
	seen := make(map[DeviceIndex]bool, len(list))
	out := make([]Device, 0, len(list))
	for _, n := range list {
		d, err := n.device()
		if err != nil {
			return nil, fmt.Errorf("device %d: %w", n.Index, err)
		}
		if seen[d.Index] {
			return nil, fmt.Errorf("%w: device %d is listed twice", ErrInvalid, d.Index)
		}
		seen[d.Index] = true
		out = append(out, d)
	}
	return out, nil
}

func (n *nativeDevice) device() (Device, error) {
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
	d.Attachments, err = attachmentsFromNative(n.Attachments)
	return d, err
}

func attachmentsFromNative(list []wireAttachment) ([]Attachment, error) {
	seen := make(map[EnvID]bool, len(list))
	out := make([]Attachment, 0, len(list))
	for _, w := range list {
		a := Attachment{EID: w.EID}
		err := CheckText("eid", string(w.EID))
		if err != nil {
			return nil, err
		}
		if w.EID == "" || seen[w.EID] {
			return nil, fmt.Errorf("%w: the attachment of %q", ErrInvalid, w.EID)
		}
		seen[w.EID] = true
		if a.GPUMemory, err = knownOrNot(w.GPUMemory); err != nil {
			return nil, err
		}
		if a.Time, err = ParseDate(w.Time); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		out = append(out, a)
	}
	return out, nil
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
