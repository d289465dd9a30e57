package snapshot

import "time"

// Snapshot is what one host said of itself at one moment.
type Snapshot struct {
	Processes    []Process
	Environments []Environment
	Devices      []Device

	// BootID is /proc/sys/kernel/random/boot_id: start times are comparable
	// only within one boot. Empty when the host did not tell.
	BootID string
	// UTCOffset is how many seconds the host's wall clock is east of UTC; nil
	// when not told. Dates are on that clock.
	UTCOffset *int
	// MachineID is /etc/machine-id, hashed with an application id (see
	// machine-id(5)), and StateFolder the device and inode of the state folder,
	// as in "8:1/131": two hosts with the same MachineID, BootID and StateFolder
	// are one machine under two names. Empty when the host did not tell.
	MachineID   string
	StateFolder string
	// Warnings are things the host noticed and could not put into the model,
	// in plain English, one line each.
	Warnings []string
}

// Process is a process that uses at least one device.
type Process struct {
	PID PID
	// EID is the environment that the process claims to be in, from
	// GENV_ENVIRONMENT_ID in its environ: its owner writes it, so it is a
	// claim. Empty when it claims none.
	EID EnvID
	// EnvUnknown says that the environ could not be read, and that no ancestor's
	// environment is known either: EID then says nothing, and the process must not
	// be taken for one that is outside.
	EnvUnknown bool
	Usage      []DeviceUsage

	// What follows is not in the 1.4.3 format.

	Start StartTime
	// UID is the owner as the kernel reports it: the real uid, or for a process
	// in a user namespace that a user made, that user. nil when not told.
	UID  *UID
	Name string // the command's name; empty when not told
	// Command is the command line, at most MaxCommand bytes of it, printable.
	// The process may have rewritten it. Empty when not told.
	Command string
	// Container is the id of the container that the process runs in, as its
	// cgroup names it, or UnnamedContainer if only its PID namespace shows that
	// there is one. Empty when it is in none, or not told.
	Container string
	// Inherited is the environment of the process's nearest ancestor that is
	// registered in one of its own uid. Unlike EID it doesn't depend on what the
	// process's environ says. Empty when there is none, or not told.
	Inherited EnvID
	// EnvOverwritten says, where EnvUnknown, that the process itself overwrote
	// its environ, as programs do that set a title.
	EnvOverwritten bool
	// Username is the host's name for UID; empty when it has none, or not told.
	Username Username
	// UserUnknown says that the host could not ask for the name of UID, as when its
	// directory service doesn't answer: that Username is empty then says nothing.
	UserUnknown bool
	// Protected is the name of the daemon that it is, when the host would
	// refuse to end it for that; empty when not, or not told.
	Protected string
}

// UnnamedContainer is the Container of a process whose PID namespace is not the
// host's, and whose cgroup names no container.
const UnnamedContainer = "unnamed"

// MaxCommand is how much of a command line a snapshot holds, in bytes.
const MaxCommand = 256

// DeviceUsage is how much of one device's memory a process holds. The zero
// Memory means that the driver would not say.
type DeviceUsage struct {
	Index  DeviceIndex
	Memory Memory
}

// Environment is a registered environment.
type Environment struct {
	EID      EnvID
	UID      UID
	Creation Date
	Username Username // empty when the host could not name the uid
	Config   EnvConfig
	// PIDs are the shells (or SDK processes) that are active in it, and
	// KernelIDs its Jupyter kernels; without any of both it ends.
	PIDs      []PID
	KernelIDs []string

	// OwnerMismatch says that the owners of its live processes are not its
	// UID: the state files were written by someone else. Not in the 1.4.3 format.
	OwnerMismatch bool
}

// EnvConfig is what the owner configured.
type EnvConfig struct {
	Name      string // empty for none
	GPUMemory Memory // capacity on each device; unknown for none
	GPUs      *int   // how many devices to attach; nil for none
}

// Device is a GPU of the host.
type Device struct {
	Index       DeviceIndex
	TotalMemory Memory
	Attachments []Attachment

	// What follows is not in the 1.4.3 format.

	UUID        GPUUUID
	Name        string
	UsedMemory  Memory
	Utilization *int // per cent over the driver's last sample; nil when not told
}

// Attachment gives an environment the right to use a device.
type Attachment struct {
	EID       EnvID
	GPUMemory Memory // capacity; unknown for "all of it"
	Time      Date   // when it was attached
}

// Location is the zone of the host's wall clock; this machine's where the host
// did not tell.
func (s *Snapshot) Location() *time.Location {
	if s.UTCOffset == nil {
		return time.Local
	}
	return time.FixedZone("", *s.UTCOffset)
}

// Environment returns the registered environment with the given id, or nil.
func (s *Snapshot) Environment(eid EnvID) *Environment { return FindEnvironment(s.Environments, eid) }

// Device returns the device at an index, or nil.
func (s *Snapshot) Device(index DeviceIndex) *Device { return FindDevice(s.Devices, index) }

// Attachment returns the attachment of an environment to the device, or nil.
func (d *Device) Attachment(eid EnvID) *Attachment {
	for i := range d.Attachments {
		if d.Attachments[i].EID == eid {
			return &d.Attachments[i]
		}
	}
	return nil
}

// AttachedTo lists the indices of the devices that an environment is attached
// to, in the order of the devices.
func (s *Snapshot) AttachedTo(eid EnvID) []DeviceIndex { return AttachedTo(s.Devices, eid) }

// FindEnvironment returns the environment of a list with the given id, or nil.
func FindEnvironment(environments []Environment, eid EnvID) *Environment {
	for i := range environments {
		if environments[i].EID == eid {
			return &environments[i]
		}
	}
	return nil
}

// FindDevice returns the device of a list at an index, or nil.
func FindDevice(devices []Device, index DeviceIndex) *Device {
	for i := range devices {
		if devices[i].Index == index {
			return &devices[i]
		}
	}
	return nil
}

// AttachedTo lists the indices of those devices that an environment is attached
// to, in the order of the devices.
func AttachedTo(devices []Device, eid EnvID) []DeviceIndex {
	var indices []DeviceIndex
	for i := range devices {
		if devices[i].Attachment(eid) != nil {
			indices = append(indices, devices[i].Index)
		}
	}
	return indices
}

// Uses returns the process's usage of a device, or nil when it does not use it.
func (p *Process) Uses(index DeviceIndex) *DeviceUsage {
	for i := range p.Usage {
		if p.Usage[i].Index == index {
			return &p.Usage[i]
		}
	}
	return nil
}

// UsesOnly says whether the process uses devices, and all of them are of a kind.
func (p *Process) UsesOnly(kind func(DeviceIndex) bool) bool {
	for _, u := range p.Usage {
		if !kind(u.Index) {
			return false
		}
	}
	return len(p.Usage) > 0
}

// Indices lists the devices that the process uses.
func (p *Process) Indices() []DeviceIndex {
	indices := make([]DeviceIndex, len(p.Usage))
	for i, u := range p.Usage {
		indices[i] = u.Index
	}
	return indices
}
