package snapshot

import "slices"

// Environment returns the registered environment with an id, or nil.
func (s *Snapshot) Environment(eid EnvID) *Environment { return FindEnvironment(s.Environments, eid) }

// Device returns the device at an index, or nil.
func (s *Snapshot) Device(index DeviceIndex) *Device { return FindDevice(s.Devices, index) }

// Attachment returns the attachment of an environment to the device, or nil.
func (d *Device) Attachment(eid EnvID) *Attachment {
	return Find(d.Attachments, func(a *Attachment) bool { return a.EID == eid })
}

// FindEnvironment returns the environment with an id, or nil.
func FindEnvironment(environments []Environment, eid EnvID) *Environment {
	return Find(environments, func(e *Environment) bool { return e.EID == eid })
}

// FindDevice returns the device at an index, or nil.
func FindDevice(devices []Device, index DeviceIndex) *Device {
	return Find(devices, func(d *Device) bool { return d.Index == index })
}

// Find returns the first item that matches, or nil. Unlike slices.IndexFunc it doesn't copy items.
func Find[T any](items []T, matches func(*T) bool) *T {
	for i := range items {
		if matches(&items[i]) {
			return &items[i]
		}
	}
	return nil
}

// Described adds to the registered devices what nvidia-smi found about them, and the others that it found.
func Described(registered, found []Device) []Device {
	devices := slices.Clone(registered)
	for _, d := range found {
		if known := FindDevice(devices, d.Index); known != nil {
			if d.Attachments = known.Attachments; known.TotalMemory.Known() {
				d.TotalMemory = known.TotalMemory
			}
			d.Unidentified = d.Unidentified || known.Unidentified || known.UUID != "" && d.UUID != known.UUID
			*known = d
		} else {
			devices = append(devices, d)
		}
	}
	return devices
}

// AttachedTo lists the indices of the devices to which an environment is attached.
func AttachedTo(devices []Device, eid EnvID) []DeviceIndex {
	var indices []DeviceIndex
	for i := range devices {
		if devices[i].Attachment(eid) != nil {
			indices = append(indices, devices[i].Index)
		}
	}
	return indices
}

// Uses returns the process's usage of a device, or nil.
func (p *Process) Uses(index DeviceIndex) *DeviceUsage {
	return Find(p.Usage, func(u *DeviceUsage) bool { return u.Index == index })
}

// Indices lists the devices that the process uses.
func (p *Process) Indices() []DeviceIndex {
	indices := make([]DeviceIndex, len(p.Usage))
	for i, u := range p.Usage {
		indices[i] = u.Index
	}
	return indices
}

// NameOf is the host's name for an account, from its processes and environments; empty if unknown.
func (s *Snapshot) NameOf(uid *UID) Username {
	if uid == nil {
		return ""
	}
	for i := range s.Processes {
		if p := &s.Processes[i]; p.UID != nil && *p.UID == *uid && p.Username != "" {
			return p.Username
		}
	}
	for i := range s.Environments {
		if user, owner := s.Environments[i].Account(); owner != nil && *owner == *uid {
			return user
		}
	}
	return ""
}

// ProcessType says what a process uses a device for.
type ProcessType string

// The types, as `nvidia-smi -q` names them.
const (
	TypeCompute         ProcessType = "C"
	TypeGraphics        ProcessType = "G"
	TypeComputeGraphics ProcessType = "C+G"
	// TypePending says that nvidia-smi has not answered yet.
	TypePending ProcessType = "?"
)

// Draws says whether a process of this type draws.
func (t ProcessType) Draws() bool { return t == TypeGraphics || t == TypeComputeGraphics }

// OfDesktop says whether the process draws on the device's active display. Users can't make a display active.
func (s *Snapshot) OfDesktop(u DeviceUsage) bool { return u.Type.Draws() && s.displays(u) }

// TypeUnknown says whether the use may be OfDesktop, since its type is unknown.
func (s *Snapshot) TypeUnknown(u DeviceUsage) bool {
	return u.Type == TypePending || u.Type == "" && s.displays(u)
}

func (s *Snapshot) displays(u DeviceUsage) bool {
	d := s.Device(u.Index)
	return d != nil && d.Display != nil && *d.Display
}
