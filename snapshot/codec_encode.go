package snapshot

import "slices"

func processesToWire(processes []Process) wireProcesses {
	out := make([]wireProcess, 0, len(processes))
	for i := range processes {
		p := &processes[i]
		if p.Expressible() {
			out = append(out, wireProcess{PID: p.PID, EID: orNull(p.EID), Usage: usageToWire(p.Usage)})
		}
	}
	return wireProcesses{out}
}

// Expressible says whether the 1.4.3 format can carry the process without
// saying what nobody knows: "eid": null means "in no environment" there, and a
// memory must be a number. What it cannot carry is left out of that format, so
// that a 1.4.3 controller never kills on a guess, and is told on stderr.
func (p *Process) Expressible() bool {
	if p.EnvUnknown || len(p.Usage) == 0 {
		return false
	}
	for _, u := range p.Usage {
		if !u.Memory.Known() {
			return false
		}
	}
	return true
}

func usageToWire(usage []DeviceUsage) []wireUsage {
	out := make([]wireUsage, 0, len(usage))
	for _, u := range usage {
		out = append(out, wireUsage{Index: u.Index, Memory: orNull(u.Memory.String())})
	}
	return out
}

func environmentsToWire(envs []Environment) wireEnvironments {
	out := make([]wireEnvironment, 0, len(envs))
	for i := range envs {
		out = append(out, environmentToWire(&envs[i]))
	}
	return wireEnvironments{out}
}

func environmentToWire(e *Environment) wireEnvironment {
	return wireEnvironment{
		EID:      e.EID,
		UID:      e.UID,
		Creation: e.Creation.String(),
		Username: orNull(e.Username),
		Config: wireConfig{
			Name:      orNull(e.Config.Name),
			GPUMemory: orNull(e.Config.GPUMemory.String()),
			GPUs:      e.Config.GPUs,
		},
		PIDs:      orEmpty(e.PIDs),
		KernelIDs: orEmpty(e.KernelIDs),
	}
}

// expressible are the devices that the 1.4.3 format can carry: those whose
// memory is a number.
func expressible(devices []Device) []Device {
	return slices.DeleteFunc(slices.Clone(devices), func(d Device) bool { return !d.TotalMemory.Known() })
}

func devicesToWire(devices []Device) wireDevices {
	out := make([]wireDevice, 0, len(devices))
	for _, d := range devices {
		attachments := make([]wireAttachment, 0, len(d.Attachments))
		for _, a := range d.Attachments {
			attachments = append(attachments, wireAttachment{
				EID: a.EID, GPUMemory: orNull(a.GPUMemory.String()), Time: a.Time.String(),
			})
		}
		out = append(out, wireDevice{Index: d.Index, TotalMemory: d.TotalMemory.String(), Attachments: attachments})
	}
	return wireDevices{out}
}

// orNull is nil, JSON's null, for an empty text.
func orNull[T ~string](text T) *T {
	if text == "" {
		return nil
	}
	return &text
}

// orEmpty is [] where JSON would otherwise show null.
func orEmpty[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
