// Package local carries out an order on this machine: it detaches devices from environments, ends processes, and
// returns the outcome of each item.
//
//	machine := &snapshotlocal.Collector{SMI: client, StateFiles: store, Now: system.Now} // of snapshot/local
//	x := local.New(machine, store, local.ExecutorOptions{Grace: 10 * time.Second})
//	outcomes := x.Execute(ctx, order)
//
// The judged snapshot is older. So a pidfd is opened first, then the GPUs and /proc are read again. The process is
// signalled through that pidfd only if it lived all that time and has the judged start time, devices and environment.
//
// Some processes are never signalled: PID 1, kernel threads, genv itself and its ancestors, and system daemons (see
// safety.Protected).
//
// Each step is complete in itself: if genv dies halfway, nothing needs repair.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Inspector reads the present state of this machine, as the Collector of snapshot/local does.
type Inspector interface {
	// Processes asks the driver and the state files, never a cache. It needs PID, the devices of Usage, EID, Inherited,
	// EnvUnknown and EnvOverwritten. After an error nothing is signalled.
	Processes(ctx context.Context) (processes []snapshot.Process, warnings []string, err error)
	// Devices reads the attachments from the state files.
	Devices(ctx context.Context) (devices []snapshot.Device, warnings []string, err error)
	// GPUs asks the driver for the present GPU of each device.
	GPUs(ctx context.Context) (map[snapshot.DeviceIndex]snapshot.GPUUUID, error)
	// Environments reads the registered environments from the state files.
	Environments(ctx context.Context) (environments []snapshot.Environment, warnings []string, err error)
}

// StateFiles are this machine's state files, such as *disk.Store.
type StateFiles interface {
	// Update calls change under the lock, and writes the result. After an error nothing was written.
	Update(ctx context.Context, change func(*state.Files) error) error
}

// ExecutorOptions configure an Executor. The zero value doesn't wait for the end of processes, like 1.4.3.
type ExecutorOptions struct {
	Grace      time.Duration    // for processes after SIGTERM if the order doesn't say; 0 to not wait
	UID        snapshot.UID     // of genv: only root (0) changes the environments of others
	Containers Containers       // has containers stopped; nil to signal their processes only
	Asked      *ending.Register // the list of the processes that were asked to end; nil to keep none
	Proc       proc.FS          // the proc file system; the zero FS is /proc
}

// Executor carries out orders on this machine. It is safe for concurrent use, and remembers processes.
type Executor struct {
	inspector           Inspector
	stateFiles          StateFiles
	options             ExecutorOptions
	memories            *memories
	onAction, onWarning func(line string) // see As
	asker               ending.Authority
}

// New returns an Executor.
func New(inspector Inspector, files StateFiles, options ExecutorOptions) *Executor {
	return &Executor{
		inspector: inspector, stateFiles: files, options: options,
		memories: &memories{of: map[proc.ID]processRecord{}},
		onAction: func(string) {}, onWarning: func(string) {},
	}
}

// Execute carries out an order, and returns the outcomes of order.Detach, then of order.Terminate. When ctx ends, it
// begins no further step; remaining items are StatusFailed. Calls run concurrently. An order that is passed twice is
// carried out twice.
func (x *Executor) Execute(ctx context.Context, o order.Order) []order.Outcome {
	e := &execution{Executor: x, id: o.ID, gpus: o.GPUs, Options: o.Options}
	e.GraceMS = cmp.Or(o.GraceMS, x.options.Grace.Milliseconds())
	e.steps = e.Steps()
	detached := e.detach(ctx, o.Detach)
	return append(detached, e.terminate(ctx, o.Terminate)...)
}

// As returns an Executor with the same memory for a controller. In the goroutine of Execute it calls onAction with
// 1.4.3's line after each action, and onWarning with other problems.
func (x *Executor) As(asker ending.Authority, onAction, onWarning func(line string)) *Executor {
	other := *x
	other.asker, other.onAction, other.onWarning = asker, onAction, onWarning
	return &other
}

// hold keeps other controllers from replacing the asker until release is called.
func (x *Executor) hold() (release func(), err error) {
	if x.asker.Hold == nil {
		return func() {}, nil
	}
	return x.asker.Hold()
}

func (x *Executor) proc() proc.FS { return x.options.Proc }

type execution struct {
	*Executor
	order.Options
	id       string                                    // of the order
	steps    []order.Step                              // for each process
	gpus     map[snapshot.DeviceIndex]snapshot.GPUUUID // of the order
	attached map[snapshot.EnvID]refusal                // see stillAttached
	// stops are requests to stop containers, and stopping is their context, which outlasts the order's.
	stops    sync.WaitGroup
	stopping context.Context
}

// processRecord is what an Executor remembers of a process between cycles.
type processRecord struct {
	unkillable bool // SIGKILL did not end it
	evasions   int  // how often it escaped a signal by changes that it may have made itself: environ, devices
}

type memories struct {
	mu sync.Mutex
	of map[proc.ID]processRecord
}

func (m *memories) record(key proc.ID, change func(*processRecord)) processRecord {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.of[key]
	if change != nil {
		change(&kept)
		m.of[key] = kept
	}
	return kept
}

func (m *memories) removeDead(fs proc.FS) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.of, func(key proc.ID, _ processRecord) bool {
		alive, err := fs.Alive(key.PID, key.Start)
		return err == nil && !alive
	})
}

// maxEvasions is how often that counts as chance: honest processes may do it between judgement and signal.
const maxEvasions = 2

type inspection struct {
	processes    map[snapshot.PID]*snapshot.Process
	gpus         map[snapshot.DeviceIndex]snapshot.GPUUUID // nil if the order names none
	environments func() ([]snapshot.Environment, error)
	devices      func() ([]snapshot.Device, error)
}

// inspect reads which processes use devices now. A process that lives from the opening of its pidfd until after it is
// the one that the driver reports.
func (x *execution) inspect(ctx context.Context) (now *inspection, err error) {
	now = &inspection{
		processes:    make(map[snapshot.PID]*snapshot.Process),
		environments: once(ctx, x.inspector.Environments), devices: once(ctx, x.inspector.Devices),
	}
	if len(x.gpus) > 0 { // first, so that the processes are on these
		if now.gpus, err = x.inspector.GPUs(ctx); err != nil {
			return nil, err
		}
	}
	processes, _, err := x.inspector.Processes(ctx) // its warnings are about other processes
	for i := range processes {
		now.processes[processes[i].PID] = &processes[i]
	}
	return now, err
}

func once[T any](ctx context.Context, read func(context.Context) (T, []string, error)) func() (T, error) {
	return sync.OnceValues(func() (T, error) {
		value, _, err := read(ctx)
		return value, err
	})
}

func (n *inspection) registered(pid snapshot.PID, eid snapshot.EnvID) bool {
	environments, err := n.environments()
	env := snapshot.FindEnvironment(environments, eid)
	return err == nil && env != nil && slices.Contains(env.PIDs, pid)
}

// outside says whether a process is certainly in no environment, whatever the policy says about sudo.
func (n *inspection) outside(seen *snapshot.Process, uid snapshot.UID) bool {
	environments, err := n.environments()
	if err != nil || seen.EnvUnknown {
		return false
	}
	env := snapshot.FindEnvironment(environments, cmp.Or(seen.EID, seen.Inherited))
	return env == nil || env.UID != uid && uid != 0 && env.EID != seen.Inherited
}

const endWithin = 5 * time.Second // how long a process of our own may take to end

// Try starts a helper that reads processes, and ends it as Execute does; nil without helpers.
func (x *Executor) Try() *snapshot.Trial {
	if x.proc().Reader == nil {
		return nil
	}
	t := &snapshot.Trial{}
	err := x.proc().Reader.Try(func(pid snapshot.PID) error {
		r, o := openProcess(x.proc(), pid)
		if o.raised() {
			return fmt.Errorf("a process of its own can't be opened: %s", o.reason)
		}
		defer r.close()
		lacks := r.pidfd == noPidfd || lacksPidfd(unix.PidfdSendSignal(r.pidfd, 0, nil, 0))
		if err := r.signal(unix.SIGKILL); err != nil {
			return fmt.Errorf("a process of its own can't be signalled: %w", err)
		}
		t.NoPidfds = lacks
		own := &target{judged: &snapshot.Process{PID: pid}, outcome: &order.Outcome{}, fd: r}
		left, err := wait(context.Background(), []*target{own}, endWithin, order.StatusKilled)
		if len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("a process of its own didn't end within %s of SIGKILL", endWithin))
		}
		return err
	})
	if err != nil {
		t.Unable = err.Error()
	}
	return t
}
