package local

import (
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce/local/asked"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Inspector reads which processes use this machine's devices now; the Collector of snapshot/local is one.
type Inspector interface {
	// Processes asks the driver and the state files, never a cache, and adds warnings in plain English. PID, the
	// devices of Usage, EID, Inherited, EnvUnknown and EnvOverwritten are read of each process, nothing else. After an
	// error nothing is signalled.
	Processes(ctx context.Context) (processes []snapshot.Process, warnings []string, err error)
	// Devices reads what is attached from the state files.
	Devices(ctx context.Context) (devices []snapshot.Device, warnings []string, err error)
	// GPUs asks the driver which GPU each device is now.
	GPUs(ctx context.Context) (map[snapshot.DeviceIndex]snapshot.GPUUUID, error)
	// Environments reads the registered environments from the state files.
	Environments(ctx context.Context) (environments []snapshot.Environment, warnings []string, err error)
}

// StateFiles are this machine's state files; *disk.Store is one.
type StateFiles interface {
	// Update passes the content of the state files to change under their lock, and
	// writes what is different afterwards. After an error nothing was written.
	Update(ctx context.Context, change func(*state.Files) error) error
}

// ExecutorOptions configure an Executor. The zero value sends SIGTERM and does not wait, as 1.4.3 does.
type ExecutorOptions struct {
	// Grace is how long processes have to end after SIGTERM if the order doesn't say; 0 to not wait.
	Grace time.Duration
	// Kill sends SIGKILL, even if the order does not ask for it, to what still runs, and still is what was judged,
	// when the grace is over. Without a grace there is no SIGKILL.
	Kill bool
	// KillWait is how long a process has to end after SIGKILL; 0 for order.KillWait.
	KillWait time.Duration
	// Unprotected are names of daemons (such as "nvidia-cuda-mps-server") that may be signalled although they are
	// among safety.Protected, in addition to those of the order.
	Unprotected []string
	// UID is the user that genv runs as. Like all commands, it changes the environments of others as root (0) alone.
	UID snapshot.UID
	// Containers has containers stopped; nil to signal their processes only.
	Containers Containers
	// Asked is the list of the processes that were asked to end; nil to keep none.
	Asked *asked.Register
	// Proc is the proc file system; the zero FS is /proc.
	Proc proc.FS
}

// Executor carries out orders on this machine. It is safe for concurrent use. Use
// the same one in all cycles: it remembers processes between them.
type Executor struct {
	inspector  Inspector
	stateFiles StateFiles
	options    ExecutorOptions
	memories   *memories
	onAction   func(line string)
	onWarning  func(text string)
	asker      asked.Authority
}

// hold keeps other controllers from taking the place of the asker until release is called.
func (x *Executor) hold() (release func(), err error) {
	if x.asker.Hold == nil {
		return func() {}, nil
	}
	return x.asker.Hold()
}

func (x *Executor) proc() proc.FS { return x.options.Proc }

// execution is one order that an Executor carries out.
type execution struct {
	*Executor
	order.Options
	id   string // of the order
	gpus uuids  // of the order
	// attached are the environments that kept a device, see stillAttached.
	attached map[snapshot.EnvID]objection
	// stops are the requests to stop containers, and stopping is their context: they go on when that of the order ends.
	stops    sync.WaitGroup
	stopping context.Context
}
