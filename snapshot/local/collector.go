package local

import (
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// SMI is what is needed of nvidia-smi; *nvidiasmi.Client is one.
type SMI interface {
	Apps(ctx context.Context) (nvidiasmi.Usage, error)
	Devices(ctx context.Context) ([]nvidiasmi.GPU, error)
	List(ctx context.Context) ([]nvidiasmi.ListedGPU, error)
}

// StateFiles is what is needed of the state files; *state.Store is one.
type StateFiles interface {
	// Read returns what the state files hold without what is dead. With state.ErrNoDevices
	// the environments are valid all the same.
	Read(ctx context.Context) (state.Files, error)
	// RegisterDevices registers the devices that nvidia-smi found.
	RegisterDevices(ctx context.Context, found []snapshot.Device) (state.Files, error)
	// Reattach attaches environments to devices again, after a restoration.
	Reattach(ctx context.Context, uses map[snapshot.EnvID][]snapshot.DeviceIndex) (state.Files, error)
}

// Machine is this machine. Its exported fields are set before its first use;
// then it is safe for concurrent use. It remembers what need not be asked
// again, so one that is kept does less work for the second snapshot.
type Collector struct {
	SMI        SMI
	Proc       proc.FS // the zero FS is /proc
	StateFiles StateFiles
	// DeviceListTTL is for how long a list of devices is used again before
	// nvidia-smi is asked again; 0 asks for every snapshot. UsedMemory and
	// Utilization are as old as that list. A process on a device that is not
	// on it makes nvidia-smi be asked at once.
	DeviceListTTL time.Duration
	// Now is the clock for what is remembered; nil means time.Now.
	Now func() time.Time
	// Brief leaves out the Container and the Command of processes, and the
	// MachineID and StateFolder, for which the 1.4.3 format has no room.
	Brief bool
	// MachineIDFile is where the machine's id is; empty for /etc/machine-id.
	MachineIDFile string

	mu     sync.Mutex
	memory memory
}

// memory is what a snapshot learned that the next one need not ask again.
// Nothing that it refers to changes once it is remembered.
type memory struct {
	inventory *inventory // nil for none
	processes knowledge
	machineID *string // nil until it is first asked for
}

func (c *Collector) remembered() memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory
}

func (c *Collector) rememberDevices(inv *inventory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory.inventory = inv
}

func (c *Collector) rememberProcesses(k knowledge) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory.processes = k
}

func (c *Collector) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}
