package enforce

import (
	"time"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// Policy says which rules apply, to whom, where and when. Its answers depend on
// the arguments alone, and several goroutines may ask it at once. Package enforce/policy
// reads one from a file.
type Policy interface {
	// Settings is what applies to a query. The answers to several queries may share it, so
	// it is not to be changed.
	Settings(Query) *Settings
	// Exempt reports whether no rule may touch a subject, and why.
	Exempt(Subject) (reason string, exempt bool)
	// Account is the name under which it knows a user: that of all names of one account.
	Account(snapshot.Username) snapshot.Username
	// Fleet is what applies to the fleet as a whole.
	Fleet() Fleet
}

// Query asks what applies on a host, for a user, at a moment. The rules of a host
// are asked for without a user, and a user's caps, which count on all hosts
// together, without a host.
type Query struct {
	Host   snapshot.Hostname
	Labels map[string]string // of the host
	User   snapshot.Username
	At     time.Time
}

// Settings are what may differ by host, user and time. The zero Settings
// enforce nothing.
type Settings struct {
	// NonEnvProcesses terminates processes that are in no environment that is
	// registered on their host.
	NonEnvProcesses bool
	// EnvDevices terminates processes that use a device to which their
	// environment is not attached.
	EnvDevices bool
	// EnvMemory terminates processes until their environment is within its
	// memory capacity again, device by device.
	EnvMemory bool

	// SudoUsers admits processes of other users to an environment if they descend
	// from a process that is registered in it, as with sudo -u.
	SudoUsers bool
	// UnknownOutside counts processes that overwrote their environ as outside
	// every environment, unless an ancestor's environment is known.
	UnknownOutside bool

	// EndUnreadable terminates processes of which the user has made unreadable what root judges them by.
	EndUnreadable bool

	// LeaveContainers leaves processes in containers of root's runtimes alone.
	LeaveContainers bool

	// JudgeGraphics judges the processes of a desktop like others.
	JudgeGraphics bool

	// The caps of a user on all hosts together; nil for none.
	MaxDevices *int
	MaxMemory  *int64 // bytes of the devices that are attached
	MaxEnvs    *int

	// Idle detaches devices that are not used; nil for never.
	Idle *Idle
	// MaxDuration detaches what was attached longer ago; 0 for never.
	MaxDuration time.Duration

	// Warn is how long a finding has to be present before anything is done.
	Warn Warn
	// Grace is how long a process has to end after SIGTERM; Kill has SIGKILL
	// follow then.
	Grace time.Duration
	Kill  bool
	Guard guard.Setting // the kernel guard of a host
	// MaxAge is how old an answer of the driver may be where none comes in time; 0 for never.
	MaxAge time.Duration
}

// DefaultMaxAge is Settings.MaxAge where no policy says it.
const DefaultMaxAge = time.Minute

// Idle says when an attached device counts as idle.
type Idle struct {
	// After is for how long nothing must have used it, without a break.
	After time.Duration
	// Below is the utilization in per cent under which a device counts as idle
	// although processes use it; 0 for only devices without a process.
	Below int
}

// Warn is how long a finding has to be present before it is acted on: for a number
// of cycles and for a time, whichever is longer. The zero Warn acts at once.
type Warn struct {
	Cycles int
	For    time.Duration
}

// Fleet is what applies to the fleet as a whole.
type Fleet struct {
	// PauseCaps has the caps wait while a host did not answer. Otherwise that
	// host's devices do not count, so that too few devices count, never too many.
	PauseCaps bool
	Limits    safety.Limits
	// TellUsers has users notified of what is wrong: on terminals, by mail or both.
	TellUsers bool
	// Unprotected are names of daemons that may be ended although their host
	// protects them.
	Unprotected []string
}

// Subject is what a policy may exempt: a process, an environment or a device
// on a host, or a user. What a subject does not have, or what is unknown, is empty
// or nil. User is set only where the question is about a user's caps.
type Subject struct {
	Host        snapshot.Hostname
	User        snapshot.Username
	Device      *snapshot.Device
	Environment *snapshot.Environment
	Process     *snapshot.Process
}
