// Package snapshot is the model of GPU machines: a Snapshot has the devices, environments and processes of one host at
// one moment; a Cluster has many hosts, each with its Snapshot or an error. It also has the exchange formats: that of
// genv 1.4.3 (DecodeSnapshot) and our own (DecodeNative). The package is pure.
//
// Unknown is never zero and never "no": a value that a host did not report is the zero Memory, nil, empty, or marked by
// a field named Unknown. Check this before use.
package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Snapshot is a host's report at one moment. Its tags are our own format: see DecodeNative.
type Snapshot struct {
	Processes    []Process     `json:"processes"`
	Environments []Environment `json:"envs"`
	Devices      []Device      `json:"devices"`

	BootID      string    `json:"boot_id,omitempty"`      // /proc/sys/kernel/random/boot_id, for start times
	UTCOffset   *int      `json:"utc_offset_s,omitempty"` // seconds east of UTC, of the host's clock and Dates
	Boot        time.Time `json:"-"`                      // when the host booted, by this machine's clock
	StateFolder string    `json:"state_folder,omitempty"` // its device and inode, as in "8:1/131"
	// Token came with this connection, Tokens with others: only they prove that two names are one machine.
	Token        string         `json:"-"`
	Tokens       []string       `json:"-"`
	Guard        *Guard         `json:"guard,omitempty"`
	Service      *bool          `json:"service,omitempty"`   // root owns the state files there (genv host serve)
	FirstUID     *UID           `json:"first_uid,omitempty"` // of people, UID_MIN of login.defs(5)
	Trial        *Trial         `json:"trial,omitempty"`
	Waits        []Wait         `json:"waits,omitzero"`        // for GPUs there
	Reservations []Reservation  `json:"reservations,omitzero"` // that hold or still count, by the host's own clock
	Skew         *time.Duration `json:"-"`                     // how far the host's clock is ahead of ours
	Asked        *Asked         `json:"asked,omitempty"`
	More         []More         `json:"more,omitempty"`     // what Bound cut
	Warnings     []string       `json:"warnings,omitempty"` // about problems; a line each
}

// read leaves out invalid fields of the host itself.
func (s *Snapshot) read(r *reader) {
	if o := orZero(s.UTCOffset); o < -maxOffset || o > maxOffset {
		r.leaveOut("utc_offset_s", fmt.Errorf("it is %d seconds", o))
		s.UTCOffset = nil
	}
	cleanText(r, "boot_id", &s.BootID)
	cleanText(r, "state_folder", &s.StateFolder)
	s.Guard, s.Trial = s.Guard.known(), s.Trial.Bounded()
}

// Clock converts a time of this machine's clock to the host's.
func (s *Snapshot) Clock(at time.Time) (now time.Time, known bool) {
	if s.Skew == nil {
		return at, false
	}
	return at.Add(*s.Skew), true
}

// HideState records that the state files are unreadable: attachments are unknown, and no rule applies to devices.
func (s *Snapshot) HideState(reason error) {
	const unknown = "environments and attachments are unknown, and no rule acts on these GPUs: "
	s.Warnings = append(s.Warnings, unknown+reason.Error())
	s.Environments = nil
	for i := range s.Devices {
		s.Devices[i].Unidentified, s.Devices[i].Attachments = true, nil
	}
}

// Process uses at least one device.
type Process struct {
	PID PID `json:"pid"`
	// EID is its environment (see Owner), which its owner can choose; empty for none.
	EID EnvID `json:"eid,omitempty"`
	// EnvUnknown says that EID is not valid: the process may be in any environment or in none.
	EnvUnknown bool          `json:"env_unknown,omitempty"`
	Usage      []DeviceUsage `json:"used_gpu_memory"`

	// Not in the 1.4.3 format.

	Start   StartTime `json:"start,omitempty"`
	UID     *UID      `json:"uid,omitempty"`     // the real uid, or the creator of its user namespace, by the kernel
	Name    string    `json:"name,omitempty"`    // of the command
	Command string    `json:"command,omitempty"` // at most MaxCommand printable bytes; it may have overwritten them
	// PrivateCommand replaces Name and Command where /proc hides them: for its owner, root and operators.
	PrivateCommand string `json:"private_command,omitempty"`
	// Container is its container's id by its cgroup, or UnnamedContainer if only its PID namespace shows one.
	Container     string         `json:"container,omitempty"`
	ContainerInfo *ContainerInfo `json:"container_info,omitempty"` // nil also for a user's container
	// Inherited is the environment of its nearest ancestor that is registered in one of its own uid.
	Inherited      EnvID       `json:"inherited_eid,omitempty"`
	EnvOverwritten bool        `json:"env_overwritten,omitempty"` // EnvUnknown because it overwrote its environ
	Unreadable     *Unreadable `json:"unreadable,omitempty"`      // why root could not read its environ
	// NodeMissing: the driver lists it, but no device node is open or mapped: the PID may be another's.
	NodeMissing bool      `json:"unproved,omitempty"`
	NodeHolder  PID       `json:"unproved_holder,omitempty"` // an unlisted process of its user with a node; 0 for none
	Username    Username  `json:"user,omitempty"`            // the host's name for UID; empty also if it has none
	UserUnknown bool      `json:"user_unknown,omitempty"`    // the host could not look up the name now
	Protected   string    `json:"protected,omitempty"`       // the name of a daemon that the host won't terminate
	Instances   []GPUUUID `json:"mig,omitempty"`             // MIG instances; Usage has their memory
}

// read returns the valid parts of the process. An error that wraps ErrInvalid refuses the document.
func (d *processOf) read(r *reader) (Process, error) {
	p := cmp.Or(d.Process, &Process{})
	r.at("", int(p.PID))
	p.EID, p.Inherited = r.id(orZero(d.EID)), r.id(p.Inherited)
	p.EnvUnknown = p.EnvUnknown || p.EID == "" && r.claims
	usage, err := kept(r, d.Usage, "usage", maxDevices, (*usageOf).read, idOfUsage)
	p.Usage = usage
	for i := range p.Usage {
		switch u := &p.Usage[i]; d.Types[u.Index] {
		case "", TypeCompute, TypeGraphics, TypeComputeGraphics, TypePending:
			u.Type = d.Types[u.Index]
		default: // of a newer genv
			u.Type = TypeCompute
		}
	}
	if p.Unreadable != nil {
		p.Unreadable.Why = text.Cut(p.Unreadable.Why, maxTextLength)
	}
	p.Instances = slices.DeleteFunc(p.Instances, func(uuid GPUUUID) bool {
		return r.leaveOut("an instance", CheckInstance(uuid))
	})
	if len(p.Instances) > maxInstances {
		err = cmp.Or(err, tooMany(len(p.Instances), "MIG instances", maxInstances))
	}
	cleanText(r, "name", &p.Name)
	cleanText(r, "command", &p.Command)
	cleanText(r, "private_command", &p.PrivateCommand)
	cleanText(r, "user", &p.Username)
	cleanText(r, "protected", &p.Protected)
	if r.leaveOut("container", CheckText("it", p.Container)) {
		p.Container = UnnamedContainer
	}
	if r.leaveOut("container_info", p.ContainerInfo.check()) {
		p.ContainerInfo = &ContainerInfo{Unknown: true}
	}
	return *p, cmp.Or(checkPID(p.PID), err)
}

// Unreadable says why a process can't be read within limits.
type Unreadable struct {
	Why    string `json:"why"`               // as in "its environment has 30 MiB, and at most 2 MiB are read"
	ByUser bool   `json:"by_user,omitempty"` // its owner has certainly caused it
}

// IsByUser is false for nil.
func (u *Unreadable) IsByUser() bool { return u != nil && u.ByUser }

// UnnamedContainer is the Container of a process in another PID namespace without a container's cgroup.
const UnnamedContainer = "unnamed"

const MaxCommand = 256 // bytes

// DeviceUsage is a process's use of a device.
type DeviceUsage struct {
	Index  DeviceIndex `json:"index"`
	Memory Memory      `json:"gpu_memory"`
	// Type is known only for GPUs with an active display, and not from genv 1.4.3.
	Type ProcessType `json:"-"` // see processOf
}

func (d *usageOf) read(*reader) (DeviceUsage, error) {
	d.DeviceUsage.Index = orZero(d.Index)
	return d.DeviceUsage, checkIndex(d.Index)
}

// Environment is a registered environment.
type Environment struct {
	EID      EnvID     `json:"eid"`
	UID      UID       `json:"uid"`
	Creation Date      `json:"creation"`
	Username Username  `json:"username"` // empty if the host has no name for the uid
	Config   EnvConfig `json:"config"`
	// PIDs has its active shells (or SDK processes), KernelIDs its Jupyter kernels: it ends with the last of them.
	PIDs      []PID    `json:"pids"`
	KernelIDs []string `json:"kernel_ids"`

	// Not in the 1.4.3 format.

	Since         StartTime `json:"since,omitempty"`          // see Attachment.Since
	Runs          bool      `json:"runs,omitempty"`           // its only process is that of `genv run`: it has no shell
	OwnerMismatch bool      `json:"owner_mismatch,omitempty"` // it was written by another user, who runs its processes
}

// Admits says whether a process of this uid (nil if unknown) may be in it: its user's, root's, or unknown.
func (e *Environment) Admits(uid *UID) bool {
	return uid == nil || *uid == e.UID || *uid == 0 || e.UID == NoUID
}

func (d *environmentOf) read(r *reader) (Environment, error) {
	e := cmp.Or(d.Environment, &Environment{})
	if e.EID == "" {
		return *e, errors.New("it has no id")
	}
	e.EID = r.id(e.EID)
	r.at(e.EID, 0)
	clean(r, "username", &e.Username)
	if e.UID = NoUID; d.UID != nil {
		e.UID = *d.UID
	} else {
		r.leaveOut("uid", errMissing)
		e.Username = ""
	}
	e.PIDs = slices.DeleteFunc(e.PIDs, func(pid PID) bool { return r.leaveOut("a pid", checkPID(pid)) })
	e.KernelIDs = slices.DeleteFunc(e.KernelIDs, func(id string) bool {
		return r.leaveOut("a kernel id", checkID(id))
	})
	clean(r, "name", &e.Config.Name)
	if n := orZero(e.Config.GPUs); n < 0 || n > math.MaxInt32 {
		r.leaveOut("gpus", fmt.Errorf("it is %d", n))
		e.Config.GPUs = nil
	}
	return *e, nil
}

// EnvConfig is the owner's configuration.
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

// With returns the configuration overridden by what other sets.
func (c EnvConfig) With(other EnvConfig) EnvConfig {
	return EnvConfig{
		Name: cmp.Or(other.Name, c.Name), GPUMemory: cmp.Or(other.GPUMemory, c.GPUMemory),
		GPUs: cmp.Or(other.GPUs, c.GPUs),
	}
}

// Location is the time zone of the host's clock, or this machine's if unknown.
func (s *Snapshot) Location() *time.Location {
	if s.UTCOffset == nil {
		return time.Local
	}
	if *s.UTCOffset == 0 {
		return time.UTC
	}
	return time.FixedZone("", *s.UTCOffset)
}

// When is the time of an attachment or creation: by root's looks, else as its user wrote it; zero if unknown.
func (s *Snapshot) When(since StartTime, written Date) time.Time {
	switch {
	case since != 0 && !s.Boot.IsZero():
		return s.Boot.Add(since.Sub(0))
	case written.IsZero():
		return time.Time{}
	}
	return written.In(s.Location())
}

// Trial is what root's genv found when it tried to read processes in a helper, signal one, and write the state.
type Trial struct {
	Unable   string `json:"unable,omitempty"`    // why nothing can be ended there, in a printable line; empty if it can
	State    string `json:"state,omitempty"`     // why nothing can be detached there, likewise
	NoPidfds bool   `json:"no_pidfds,omitempty"` // before Linux 5.3, or a filter of system calls refuses them
}

// Bounded returns the trial with bounded texts; nil for nil.
func (t *Trial) Bounded() *Trial {
	if t == nil {
		return nil
	}
	return &Trial{boundedLine(t.Unable), boundedLine(t.State), t.NoPidfds}
}

// boundedLine makes a host's text one line of at most 1024 bytes before escaping.
func boundedLine(s string) string { return text.OneLine(text.Cut(s, 1024)) }

// Warnings lists what people have to know, one line each.
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

// A missing or unknown mode is never GuardOff.
const (
	GuardOff     GuardMode = "off"     // every open of a device is allowed
	GuardWatch   GuardMode = "watch"   // what it would deny is reported
	GuardEnforce GuardMode = "enforce" // opens are denied
	// GuardUnable: the host can't carry out an order to watch or to enforce.
	GuardUnable GuardMode = "unable"
)

// Guard is the state of the kernel guard, as the host reports it.
type Guard struct {
	Mode   GuardMode `json:"mode"`
	Reason string    `json:"reason,omitempty"` // why it isn't the mode of the last order; one printable line
}

func (g *Guard) known() *Guard {
	if g == nil || !slices.Contains([]GuardMode{GuardOff, GuardWatch, GuardEnforce, GuardUnable}, g.Mode) {
		return nil
	}
	return &Guard{g.Mode, boundedLine(g.Reason)}
}
