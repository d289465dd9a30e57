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

// Inspector says which processes use this machine's devices now; the Machine of
// snapshot/local is one.
type Inspector interface {
	// Processes asks the driver and the state files, never a cache, and adds
	// warnings in plain English. PID, the devices of Usage, EID, Inherited,
	// EnvUnknown and EnvOverwritten are read of each process, nothing else. An
	// error means that it is not known: then nothing is signalled.
	Processes(ctx context.Context) (processes []snapshot.Process, warnings []string, err error)
	// Environments reads the registered environments from the state files.
	Environments(ctx context.Context) (environments []snapshot.Environment, warnings []string, err error)
}

// StateFiles are this machine's state files; *state.Store is one.
type StateFiles interface {
	// Update hands the state files to change under their lock, and writes what is
	// different afterwards. An error means that nothing was written.
	Update(ctx context.Context, change func(*state.Files) error) error
}

// ExecutorOptions are how an Executor goes about its work. The zero ExecutorOptions send SIGTERM
// and wait for nobody, as 1.4.3 does.
type ExecutorOptions struct {
	// Grace is how long processes have to end after SIGTERM when the report
	// leaves it to this machine; 0 to not wait.
	Grace time.Duration
	// Kill sends SIGKILL, even if the report does not ask for it, to what still
	// runs, and still is what was judged, when the grace is over. Without a
	// grace there is no SIGKILL.
	Kill bool
	// KillWait is how long a process has to end after SIGKILL, 0 for 10 s. It
	// can't refuse, but the driver takes seconds to free a large GPU's memory.
	KillWait time.Duration
	// Unprotected are names of daemons (such as "nvidia-cuda-mps-server") that
	// may be signalled although enforce.Protected has them, beside those that a
	// report names itself.
	Unprotected []string
	// OnAction gets 1.4.3's line for each thing that was done, right when it was
	// done; nil to say nothing. It is called by Execute's own goroutine.
	OnAction func(line string)
	// ProcRoot is where the proc file system is; empty for /proc.
	ProcRoot string
}

// Executor carries out reports on this machine, one at a time. Keep it between
// cycles: it remembers which processes even SIGKILL did not end, and which were
// never what was judged when they were to be signalled.
type Executor struct {
	machine Inspector
	books   StateFiles
	options ExecutorOptions

	mu         sync.Mutex // held while a report is carried out
	unkillable map[identity]bool
	evasions   evasions
	// Of the report that is carried out:
	grace       time.Duration
	kills       bool
	unprotected []string
}

// identity is a process of this boot.
type identity struct {
	pid   snapshot.PID
	start snapshot.StartTime
}

// New makes an Executor.
func New(machine Inspector, books StateFiles, options ExecutorOptions) *Executor {
	return &Executor{machine: machine, books: books, options: options, unkillable: map[identity]bool{}, evasions: evasions{}}
}

// Execute does once what the report says, first the detachments, then the
// terminations, and tells the outcome of each item: those of report.Detach in
// their order, then those of report.Terminate in theirs. Nothing is tried
// again. When ctx ends, no further step is begun; what was not begun is
// StatusFailed.
//
// Calls wait for each other. Whoever gives the same report twice has it carried
// out twice: that it happens once is the caller's to see to.
func (x *Executor) Execute(ctx context.Context, report enforce.Report) []enforce.Outcome {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.grace, x.kills = cmp.Or(report.Grace, x.options.Grace), x.options.Kill || report.Kill
	x.unprotected = slices.Concat(x.options.Unprotected, report.Unprotected)
	outcomes := make([]enforce.Outcome, len(report.Detach)+len(report.Terminate))
	detached, ended := outcomes[:len(report.Detach)], outcomes[len(report.Detach):]
	x.detach(ctx, report.Detach, detached)
	x.terminate(ctx, report.Terminate, ended, spared(detached))
	return outcomes
}

// forgetDead drops the processes that have ended from memory.
func (x *Executor) forgetDead() {
	dead := func(id identity) bool {
		alive, err := x.proc().Alive(id.pid, id.start)
		return err == nil && !alive
	}
	maps.DeleteFunc(x.unkillable, func(id identity, _ bool) bool { return dead(id) })
	maps.DeleteFunc(x.evasions, func(id identity, _ int) bool { return dead(id) })
}

func (x *Executor) say(line string) {
	if x.options.OnAction != nil {
		x.options.OnAction(line)
	}
}

func (x *Executor) killWait() time.Duration {
	if x.options.KillWait > 0 {
		return x.options.KillWait
	}
	return 10 * time.Second
}

func (x *Executor) proc() proc.FS { return proc.FS{Root: x.options.ProcRoot} }
