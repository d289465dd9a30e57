// Package snapshot is the model of what runs on GPU machines: a Snapshot is the devices, environments and processes of
// one host at one moment; a Cluster is many hosts, each with its Snapshot or an error. The package is pure. It also has
// the formats in which they are exchanged: that of genv 1.4.3 (DecodeSnapshot) and our own (DecodeNative).
//
// Unknown is never zero and never "no": a value that a host did not report is the zero Memory, nil, empty, or marked by
// a field named Unknown. Check this before you use the value.
package snapshot

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Snapshot is one host at one moment, as it reported it. Its tags are our own format: see DecodeNative.
type Snapshot struct {
	Processes    []Process     `json:"processes"`
	Environments []Environment `json:"envs"`
	Devices      []Device      `json:"devices"`

	BootID      string    `json:"boot_id,omitempty"`      // /proc/sys/kernel/random/boot_id; start times are of it
	UTCOffset   *int      `json:"utc_offset_s,omitempty"` // seconds east of UTC, of the host's wall clock and Dates
	Boot        time.Time `json:"-"`                      // when the host was booted, by the clock of this machine
	StateFolder string    `json:"state_folder,omitempty"` // its device and inode, as in "8:1/131"
	// Token was given with this connection, and Tokens with others: only these prove that two names are one machine.
	Token        string         `json:"-"`
	Tokens       []string       `json:"-"`
	Guard        *Guard         `json:"guard,omitempty"`
	Service      *bool          `json:"service,omitempty"`   // root owns the state files there (genv host serve)
	FirstUID     *UID           `json:"first_uid,omitempty"` // of people, UID_MIN of login.defs(5)
	Trial        *Trial         `json:"trial,omitempty"`
	Waits        []Wait         `json:"waits,omitzero"`        // for GPUs there
	Reservations []Reservation  `json:"reservations,omitzero"` // that hold or still count, by the host's own clock
	Skew         *time.Duration `json:"-"`                     // how far the host's own clock is ahead of ours
	Asked        *Asked         `json:"asked,omitempty"`
	More         []More         `json:"more,omitempty"`     // what accounts have beyond the bounds: see Bound
	Warnings     []string       `json:"warnings,omitempty"` // for people, about problems; a line each
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

	// The fields below are not in the 1.4.3 format.

	Start   StartTime `json:"start,omitempty"`
	UID     *UID      `json:"uid,omitempty"`     // the real uid, or who created its user namespace, by the kernel
	Name    string    `json:"name,omitempty"`    // of the command
	Command string    `json:"command,omitempty"` // at most MaxCommand printable bytes, which it may have overwritten
	// PrivateCommand replaces Name and Command where /proc hides it: for its owner, root and operators.
	PrivateCommand string `json:"private_command,omitempty"`
	// Container is its container's id by its cgroup; UnnamedContainer if only its PID namespace shows one.
	Container     string         `json:"container,omitempty"`
	ContainerInfo *ContainerInfo `json:"container_info,omitempty"` // nil also for a container of a user
	// Inherited is the environment of the nearest ancestor that is registered in one of its own uid.
	Inherited      EnvID       `json:"inherited_eid,omitempty"`
	EnvOverwritten bool        `json:"env_overwritten,omitempty"` // EnvUnknown, since it overwrote its environ
	Unreadable     *Unreadable `json:"unreadable,omitempty"`      // why root could not read its environ
	// NodeMissing: the driver lists it, and it has no device node open or mapped, so the PID may be another's.
	NodeMissing bool      `json:"unproved,omitempty"`
	NodeHolder  PID       `json:"unproved_holder,omitempty"` // an unlisted process of its user with a node, or 0
	Username    Username  `json:"user,omitempty"`            // the host's name for UID; empty also if it has none
	UserUnknown bool      `json:"user_unknown,omitempty"`    // the host could not look up the name of UID now
	Protected   string    `json:"protected,omitempty"`       // the name of a daemon that the host refuses to terminate
	Instances   []GPUUUID `json:"mig,omitempty"`             // MIG instances; Usage has their memory
}

// Unreadable is why a process can't be read within bounds.
type Unreadable struct {
	Why    string `json:"why"`               // as in "its environment has 30 MiB, and at most 2 MiB are read"
	ByUser bool   `json:"by_user,omitempty"` // its owner has certainly caused that
}

// IsByUser says whether the owner has caused it; not for nil.
func (u *Unreadable) IsByUser() bool { return u != nil && u.ByUser }

// UnnamedContainer is the Container of a process in another PID namespace with a cgroup that names none.
const UnnamedContainer = "unnamed"

const MaxCommand = 256 // bytes

// DeviceUsage is how much memory of a device a process uses.
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

	// The fields below are not in the 1.4.3 format.

	Since         StartTime `json:"since,omitempty"`          // from when its age counts: see Attachment.Since
	Runs          bool      `json:"runs,omitempty"`           // its only process is that of `genv run`: it has no shell
	OwnerMismatch bool      `json:"owner_mismatch,omitempty"` // its running processes are another user's, who wrote it
}

// Admits says whether a process of this uid (nil is unknown) may be in it: its user's, root's, or an unknown one.
func (e *Environment) Admits(uid *UID) bool {
	return uid == nil || *uid == e.UID || *uid == 0 || e.UID == NoUID
}

// EnvConfig is what the owner configured.
type EnvConfig struct {
	Name      string `json:"name,omitempty"`      // empty for none
	GPUMemory Memory `json:"gpu_memory,omitzero"` // capacity on each device; unknown for none
	GPUs      *int   `json:"gpus,omitempty"`      // how many devices to attach; nil for none
}

// GPUCount is GPUs as text; empty for none.
func (c *EnvConfig) GPUCount() string {
	if c.GPUs == nil {
		return ""
	}
	return strconv.Itoa(*c.GPUs)
}

// With is the configuration with what is set in another one instead of its own.
func (c EnvConfig) With(other EnvConfig) EnvConfig {
	return EnvConfig{
		Name: cmp.Or(other.Name, c.Name), GPUMemory: cmp.Or(other.GPUMemory, c.GPUMemory),
		GPUs: cmp.Or(other.GPUs, c.GPUs),
	}
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

// When is when something was attached or created: by root's looks, else as its user wrote it; zero if unknown.
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
	Unable   string `json:"unable,omitempty"`    // why nothing can be ended there, in a printable line; empty if it can
	State    string `json:"state,omitempty"`     // why nothing can be detached there, likewise
	NoPidfds bool   `json:"no_pidfds,omitempty"` // before Linux 5.3, or a filter of system calls refuses them
}

// Bounded is the trial with bounded texts; nil for none.
func (t *Trial) Bounded() *Trial {
	if t == nil {
		return nil
	}
	return &Trial{boundedLine(t.Unable), boundedLine(t.State), t.NoPidfds}
}

// boundedLine is a text of a host in one line, of at most 1024 bytes before it is made printable.
func boundedLine(s string) string { return text.OneLine(text.Cut(s, 1024)) }

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
	Mode   GuardMode `json:"mode"`
	Reason string    `json:"reason,omitempty"` // why it isn't the mode that was ordered last; one printable line
}

// known is the guard if this version knows its mode, with a bounded reason; else nil.
func (g *Guard) known() *Guard {
	if g == nil || !slices.Contains([]GuardMode{GuardOff, GuardWatch, GuardEnforce, GuardUnable}, g.Mode) {
		return nil
	}
	return &Guard{g.Mode, boundedLine(g.Reason)}
}
