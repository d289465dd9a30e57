package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Kernel is the guard in the kernel: see kernel.Guard.
type Kernel interface {
	SetMinors(guarded, watched Minors) error
	SetAllowed(allowed map[snapshot.UID]Minors) error
	SetControl(control Control) error
	State() (KernelState, error)
	Events(ctx context.Context, handle func(Event)) error
	Close() error
}

// Errors of a Kernel by what the caller does about them.
var (
	// ErrFull: there are more users than the guard has room for; those who did not fit
	// have no permission. Don't use Enforce.
	ErrFull = errors.New("too many users for the kernel guard")
	// ErrRemoved: somebody removed the guard since Open, by hand or with Remove, and every
	// open is allowed. Stop, or Open again if the administrator wants it.
	ErrRemoved = errors.New("the kernel guard was removed")
)

// Control is what the guard does, and for how long.
type Control struct {
	Mode Mode
	// Lease is how long from now the guard acts. Then it lets everything through, until
	// the next SetControl. 0 ends it now.
	Lease time.Duration
	// FirstUID is the first uid that is guarded; users below it, and root, are never
	// denied. It is not 0.
	FirstUID snapshot.UID
}

// KernelState is what the guard in the kernel does at this moment.
type KernelState struct {
	Control           // Lease is what is left of it
	Dir        string // of the pins; empty if there are none
	Cgroup     string
	CgroupRoot bool // the cgroup is the root of the machine's hierarchy
	PIDs       bool // events say which process it was
	Guarded    Minors
	Watched    Minors
	Allowed    map[snapshot.UID]Minors
	// Lost is how many events there was no room for since the guard began.
	Lost uint64
}

// EventKind is what the guard did about an open.
type EventKind uint8

// The kinds of events.
const (
	Denied    EventKind = iota + 1 // the open failed with EPERM
	WouldDeny                      // the open was allowed only since the mode is watch
	Opened                         // an allowed open of a watched device
)

// String is the kind as a word.
func (k EventKind) String() string {
	switch k {
	case Denied:
		return "denied"
	case WouldDeny:
		return "would be denied"
	case Opened:
		return "opened"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Event is an open of a guarded or watched device: by an ordinary user, or if it is Opened by
// whomever, root too. At most ten a second are reported of a kind, user and device; of Opened,
// of a process and device where the kernel reports processes. access(2) with R_OK or W_OK asks the same
// question as open(2) and is reported like it.
type Event struct {
	Kind  EventKind
	At    time.Time // by this machine's clock, as of the time of reading
	Boot  time.Duration
	UID   snapshot.UID // real, in the initial user namespace
	PID   snapshot.PID // of the process, in the initial PID namespace; 0 if the kernel doesn't report it
	TID   snapshot.PID // of the thread, likewise
	Minor int
	Read  bool // opened for reading
	Write bool // opened for writing
}
