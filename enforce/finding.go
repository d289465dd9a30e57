package enforce

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Finding is a violated rule, why it is violated, and what the plan does about it. Fields that the rule doesn't use are
// empty. String is 1.4.3's line.
type Finding struct {
	// ID is the same for the same violation in every cycle and in the record.
	ID   string            `json:"id"`
	Rule Rule              `json:"rule"`
	Host snapshot.Hostname `json:"host,omitempty"` // missing when it is about several
	PID  snapshot.PID      `json:"pid,omitempty"`
	// EID is the environment; for non-env-processes the one that the process claims.
	EID  snapshot.EnvID    `json:"eid,omitempty"`
	User snapshot.Username `json:"user,omitempty"`
	// UID is the owner: of a process as the kernel says, of an environment as its state file says. Missing if unknown
	// or contradictory.
	UID     *snapshot.UID `json:"uid,omitempty"`
	Command string        `json:"command,omitempty"` // as its owner wrote it: show people the line
	// PrivateCommand replaces the command where /proc hides it. No text has it.
	PrivateCommand string                  `json:"private_command,omitempty"`
	Container      string                  `json:"container,omitempty"`      // that the process runs in
	ContainerInfo  *snapshot.ContainerInfo `json:"container_info,omitempty"` // what root found out about it
	Instances      []snapshot.GPUUUID      `json:"mig,omitempty"`            // its MIG instances; none for whole GPUs
	// Devices are not attached (env-devices) or over capacity (env-memory).
	Devices    []snapshot.DeviceIndex `json:"devices,omitempty"`
	Unreadable *snapshot.Unreadable   `json:"unreadable,omitempty"` // why root can't read its environment

	Memory      *MemoryExcess       `json:"memory,omitempty"`  // of env-memory and max-memory-per-user
	Count       *CountExcess        `json:"count,omitempty"`   // of the caps
	Cap         *CapExcess          `json:"cap,omitempty"`     // of a cap of the list
	Reservation *ReservationTrouble `json:"booking,omitempty"` // for the owner of a reservation
	CountedOn   []snapshot.Hostname `json:"-"`                 // the hosts that a cap counts
	// For is how long it lasted, for idle, max-duration and max-process-age.
	For   time.Duration `json:"for_ns,omitempty"`
	Limit time.Duration `json:"limit_ns,omitempty"` // how long it may last
	// BelowPower is the percentage of its power limit that a GPU stayed below, if it is idle by power alone.
	BelowPower int  `json:"below_power,omitempty"`
	Warn       Warn `json:"-"` // for the advice of idle

	Since     time.Time `json:"since"`             // seen without a break
	Cycles    int       `json:"cycles"`            // that saw it since
	Pending   bool      `json:"pending,omitempty"` // nothing is done about it yet
	Due       time.Time `json:"due,omitzero"`      // when something is done at the earliest
	BlockedBy string    `json:"waits,omitempty"`   // why it is pending, besides time
	// Deferred: due, but pending until the next look or tick. It causes no event.
	Deferred bool `json:"-"`
	// Held: a safety limit or an operator holds back all of its actions.
	Held         bool           `json:"-"`
	HostsMissing int            `json:"hosts_missing,omitempty"` // how many hosts did not answer
	Stuck        []StuckProcess `json:"stuck,omitempty"`         // processes that could not be ended before
	// UnderWay is the number of its processes and GPUs with a running order.
	UnderWay int `json:"under_way,omitempty"`

	// Terminate are the processes that end because of it, once it is due.
	Terminate []ProcessRef `json:"terminate,omitempty"`
	Detach    []DeviceRef  `json:"detach,omitempty"` // likewise
}

// MemoryExcess is by how much an environment exceeds its capacity on a device, or a user a cap.
type MemoryExcess struct {
	UsedBytes     int64  `json:"used_bytes"`
	CapacityBytes int64  `json:"capacity_bytes"`
	Capacity      string `json:"capacity,omitempty"` // as its owner wrote it
}

func (m MemoryExcess) bytes() int64 { return m.UsedBytes - m.CapacityBytes }

// CountExcess is by how much a user exceeds a cap.
type CountExcess struct {
	Used  int `json:"used"`
	Limit int `json:"limit"`
	// Attached is how many of them are attached, for max-devices-per-user.
	Attached   int `json:"attached,omitempty"`
	Unattached int `json:"unattached,omitempty"` // only used by processes
	// Hosts is the number of hosts; missing for this machine alone.
	Hosts int `json:"hosts,omitempty"`
}

// ProcessRef names a process of a host.
type ProcessRef struct {
	Host snapshot.Hostname `json:"host"`
	PID  snapshot.PID      `json:"pid"`
}

// StuckProcess is a process that can't be ended, and why, in plain English.
type StuckProcess struct {
	ProcessRef
	Reason string `json:"reason"`
}

// DeviceRef names an attachment to remove.
type DeviceRef struct {
	Host  snapshot.Hostname    `json:"host"`
	Index snapshot.DeviceIndex `json:"device"`
	EID   snapshot.EnvID       `json:"eid"`
}

// Line is String with the user and command of the process, as far as known.
func (f Finding) Line() string {
	if known := f.Rule.of(); known.line != nil && (known.limit != nil || f.Cap != nil || f.Reservation != nil) {
		return f.String() // which names the user
	}
	return f.String() + (&snapshot.Process{
		Username: f.User, UID: f.UID, Command: f.Command, Container: f.Container, ContainerInfo: f.ContainerInfo,
		Instances: f.Instances,
	}).Describe()
}

// String is the line that users of 1.4.3 know, without the host.
func (f Finding) String() string {
	if known := f.Rule.of(); known.line != nil {
		return known.line(f)
	}
	return string(f.Rule)
}

// Advice is what the user of the finding should do. find returns nil for an unknown environment.
func (f *Finding) Advice(find func(snapshot.Hostname, snapshot.EnvID) *snapshot.Environment) string {
	env := find(f.Host, f.EID)
	known := f.Rule.of()
	runs := env != nil && env.Runs
	switch {
	case f.Reservation != nil:
		return f.Reservation.advice()
	case f.Rule == RuleIdle && len(f.Terminate) > 0 && !f.Pending:
		return adviceIdleEnded
	case f.Rule == RuleIdle && len(f.Terminate) > 0 && f.BelowPower > 0:
		return adviceLowPower
	case f.Rule == RuleIdle && len(f.Terminate) > 0:
		return adviceIdleEnds
	case f.Rule == RuleIdle:
		return fmt.Sprintf(adviceIdle, f.Warn.ends(), keepIdle(runs))
	case f.Cap.OfHours(), f.Cap != nil && f.Cap.Limit == 0 && f.Cap.WaitsFor == "" && !f.Cap.Until.IsZero():
		return "Save your work, and end it: you may have these GPUs again from " + snapshot.When(f.Cap.Until) + "."
	case runs && known.adviceRun != "":
		return known.adviceRun
	case known.advice != adviceGiveBack && f.Cap == nil || !f.Pending:
		return f.Rule.Advice()
	}
	return f.giveBack(find)
}

func (w Warn) ends() string {
	switch {
	case w.Cycles > 0:
		return fmt.Sprintf("after %d cycles", w.Cycles)
	case w.For > 0:
		return "after " + text.ShortDuration(w.For)
	}
	return "at once"
}

func (c CountExcess) where() string {
	if c.Hosts == 0 {
		return ""
	}
	return fmt.Sprintf(" on %d hosts", c.Hosts)
}

// Affects is the host of a finding or, for one about a user, the first host on which something ends. Events are limited
// by it: a host that makes things up must not use up the events of others.
func (f *Finding) Affects() snapshot.Hostname {
	switch {
	case f.Host == "" && len(f.Detach) > 0:
		return f.Detach[0].Host
	case f.Host == "" && len(f.Terminate) > 0:
		return f.Terminate[0].Host
	}
	return f.Host
}

// maxAdvised limits the commands in giveBack: a message is short.
const maxAdvised = 4

// giveBack names commands that give back what a user would lose. genv detach alone would detach all. A process that
// keeps using a detached GPU breaks the rules and still counts.
func (f *Finding) giveBack(find func(snapshot.Hostname, snapshot.EnvID) *snapshot.Environment) string {
	type place struct {
		how, where string
		eid        snapshot.EnvID
	}
	numbers := make(map[place][]int) // of processes or GPUs
	var places []place
	add := func(how, where string, eid snapshot.EnvID, on snapshot.Hostname, number int) {
		if f.Count != nil && f.Count.Hosts > 1 {
			where += " on " + text.OneLine(string(on))
		}
		at := place{how, where, eid}
		if numbers[at] == nil {
			places = append(places, at)
		}
		numbers[at] = append(numbers[at], number)
	}
	ending := make(map[snapshot.Hostname]bool)
	for _, ref := range f.Terminate {
		ending[ref.Host] = true
		add("kill ", "", "", ref.Host, int(ref.PID))
	}
	for _, ref := range f.Detach {
		shown, runs := text.Shown(string(ref.EID)), false
		if env := find(ref.Host, ref.EID); env != nil {
			shown, runs = text.Shown(cmp.Or(env.Config.Name, string(ref.EID))), env.Runs
		}
		switch {
		case !runs:
			add("genv detach --index ", " in the shell of environment "+shown, ref.EID, ref.Host, int(ref.Index))
		case !ending[ref.Host]:
			add("", "end the command of environment "+shown, ref.EID, ref.Host, int(ref.Index))
		}
	}
	if len(places) == 0 {
		return "End jobs that you need less."
	}
	var commands []string
	for _, at := range places[:min(len(places), maxAdvised)] {
		slices.Sort(numbers[at])
		list := text.JoinIndices(numbers[at])
		switch at.how {
		case "":
			list = ""
		case "kill ":
			list = strings.ReplaceAll(list, ",", " ")
		}
		commands = append(commands, at.how+list+at.where)
	}
	return "Give back GPUs that you need less, such as these: " + strings.Join(commands, "; ") + "."
}
