package snapshot

import "time"

// Snapshot is the state of one host at one moment, as the host reported it. Its tags are the format of our own hosts
// and controllers: see DecodeNative.
type Snapshot struct {
	Processes    []Process     `json:"processes"`
	Environments []Environment `json:"envs"`
	Devices      []Device      `json:"devices"`

	// BootID is /proc/sys/kernel/random/boot_id: start times are comparable
	// only within one boot. Empty if not reported.
	BootID string `json:"boot_id,omitempty"`
	// UTCOffset is how many seconds the host's wall clock is east of UTC; nil if not reported. Dates are on that clock.
	UTCOffset *int `json:"utc_offset_s,omitempty"`
	// Boot is when the host was booted, by the clock of this machine; zero if not reported.
	Boot time.Time `json:"-"`
	// StateFolder is the device and inode of the state folder, as in "8:1/131". Empty if not reported.
	StateFolder string `json:"state_folder,omitempty"`
	// Token was given to the host with the connection that the snapshot came over, and Tokens
	// are those that the same machine and state folder got with other ones: that, and nothing
	// that hosts say of themselves, proves that two names lead to one machine. Nil if not shown.
	Token  string   `json:"-"`
	Tokens []string `json:"-"`
	// Guard is what the host's kernel guard does; nil if not reported.
	Guard *Guard `json:"guard,omitempty"`
	// Service says whether root owns the state files there (genv host serve), so that users
	// can't forge them; nil if not reported.
	Service *bool `json:"service,omitempty"`
	// FirstUID is the first uid of people, UID_MIN of login.defs(5); nil if not reported.
	FirstUID *UID `json:"first_uid,omitempty"`
	// Trial is what the host found when it tried what acting there needs; nil if not reported.
	Trial *Trial `json:"trial,omitempty"`
	// Waits are the commands that wait for GPUs there, and Reservations the bookings, with those that ended and still
	// count. Each is nil if not reported: only root's service knows them.
	Waits        []Wait        `json:"waits,omitzero"`
	Reservations []Reservation `json:"reservations,omitzero"`
	// Skew is how far the host's own clock is ahead of this machine's; nil if unknown. Reservations are by the host's.
	Skew *time.Duration `json:"-"`
	// Asked is who asked for GPUs lately; nil if not reported.
	Asked *Asked `json:"asked,omitempty"`
	// More is what accounts have beyond the bounds of a snapshot: see Bound.
	More []More `json:"more,omitempty"`
	// Warnings are messages for people about problems that the model can't express, one line each.
	Warnings []string `json:"warnings,omitempty"`
}

// Clock is what the host's own clock says at a moment by that of this machine.
func (s *Snapshot) Clock(at time.Time) (now time.Time, known bool) {
	if s.Skew == nil {
		return at, false
	}
	return at.Add(*s.Skew), true
}

// HideState says that the state files can't be read: what is attached is unknown then, never
// nothing, so that no rule is about the devices.
func (s *Snapshot) HideState(reason error) {
	const unknown = "environments and attachments are unknown, and no rule acts on these GPUs: "
	s.Warnings = append(s.Warnings, unknown+reason.Error())
	s.Environments = nil
	for i := range s.Devices {
		s.Devices[i].Unidentified, s.Devices[i].Attachments = true, nil
	}
}

// Process is a process that uses at least one device.
type Process struct {
	PID PID `json:"pid"`
	// EID is the environment that the process is in (see Owner), which its owner can choose. Empty if it is in none.
	EID EnvID `json:"eid,omitempty"`
	// EnvUnknown says that it isn't known in which environment the process is: EID is not valid then, and the process
	// must not be treated as one outside all environments.
	EnvUnknown bool          `json:"env_unknown,omitempty"`
	Usage      []DeviceUsage `json:"used_gpu_memory"`

	// The fields below are not in the 1.4.3 format. They are empty if not reported.

	Start StartTime `json:"start,omitempty"`
	// UID is the owner as reported by the kernel: the real uid, or for a process
	// in a user namespace that a user created, that user.
	UID  *UID   `json:"uid,omitempty"`
	Name string `json:"name,omitempty"` // of the command
	// Command is the beginning of the command line, at most MaxCommand bytes,
	// printable. The process may have overwritten it.
	Command string `json:"command,omitempty"`
	// PrivateCommand is it instead of Name and Command where /proc of the host hides it from other
	// users: it is for its owner, root and operators.
	PrivateCommand string `json:"private_command,omitempty"`
	// Container is the id of the process's container according to its cgroup, or UnnamedContainer if only its PID
	// namespace shows that it is in a container. Empty also if it is in none.
	Container string `json:"container,omitempty"`
	// ContainerInfo is what root's look found out about that container; nil if it looked
	// for nothing, or for a container of a user.
	ContainerInfo *ContainerInfo `json:"container_info,omitempty"`
	// Inherited is the environment of the process's nearest ancestor that is registered in an environment of the
	// ancestor's own uid. Unlike EID it doesn't depend on the environ of the process. Empty also if there is none.
	Inherited EnvID `json:"inherited_eid,omitempty"`
	// EnvOverwritten says, together with EnvUnknown, that the process itself
	// overwrote its environ, as programs do that set a title.
	EnvOverwritten bool `json:"env_overwritten,omitempty"`
	// Unreadable is why root could not read its environ within bounds; nil where it could.
	Unreadable *Unreadable `json:"unreadable,omitempty"`
	// NodeMissing says that the driver lists the process, which has no device node of the driver open or
	// mapped: the PID may be one of another namespace, or of a process before. NodeHolder is then another process of
	// its user that has one open and isn't listed; 0 for none.
	NodeMissing bool `json:"unproved,omitempty"`
	NodeHolder  PID  `json:"unproved_holder,omitempty"`
	// Username is the host's name for UID; empty also if it has none.
	Username Username `json:"user,omitempty"`
	// UserUnknown says that the host could not look up the name of UID, for example
	// because its directory service doesn't answer.
	UserUnknown bool `json:"user_unknown,omitempty"`
	// Protected is the name of the daemon that the process is, if the host refuses to terminate that daemon.
	Protected string `json:"protected,omitempty"`
	// Instances are the MIG instances that it uses. Their memory is in the Usage of their device.
	Instances []GPUUUID `json:"mig,omitempty"`
}

// Unreadable is why a process can't be read within bounds.
type Unreadable struct {
	// Why says what can't be read, and why, as in "its environment has 30 MiB, and at most 2 MiB are read".
	Why string `json:"why"`
	// ByUser says that its owner has certainly caused that.
	ByUser bool `json:"by_user,omitempty"`
}

// IsByUser says whether there is one that the owner has caused.
func (u *Unreadable) IsByUser() bool { return u != nil && u.ByUser }

// UnnamedContainer is the Container of a process in a PID namespace other than the
// host's, if its cgroup names no container.
const UnnamedContainer = "unnamed"

// MaxCommand is the maximum length of a Command in bytes.
const MaxCommand = 256

// DeviceUsage is how much memory of one device a process uses. The zero Memory means
// that the driver does not report it.
type DeviceUsage struct {
	Index  DeviceIndex `json:"index"`
	Memory Memory      `json:"gpu_memory"`
	// Type says whether the process draws there. It is known only of GPUs with an active display; hosts with genv
	// 1.4.3 don't say it.
	Type ProcessType `json:"-"` // beside
}

// Environment is a registered environment.
type Environment struct {
	EID      EnvID     `json:"eid"`
	UID      UID       `json:"uid"`
	Creation Date      `json:"creation"`
	Username Username  `json:"username"` // empty if the host has no name for the uid
	Config   EnvConfig `json:"config"`
	// PIDs are the shells (or SDK processes) that are active in it, and KernelIDs
	// its Jupyter kernels. It ends when there are no more of either.
	PIDs      []PID    `json:"pids"`
	KernelIDs []string `json:"kernel_ids"`

	// Since is from when its age counts, by root's own looks: see Attachment.Since.
	Since StartTime `json:"since,omitempty"`
	// Runs says that its only process is that of `genv run`: it has no shell. Not in the 1.4.3 format.
	Runs bool `json:"runs,omitempty"`
	// OwnerMismatch says that the owner of its running processes is not its UID:
	// someone else wrote it into the state files. Not in the 1.4.3 format.
	OwnerMismatch bool `json:"owner_mismatch,omitempty"`
}

// Admits says whether a process of this uid may be in the environment: it is its user's or
// root's, the host doesn't report uids (nil), as 1.4.3 doesn't, or its owner can't be read.
func (e *Environment) Admits(uid *UID) bool {
	return uid == nil || *uid == e.UID || *uid == 0 || e.UID == NoUID
}

// EnvConfig is what the owner configured.
type EnvConfig struct {
	Name      string `json:"name,omitempty"`      // empty for none
	GPUMemory Memory `json:"gpu_memory,omitzero"` // capacity on each device; unknown for none
	GPUs      *int   `json:"gpus,omitempty"`      // how many devices to attach; nil for none
}

// With is the configuration with what is set in another one instead of its own.
func (c EnvConfig) With(other EnvConfig) EnvConfig {
	if other.Name != "" {
		c.Name = other.Name
	}
	if other.GPUMemory.Known() {
		c.GPUMemory = other.GPUMemory
	}
	if other.GPUs != nil {
		c.GPUs = other.GPUs
	}
	return c
}

// Device is a GPU of the host.
type Device struct {
	Index       DeviceIndex  `json:"index"`
	TotalMemory Memory       `json:"total_memory"`
	Attachments []Attachment `json:"attachments"`

	// The fields below are not in the 1.4.3 format.

	UUID GPUUUID `json:"uuid,omitempty"`
	Name string  `json:"name,omitempty"`
	// Driver is the version of the driver; empty if not reported.
	Driver string `json:"driver,omitempty"`
	// Unidentified says that this isn't known to be the GPU to which its attachments were made:
	// what is attached to it is unknown.
	Unidentified bool `json:"unidentified,omitempty"`
	// Unified says that the device shares the machine's memory and has no capacity of its own:
	// TotalMemory is then all of the machine's, where it is known.
	Unified bool `json:"-"` // total_memory is null
	// Failed says that the device doesn't work. Problem is what the driver says about it; it may
	// also be that some value can't be measured.
	Failed  bool   `json:"failed,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Unusable is why CUDA can't use it although it works; empty if it can, or if that isn't reported.
	Unusable string `json:"unusable,omitempty"`
	// MIGMode says that CUDA can use its MIG instances alone.
	MIGMode bool `json:"mig_mode,omitempty"`
	// Display says whether a screen was active on it when nvidia-smi was last asked for that; nil if not reported.
	Display     *bool    `json:"display,omitempty"`
	UsedMemory  Memory   `json:"used_memory,omitzero"`
	Utilization *int     `json:"utilization,omitempty"` // per cent over the driver's last sample; nil if not reported
	Temperature *int     `json:"temperature,omitempty"` // degrees Celsius; nil if not reported
	Power       *float64 `json:"power,omitempty"`       // watts; nil if not reported
	PowerLimit  *float64 `json:"power_limit,omitempty"` // likewise: the most that it may draw
	// Instances are its MIG instances; empty also if they are not reported.
	Instances []Instance `json:"mig,omitempty"`
	// ProcessesUnknown says that the driver doesn't report the processes on it, or that some can't be seen: there may
	// be any, in addition to those that are known.
	ProcessesUnknown bool `json:"processes_unknown,omitempty"`
}

// Attachment gives an environment the right to use a device.
type Attachment struct {
	EID       EnvID  `json:"eid"`
	GPUMemory Memory `json:"gpu_memory"` // capacity; unknown for "all of it"
	Time      Date   `json:"time"`       // when it was attached, as its user wrote it
	// Since is from when its age counts: not before root's genv last looked without seeing
	// it, and not after it saw it first. 0 if not reported, as in the 1.4.3 format.
	Since StartTime `json:"-"` // beside
	// Instances are the MIG instances that it is about; empty for the whole device. Not in the 1.4.3 format.
	Instances []GPUUUID `json:"-"` // beside
}

// Location is the time zone of the host's wall clock, or that of this machine if the host did not report it.
func (s *Snapshot) Location() *time.Location {
	if s.UTCOffset == nil {
		return time.Local
	}
	return time.FixedZone("", *s.UTCOffset)
}

// When is when an attachment was made, or an environment created: by root's looks or, if
// they don't show it, as its user wrote it. Zero if neither is known.
func (s *Snapshot) When(since StartTime, written Date) time.Time {
	switch {
	case since != 0 && !s.Boot.IsZero():
		return s.Boot.Add(since.Sub(0))
	case written.IsZero():
		return time.Time{}
	}
	return written.In(s.Location())
}
