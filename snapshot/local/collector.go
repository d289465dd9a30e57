// Package local collects snapshots of this machine from three sources: nvidia-smi lists the processes on each device,
// /proc identifies them, and the state files contain the registered environments and attachments.
//
//	collector := &local.Collector{SMI: client, StateFiles: store, Now: system.Now}
//	s, err := collector.Snapshot(ctx)
//	if err != nil {
//		return err // the state of this machine is unknown, which does not mean that nothing runs
//	}
//
// If a source fails as a whole, the snapshot fails. What is unknown about a process only marks it, with a warning.
//
// snapshot.Owner says how a process's environment is found: by its registration, its environ, its container, the last
// answer, or its nearest ancestor of the same account.
//
// It reads processes first and the state files last. An environment is registered before anything runs in it: if it is
// missing in the files then, it is not registered. nvidia-smi never runs under the lock of the state files.
//
// The package changes the state files only to register devices, and knows no rules: see package enforce.
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

// SMI is a *nvidiasmi.Querier. If no answer comes in time, one as old as oldest serves.
type SMI interface {
	Apps(ctx context.Context, oldest time.Duration) (nvidiasmi.Usage, error)
	List(ctx context.Context, oldest time.Duration) ([]snapshot.Device, error)
	nvidiasmi.TypeSource
}

// StateFiles is a *disk.Store.
type StateFiles interface {
	// Read returns the state files after a cleanup. With state.ErrNoDevices the environments are valid.
	Read(ctx context.Context) (state.Files, error)
	// RegisterDevices registers devices found by nvidia-smi.
	RegisterDevices(ctx context.Context, found []snapshot.Device) (state.Files, error)
	// Remember stores what root's look found out about processes.
	Remember(ctx context.Context, answers []snapshot.Answer) error
	// Folder identifies the state folder, and says whether root owns the state files; nil if unknown.
	Folder() (id string, owned *bool, err error)
}

// Collector collects snapshots, and caches what rarely changes. Set its fields before use; it is safe for concurrent
// use.
type Collector struct {
	SMI        SMI
	Proc       proc.FS // the zero FS is /proc
	StateFiles StateFiles
	Hardware   hardware.Catalog // published by root; an empty Proc means Proc
	// DeviceListTTL is how long devices are cached, with measurements such as UsedMemory; 0 for never. A process on an
	// unlisted device causes a new list.
	DeviceListTTL time.Duration
	Now           func() time.Time // the clock for the caches
	Brief         bool             // omits Container, Command and StateFolder, which the 1.4.3 format lacks
	// Reservations reads the host's; nil if there are none. An error means unknown.
	Reservations func() ([]snapshot.Reservation, error)
	// Containers is container.Lookup.Look; nil to report only the ids of containers.
	Containers func(context.Context, []container.ContainedProcess) []*snapshot.ContainerInfo
	Types      *nvidiasmi.Types // finds the types of processes; nil leaves them unknown

	mu    sync.Mutex
	cache cache
}

// cache is what one snapshot leaves for the next. Nothing that it refers to changes.
type cache struct {
	devices   *deviceList // nil for none
	processes processCache
	located   map[nvidiasmi.App]snapshot.GPUUUID // MIG instances of processes, by GPU and PID; "" for unknown
	state     []string                           // warnings about the state files
	loaded    map[snapshot.GPUUUID]time.Time     // since when devices compute without a process
	published LastLook                           // by this process
	idle      *snapshot.Snapshot                 // the last look before describeHost, if it found no process
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
