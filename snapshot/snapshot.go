// Package snapshot is the model of what runs on GPU machines: a Snapshot is the devices, environments and processes of
// one host at one moment; a Cluster is many hosts, each with its Snapshot or the error why there is none. The package
// is pure. It also has the formats in which hosts and controllers exchange snapshots: that of genv 1.4.3
// (DecodeSnapshot) and our own (DecodeNative).
//
// Unknown is never zero and never "no": a value that a host did not report is the zero Memory, a nil pointer, or marked
// by a field named Unknown. Check this before you use the value.
package snapshot

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Snapshot is one host at one moment, as it reported it. Its tags are our own format: see DecodeNative.
type Snapshot struct {
	Processes    []Process     `json:"processes"`
	Environments []Environment `json:"envs"`
	Devices      []Device      `json:"devices"`

	// BootID is /proc/sys/kernel/random/boot_id: start times are of one boot. Empty if not reported.
	BootID string `json:"boot_id,omitempty"`
	// UTCOffset is how many seconds the host's wall clock is east of UTC; nil if not reported. Dates are on that clock.
	UTCOffset *int `json:"utc_offset_s,omitempty"`
	// Boot is when the host was booted, by the clock of this machine; zero if not reported.
	Boot time.Time `json:"-"`
	// StateFolder is the device and inode of the state folder, as in "8:1/131". Empty if not reported.
	StateFolder string `json:"state_folder,omitempty"`
	// Token was given to the host with this connection, and Tokens to the same machine and state folder with others:
	// only that proves that two names are one machine. Nil if not shown.
	Token  string   `json:"-"`
	Tokens []string `json:"-"`
	Guard  *Guard   `json:"guard,omitempty"` // what the host's kernel guard does; nil if not reported
	// Service says whether root owns the state files there (genv host serve); nil if not reported.
	Service *bool `json:"service,omitempty"`
	// FirstUID is the first uid of people, UID_MIN of login.defs(5); nil if not reported.
	FirstUID *UID `json:"first_uid,omitempty"`
	// Trial is what the host found when it tried what acting there needs; nil if not reported.
	Trial *Trial `json:"trial,omitempty"`
	// Waits are who waits for GPUs there, and Reservations those that hold or still count; nil if not reported.
	Waits        []Wait        `json:"waits,omitzero"`
	Reservations []Reservation `json:"reservations,omitzero"`
	// Skew is how far the host's own clock is ahead of this machine's; nil if unknown. Reservations are by the host's.
	Skew  *time.Duration `json:"-"`
	Asked *Asked         `json:"asked,omitempty"` // who asked for GPUs lately; nil if not reported
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

// HideState says that the state files can't be read: attachments are unknown, and no rule is about the devices.
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
	// EnvUnknown says that its environment isn't known: EID is not valid, and it isn't outside all environments either.
	EnvUnknown bool          `json:"env_unknown,omitempty"`
	Usage      []DeviceUsage `json:"used_gpu_memory"`

	// The fields below are not in the 1.4.3 format. They are empty if not reported.

	Start StartTime `json:"start,omitempty"`
	// UID is the kernel's: the real uid, or in a user namespace that a user created, that user.
	UID  *UID   `json:"uid,omitempty"`
	Name string `json:"name,omitempty"` // of the command
	// Command is the command line, at most MaxCommand printable bytes. The process may have overwritten it.
	Command string `json:"command,omitempty"`
	// PrivateCommand replaces Name and Command where /proc hides it: for its owner, root and operators.
	PrivateCommand string `json:"private_command,omitempty"`
	// Container is its container's id by its cgroup; UnnamedContainer if only its PID namespace shows one; empty for
	// none.
	Container string `json:"container,omitempty"`
	// ContainerInfo is what root's look found out about it; nil for nothing, or for a container of a user.
	ContainerInfo *ContainerInfo `json:"container_info,omitempty"`
	// Inherited is the environment of the nearest ancestor that is registered in one of its own uid; empty for none.
	Inherited EnvID `json:"inherited_eid,omitempty"`
	// EnvOverwritten says, with EnvUnknown, that the process overwrote its environ, as with a title.
	EnvOverwritten bool `json:"env_overwritten,omitempty"`
	// Unreadable is why root could not read its environ within bounds; nil where it could.
	Unreadable *Unreadable `json:"unreadable,omitempty"`
	// NodeMissing: the driver lists it, and it has no device node open or mapped, so the PID may be another's.
	// NodeHolder is a process of its user that has one and isn't listed; 0 for none.
	NodeMissing bool     `json:"unproved,omitempty"`
	NodeHolder  PID      `json:"unproved_holder,omitempty"`
	Username    Username `json:"user,omitempty"` // the host's name for UID; empty also if it has none
	// UserUnknown says that the host could not look up the name of UID now.
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

// UnnamedContainer is the Container of a process in another PID namespace with a cgroup that names none.
const UnnamedContainer = "unnamed"

// MaxCommand is the maximum length of a Command in bytes.
const MaxCommand = 256

// DeviceUsage is how much memory of a device a process uses; the zero Memory if the driver doesn't report it.
type DeviceUsage struct {
	Index  DeviceIndex `json:"index"`
	Memory Memory      `json:"gpu_memory"`
	// Type is known only of GPUs with an active display, and not of hosts with genv 1.4.3.
	Type ProcessType `json:"-"` // beside
}

// Environment is a registered environment.
type Environment struct {
	EID      EnvID     `json:"eid"`
	UID      UID       `json:"uid"`
	Creation Date      `json:"creation"`
	Username Username  `json:"username"` // empty if the host has no name for the uid
	Config   EnvConfig `json:"config"`
	// PIDs are its active shells (or SDK processes), and KernelIDs its Jupyter kernels: it ends with the last of them.
	PIDs      []PID    `json:"pids"`
	KernelIDs []string `json:"kernel_ids"`

	// Since is from when its age counts, by root's own looks: see Attachment.Since.
	Since StartTime `json:"since,omitempty"`
	// Runs says that its only process is that of `genv run`: it has no shell. Not in the 1.4.3 format.
	Runs bool `json:"runs,omitempty"`
	// OwnerMismatch says that its running processes are another user's, who wrote it. Not in the 1.4.3 format.
	OwnerMismatch bool `json:"owner_mismatch,omitempty"`
}

// Admits says whether a process of this uid may be in it: its user's, root's, or one of an unknown uid (nil).
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

// Location is the time zone of the host's wall clock, or that of this machine if the host did not report it.
func (s *Snapshot) Location() *time.Location {
	if s.UTCOffset == nil {
		return time.Local
	}
	if *s.UTCOffset == 0 {
		return time.UTC
	}
	return time.FixedZone("", *s.UTCOffset)
}

// When is when something was attached or created: by root's looks, else as its user wrote it. Zero if unknown.
func (s *Snapshot) When(since StartTime, written Date) time.Time {
	switch {
	case since != 0 && !s.Boot.IsZero():
		return s.Boot.Add(since.Sub(0))
	case written.IsZero():
		return time.Time{}
	}
	return written.In(s.Location())
}

// Trial is what root's genv found when it tried to read processes by a helper, to signal one, and to write the state.
type Trial struct {
	// Unable is why nothing can be ended there, in one printable line; empty if it can.
	Unable string `json:"unable,omitempty"`
	// State is why nothing can be detached there, likewise: the state can't be written.
	State string `json:"state,omitempty"`
	// NoPidfds says that the kernel, or a filter of system calls, has no pidfds: Linux 5.3 has them.
	NoPidfds bool `json:"no_pidfds,omitempty"`
}

// Bounded is the trial with bounded texts; nil for none.
func (t *Trial) Bounded() *Trial {
	const maxTrialText = 1024 // how much of a text of a host is kept, in bytes
	if t == nil {
		return nil
	}
	bounded := *t
	for _, word := range []*string{&bounded.Unable, &bounded.State} {
		*word = text.OneLine(text.Cut(*word, maxTrialText))
	}
	return &bounded
}

// Warnings are what people have to know of it, one line each.
func (t *Trial) Warnings() (list []string) {
	if t != nil && t.Unable != "" {
		list = append(list, "nothing can be ended here: "+t.Unable)
	}
	if t != nil && t.State != "" {
		list = append(list, "nothing can be detached here: "+t.State)
	}
	return list
}

// GuardMode is what the kernel guard of a host does.
type GuardMode string

// The modes. If none, or another one, is reported, the mode is unknown: that is never GuardOff.
const (
	GuardOff     GuardMode = "off"     // every open of a device is allowed
	GuardWatch   GuardMode = "watch"   // what would be denied is reported
	GuardEnforce GuardMode = "enforce" // it is denied
	// GuardUnable: an order to watch or to enforce is in force, and the host can't carry it out.
	GuardUnable GuardMode = "unable"
)

// Guard is what the kernel guard of a host does, as the host says.
type Guard struct {
	Mode GuardMode `json:"mode"`
	// Reason is why the mode is not the one that was ordered last; empty if it is, or if none was. One printable line.
	Reason string `json:"reason,omitempty"`
}

// known is the guard if this version knows its mode, with a bounded reason; else nil.
func (g *Guard) known() *Guard {
	const maxGuardReason = 1024 // how much of a reason is kept, in bytes
	if g == nil || !slices.Contains([]GuardMode{GuardOff, GuardWatch, GuardEnforce, GuardUnable}, g.Mode) {
		return nil
	}
	return &Guard{g.Mode, text.OneLine(text.Cut(g.Reason, maxGuardReason))}
}
