package local

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Inspector reads which processes use this machine's devices now; the Machine of
// snapshot/local is one.
type Inspector interface {
	// Processes asks the driver and the state files, never a cache, and adds
	// warnings in plain English. PID, the devices of Usage, EID, Inherited,
	// EnvUnknown and EnvOverwritten are read of each process, nothing else. After
	// an error nothing is signalled.
	Processes(ctx context.Context) (processes []snapshot.Process, warnings []string, err error)
	// Environments reads the registered environments from the state files.
	Environments(ctx context.Context) (environments []snapshot.Environment, warnings []string, err error)
}

// StateFiles are this machine's state files; *disk.Store is one.
type StateFiles interface {
	// Update passes the content of the state files to change under their lock, and
	// writes what is different afterwards. After an error nothing was written.
	Update(ctx context.Context, change func(*state.Files) error) error
}

// ExecutorOptions configure an Executor. The zero value sends SIGTERM and does
// not wait, as 1.4.3 does.
type ExecutorOptions struct {
	// Grace is how long processes have to end after SIGTERM if the report doesn't
	// say; 0 to not wait.
	Grace time.Duration
	// Kill sends SIGKILL, even if the report does not ask for it, to what still
	// runs, and still is what was judged, when the grace is over. Without a
	// grace there is no SIGKILL.
	Kill bool
	// KillWait is how long a process has to end after SIGKILL, 0 for 10 s: the
	// driver takes seconds to free a large GPU's memory.
	KillWait time.Duration
	// Unprotected are names of daemons (such as "nvidia-cuda-mps-server") that
	// may be signalled although they are among enforce.Protected, in addition to
	// those of the report.
	Unprotected []string
	// UID is the user that genv runs as. Like all commands, it changes the environments of
	// others as root (0) alone.
	UID snapshot.UID
	// ProcRoot is where the proc file system is mounted; empty for /proc.
	ProcRoot string
}

// Executor carries out reports on this machine. It is safe for concurrent use. Use
// the same one in all cycles: it remembers processes between them.
type Executor struct {
	inspector  Inspector
	stateFiles StateFiles
	options    ExecutorOptions
	memories   *memories
	onAction   func(line string)
}

// execution is one report that an Executor carries out.
type execution struct {
	*Executor
	grace       time.Duration
	kill        bool
	unprotected []string
	// attached are the environments that kept a device, see stillAttached.
	attached map[snapshot.EnvID]objection
}

// identity is a process of this boot.
type identity struct {
	pid   snapshot.PID
	start snapshot.StartTime
}

// memory is what an Executor remembers of a process between cycles.
type memory struct {
	unkillable bool // SIGKILL did not end it
	// evasions counts how often it was not signalled since something was different
	// that it may have changed itself: its environ, which it can write to, or some
	// of its devices.
	evasions int
}

// memories are shared by the reports that are carried out at the same time.
type memories struct {
	mu sync.Mutex
	of map[identity]memory
}

func (m *memories) get(id identity) memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[id]
}

// change changes what is remembered of a process, and returns it.
func (m *memories) change(id identity, change func(*memory)) memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := m.of[id]
	change(&changed)
	m.of[id] = changed
	return changed
}

// removeDead removes the processes that have ended.
func (m *memories) removeDead(fs proc.FS) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.of, func(id identity, _ memory) bool {
		alive, err := fs.Alive(id.pid, id.start)
		return err == nil && !alive
	})
}

// maxEvasions is how often that counts as chance: an honest process may start a
// program in another environment, or free a device, between the judgement and
// the signal. One that did so each time would otherwise never be signalled.
const maxEvasions = 2

// New makes an Executor.
func New(inspector Inspector, files StateFiles, options ExecutorOptions) *Executor {
	if options.KillWait <= 0 {
		options.KillWait = 10 * time.Second
	}
	return &Executor{
		inspector: inspector, stateFiles: files, options: options,
		memories: &memories{of: map[identity]memory{}}, onAction: func(string) {},
	}
}

// Execute carries out a report once, first the detachments, then the
// terminations, and returns the outcome of each item: those of report.Detach in
// their order, then those of report.Terminate in theirs. Nothing is retried.
// When ctx ends, no further step is begun; items that were not begun are
// StatusFailed.
//
// Calls don't wait for each other. A report that is passed twice is carried out
// twice: the caller must prevent that.
func (x *Executor) Execute(ctx context.Context, report enforce.Report) []enforce.Outcome {
	detached := x.detach(ctx, report.Detach)
	e := &execution{
		Executor: x, grace: cmp.Or(report.Grace, x.options.Grace), kill: x.options.Kill || report.Kill,
		unprotected: slices.Concat(x.options.Unprotected, report.Unprotected), attached: stillAttached(detached),
	}
	return append(detached, e.terminate(ctx, report.Terminate)...)
}

// OnAction returns an Executor with the same memory that calls f with 1.4.3's line
// for each action, right after it, in the goroutine of Execute.
func (x *Executor) OnAction(f func(line string)) *Executor {
	other := *x
	other.onAction = f
	return &other
}

func (x *Executor) proc() proc.FS { return proc.FS{Root: x.options.ProcRoot} }
