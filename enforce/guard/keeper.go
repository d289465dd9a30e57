// Package guard keeps the kernel guard of a host: it tells the program in the kernel (package kernel) who may open what
// while an order holds.
//
//	order := guard.Order{Mode: guard.Enforce, LeaseMS: 60_000, By: "alice"}
//	given, err := guard.GiveOrder("/run/genv", order, "", at)
//	given, err = guard.RenewOrder("/run/genv", given, at) // ErrReplaced: there is another order now
//	status, err := guard.ReadStatus("/run/genv")
//
//	k := guard.Keeper{RunDir: "/run/genv", Open: …, Read: …, Devices: …}
//	err := k.Run(ctx)
//
// Only one Keeper works on a host: it holds guard.lock. It follows the state files, the order and the veto with
// inotify, and checks every second for missed changes. It never runs nvidia-smi, and reads what may hang, such as files
// of users and of the driver, apart from the renewal of the lease.
//
// An order (guard-order.json) has a lease, and is renewed by giving it again. Without a valid order all opens are
// allowed. guard.json has the guard's status, guard-denials.json the denials, and guard-opens.json other opens of
// devices (watch.OpenLog).
package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// Keeper keeps the guard of a host. All fields are required unless they say otherwise.
type Keeper struct {
	RunDir string                 // root's run folder: orders, status, denials and the lock
	Veto   string                 // a file that turns the guard off while it exists
	Open   func() (Kernel, error) // attaches the guard, or takes over the pinned one
	Remove func() error           // ends a pinned one at once, whoever attached it

	// Place is where the state files are now, and whether only root may write them, so that they name the true owners.
	// With an error they prove nothing.
	Place func() (dir string, owned bool, err error)
	// Read returns the state files without ended processes, as disk.Store.Read does.
	Read     func(ctx context.Context) (state.Files, error)
	Process  func(snapshot.PID) system.ProcessStatus
	Devices  func() ([]hardware.BusDevice, error) // the host's devices with their minors. It may hang.
	Accounts *proc.Accounts                       // those of the uids that open devices; nil for this machine's
	// UserID finds a user's uid; found is false if the user certainly doesn't exist.
	UserID func(ctx context.Context, name snapshot.Username) (uid snapshot.UID, found bool, err error)
	Denied func(d Denial)     // gets each new denial, if set, one at a time. The list waits for it.
	Clock  func() (At, error) // the present time; nil for the machine's clocks
	Log    zerolog.Logger

	Waiting func(err error) // called once, if set, when another process holds the lock
}

const (
	lockFile  = "guard.lock"
	lockPause = 250 * time.Millisecond // of an attempt to take the lock
)

// Run keeps the guard until ctx ends, after any other process. The guard in the kernel stays until its lease ends. An
// error means that the run folder is unusable.
func (k *Keeper) Run(ctx context.Context) error {
	lock, err := k.lock(ctx)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Close()
	if k.Clock == nil {
		k.Clock = Now
	}
	s := &lockedKeeper{
		Keeper: k, learned: make(chan func()), problems: problems{log: k.Log, now: map[string]string{}},
	}
	return s.run(ctx)
}

func (k *Keeper) lock(ctx context.Context) (*os.File, error) {
	for waits := false; ctx.Err() == nil; waits = true {
		lock, err := tryLock(k.RunDir)
		switch {
		case err == nil:
			return lock, nil
		case !errors.Is(err, folder.ErrLocked):
			return nil, fmt.Errorf("keep the guard: %w", err)
		case !waits && k.Waiting != nil:
			k.Waiting(err)
		}
	}
	return nil, nil
}

// TryLock takes the Keeper's lock for a short task of the caller, who closes it; nil, nil if a Keeper has it.
func TryLock(runDir string) (*os.File, error) {
	lock, err := tryLock(runDir)
	return lock, folder.Ignore(err, folder.ErrLocked)
}

// tryLock waits for lockPause: a program that a process starts shares its locks until exec.
func tryLock(runDir string) (*os.File, error) {
	dir, err := folder.MakePublic(runDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Lock(lockFile, lockPause)
}

// Now reads the clocks of this machine.
func Now() (At, error) {
	since, err := proc.SinceBoot()
	if err != nil {
		return At{}, err
	}
	boot, err := proc.FS{}.BootID()
	if err != nil {
		return At{}, err
	}
	return At{Time: time.Now(), BootID: boot, SinceBoot: since}, nil
}

type loaded struct {
	Kernel
	stop     func()                  // ends the reading of events
	left     map[snapshot.UID]Minors // that an earlier Keeper allowed; nil for a new guard
	plan     access
	planned  bool // plan was written
	unpinned bool // it ends with this process
	full     bool // the kernel lacks room for some users
	control  Control
	deadline time.Time // by the wall clock; zero before the first SetControl
}

func (s *lockedKeeper) open(ctx context.Context) (*loaded, error) {
	k, err := s.Open()
	if err != nil {
		return nil, err
	}
	now, err := k.State()
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	g := &loaded{Kernel: k, unpinned: now.Dir == ""}
	if now.Mode != Off && now.Lease > 0 {
		g.left = now.Allowed
	}
	reading, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := k.Events(reading, s.denials.take); err != nil && reading.Err() == nil {
			s.Log.Error().Err(err).Msg("denials can't be read")
		}
	}()
	g.stop = func() { stop(); <-ended }
	return g, nil
}

// release gives up the guard in the kernel, which stays as it is.
func (s *lockedKeeper) release() {
	if s.loaded == nil {
		return
	}
	s.loaded.stop()
	if err := s.loaded.Close(); err != nil {
		s.Log.Error().Err(err).Msg("close the guard")
	}
	s.loaded = nil
}

func (g *loaded) allowed() map[snapshot.UID]Minors {
	switch {
	case g == nil:
		return nil
	case g.planned:
		return g.plan.Allowed
	}
	return g.left
}

// Permissions come before what they are exceptions from.
func (g *loaded) write(p access) error {
	err := g.SetAllowed(p.Allowed)
	if g.full = errors.Is(err, ErrFull); err != nil && !g.full {
		return err
	}
	if !g.planned || g.plan.Guarded != p.Guarded {
		if err := g.SetMinors(p.Guarded); err != nil {
			return err
		}
	}
	g.plan, g.planned = p, true
	return nil
}

// The deadline in guard.json changes with the mode, or after a third of the lease.
func (g *loaded) renew(c Control, now time.Time) error {
	if err := g.SetControl(c); err != nil {
		return fmt.Errorf("renew the guard: %w", err)
	}
	moved := now.Add(c.Lease).Sub(g.deadline)
	if g.control.Mode != c.Mode || g.control.FirstUID != c.FirstUID || moved <= -tick/2 || moved >= c.Lease/3 {
		g.control, g.deadline = c, now.Add(c.Lease)
	}
	return nil
}

// Kernel is the guard in the kernel: see kernel.Guard.
type Kernel interface {
	SetMinors(guarded Minors) error
	SetAllowed(allowed map[snapshot.UID]Minors) error
	SetControl(control Control) error
	State() (KernelState, error)
	Events(ctx context.Context, handle func(DeviceOpen)) error
	Close() error
}

// Errors of a Kernel by what the caller does about them.
var (
	// ErrFull: the guard lacks room for some users, who have no permission. Don't use Enforce.
	ErrFull = errors.New("too many users for the kernel guard")
	// ErrRemoved: the guard was removed since Open, and every open is allowed. Open it again if it is wanted.
	ErrRemoved = errors.New("the kernel guard was removed")
)

// Control is what the guard does, and for how long.
type Control struct {
	Mode     Mode
	Lease    time.Duration // how long from now the guard acts, and then lets everything through; 0 ends it now
	FirstUID snapshot.UID  // not 0: the first uid that is guarded; users below it are never denied
}

// KernelState is what the guard in the kernel does now.
type KernelState struct {
	Control        // Lease is what is left of it
	Dir     string // of the pins; empty if there are none
	Allowed map[snapshot.UID]Minors
	Lost    uint64 // how many events found no room since the guard began
}

// OpenKind is what the guard did about an open.
type OpenKind uint16

// The kinds of events.
const (
	Denied    OpenKind = iota + 1 // the open failed with EPERM
	WouldDeny                     // the open was allowed only because of the mode watch
	Opened                        // an allowed open
)

// DeviceOpen is an open, or access(2) with R_OK or W_OK, of a guarded device by an ordinary user; Opened also by root.
// At most ten a second are reported of a kind, device and user (of Opened, process if known).
type DeviceOpen struct {
	Kind  OpenKind
	UID   snapshot.UID // real, in the initial user namespace
	PID   snapshot.PID // of the process, in the initial PID namespace; 0 if the kernel doesn't report it
	Minor int
}
