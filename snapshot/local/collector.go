// Package local collects snapshots of the machine on which it runs, from three sources: nvidia-smi lists the processes
// on each device, /proc identifies them, and the state files contain the registered environments and attachments.
//
//	collector := &local.Collector{SMI: client, StateFiles: store, Now: system.Now}
//	s, err := collector.Snapshot(ctx)
//	if err != nil {
//		return err // the state of this machine is unknown, which does not mean that nothing runs
//	}
//
// A source that fails as a whole fails the snapshot. What is unknown about a process only marks it, with a warning.
//
// Which environment a process is in is asked in this order: its registration, its own environ, its container, the last
// answer, and the nearest ancestor of the same account. See snapshot.Owner.
//
// Processes are read first and the state files last. An environment is registered before anything runs in it: one that
// is missing in the files then is not registered. nvidia-smi never runs under the lock of the state files.
//
// The package changes the state files only to register devices. It knows no rules: see package enforce.
package local

import (
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// SMI queries nvidia-smi, as *nvidiasmi.Querier does. If no answer comes in time, one as old as oldest serves.
type SMI interface {
	Apps(ctx context.Context, oldest time.Duration) (nvidiasmi.Usage, error)
	List(ctx context.Context, oldest time.Duration) ([]snapshot.Device, error)
	nvidiasmi.TypeSource
}

// StateFiles are the state files; *disk.Store implements it.
type StateFiles interface {
	// Read returns the contents of the state files after a cleanup. With state.ErrNoDevices the environments are valid.
	Read(ctx context.Context) (state.Files, error)
	// RegisterDevices registers the devices that nvidia-smi found.
	RegisterDevices(ctx context.Context, found []snapshot.Device) (state.Files, error)
	// Remember keeps what root's look found out about processes.
	Remember(ctx context.Context, answers []snapshot.Answer) error
	// Folder identifies the state folder, and says whether root owns the state files; nil if that is unknown.
	Folder() (id string, owned *bool, err error)
}

// Collector collects the snapshots of this machine, and caches what rarely changes. It is safe for concurrent use once
// its exported fields are set.
type Collector struct {
	SMI        SMI
	Proc       proc.FS // the zero FS is /proc
	StateFiles StateFiles
	Hardware   hardware.Catalog // what root has published; its Proc is Proc if it is empty
	// DeviceListTTL is how long devices are cached, with measurements such as UsedMemory; 0 for not at all. If a
	// process uses a device that isn't listed, the list is read at once.
	DeviceListTTL time.Duration
	Now           func() time.Time // the clock for the caches
	Brief         bool             // omits Container, Command and StateFolder, which the 1.4.3 format lacks
	// Reservations reads those of the host; nil where there are none, and an error where they are unknown.
	Reservations func() ([]snapshot.Reservation, error)
	// Containers is container.Lookup.Look; nil to report the ids of containers alone.
	Containers func(context.Context, []container.ContainedProcess) []*snapshot.ContainerInfo
	Types      *nvidiasmi.Types // finds the types of processes; nil leaves them unknown

	mu    sync.Mutex
	cache cache
}

// cache is what one snapshot leaves for the next. Nothing that it refers to changes.
type cache struct {
	devices   *deviceList // nil for none
	processes processCache
	located   map[nvidiasmi.App]snapshot.GPUUUID // the MIG instances that processes use, by GPU and PID; "" for unknown
	state     []string                           // the warnings about the state files
	loaded    map[snapshot.GPUUUID]time.Time     // since when devices have computed without a process
	published LastLook                           // by this process
	idle      *snapshot.Snapshot                 // the last look, without describeHost, if it found no process
	idleList  *deviceList                        // of the last look
	idleFiles time.Time                          // Files.At of the last look
}

func (c *Collector) cached() cache {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cache
}

func (c *Collector) update(change func(*cache)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.cache)
}
