package local

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// deviceList has the devices of this machine. It never changes.
type deviceList struct {
	nvidiasmi.Listing
	index     map[snapshot.GPUUUID]snapshot.DeviceIndex
	unlisted  map[snapshot.GPUUUID]bool // used by processes: nvidia-smi is not called again for these
	hidden    []snapshot.DeviceIndex    // devices that nvidia-smi hides from this process
	contained bool                      // this process is in a container with only some devices
	details   nvidiasmi.Details         // only if there were MIG instances
	machine   snapshot.Memory           // the machine's, if a device shares it
	at        time.Time
}

// readDevices asks nvidia-smi, and attributes usage of MIG instances to devices. It publishes root's list for all
// users.
func (c *Collector) readDevices(ctx context.Context, oldest time.Duration, usage *nvidiasmi.Usage,
) (*deviceList, error) {
	l := &deviceList{at: c.Now()}
	restricted, read := c.hardware().Restricted(l.at), c.readAll
	if restricted {
		read = c.readRestricted
	}
	if err := read(ctx, oldest, l); err != nil {
		return nil, err
	}
	l.index = l.Indices()
	l.details = l.Divide(usage, func() ([]snapshot.Device, error) { return c.SMI.List(ctx, oldest) },
		func() (nvidiasmi.Details, error) { return c.SMI.Details(ctx, oldest) })
	if !restricted {
		_ = c.hardware().Publish(l.toRegister()) // without it, users on a guarded host are told that it is missing
	}
	return l, nil
}

func (c *Collector) readAll(ctx context.Context, oldest time.Duration, l *deviceList) error {
	listing, err := c.SMI.Devices(ctx, oldest)
	driver, unknown := hardware.FromDriver(c.hardware().Proc)
	switch {
	case errors.Is(err, nvidiasmi.ErrGPULost) && len(driver) > 0:
		listing.GPUs = hardware.Lost(driver, err)
	case err != nil:
		return err
	case c.hardware().Root && unknown == nil: // other users may see fewer on purpose
		listing.GPUs = hardware.WithMissing(listing.GPUs, driver)
	}
	l.Listing, l.at = listing, cmp.Or(listing.Time.Began, l.at)
	if slices.ContainsFunc(l.GPUs, func(g nvidiasmi.GPU) bool { return g.Unified }) {
		if kib, err := c.Proc.MemTotal(); err == nil {
			l.machine = snapshot.MachineKiB(kib)
		}
	}
	return nil
}

// devicesFor returns the cached list if it is younger than measured and lacks no device in usage; else a new one.
func (c *Collector) devicesFor(ctx context.Context, usage *nvidiasmi.Usage, measured, oldest time.Duration,
) (*deviceList, error) {
	if l := c.cached().devices; l != nil {
		if usage.ToParents(l.GPUs); !l.lacks(usage) && c.Now().Sub(l.at) < measured {
			return l, nil
		}
	}
	l, err := c.readDevices(ctx, oldest, usage)
	if err != nil {
		return nil, err
	}
	l.unlisted = map[snapshot.GPUUUID]bool{}
	for _, gpu := range usage.GPUs() {
		if _, ok := l.index[gpu]; !ok {
			l.unlisted[gpu] = true
		}
	}
	c.update(func(kept *cache) { kept.devices = l })
	return l, nil
}

// lacks says whether a process may use an unlisted device, or more GPUs are lost.
func (l *deviceList) lacks(usage *nvidiasmi.Usage) bool {
	failed := 0
	for i := range l.GPUs {
		if l.GPUs[i].Failed {
			failed++
		}
	}
	return failed < usage.Lost || slices.ContainsFunc(usage.GPUs(), func(gpu snapshot.GPUUUID) bool {
		_, ok := l.index[gpu]
		return !ok && gpu != "" && !l.unlisted[gpu]
	})
}

// locate finds the MIG instances of processes. It asks nvidia-smi once for new processes.
func (c *Collector) locate(ctx context.Context, oldest time.Duration, usage *nvidiasmi.Usage, l *deviceList) {
	before, after, asked := c.cached().located, make(map[nvidiasmi.App]snapshot.GPUUUID), false
	details := l.details
	usage.Locate(l.GPUs, func(app nvidiasmi.App, instances []snapshot.Instance) snapshot.GPUUUID {
		process := nvidiasmi.App{GPU: app.GPU, PID: app.PID}
		instance, known := before[process]
		if app.Instance != "" {
			instance, known = app.Instance, true
		}
		if !known {
			instance = details.Instance(app.GPU, app.PID, instances)
		}
		if !known && instance == "" && !asked {
			details, _ = c.SMI.Details(ctx, oldest) // without it the instances are unknown
			instance, asked = details.Instance(app.GPU, app.PID, instances), true
		}
		after[process] = instance
		return instance
	})
	c.update(func(kept *cache) { kept.located = after })
}

func (l *deviceList) toRegister() []snapshot.Device {
	found := make([]snapshot.Device, len(l.GPUs))
	for i := range found {
		found[i] = l.device(i)
	}
	return found
}

func (l *deviceList) device(i int) snapshot.Device {
	d := l.GPUs[i].Device
	if d.Unified && l.machine.Known() {
		d.TotalMemory = l.machine
	}
	return d
}

func (l *deviceList) uuids() map[snapshot.DeviceIndex]snapshot.GPUUUID {
	uuids := make(map[snapshot.DeviceIndex]snapshot.GPUUUID, len(l.GPUs))
	for i := range l.GPUs {
		uuids[l.GPUs[i].Index] = l.GPUs[i].UUID
	}
	return uuids
}

// areRegistered says whether exactly these devices are registered, with the UUIDs of root's note if this process keeps
// it. A device of unknown memory can't be registered.
func (l *deviceList) areRegistered(files *state.Files) bool {
	registered := 0
	for i := range l.GPUs {
		d := l.device(i)
		was := snapshot.FindDevice(files.Devices, d.Index)
		if d.TotalMemory.Known() && (was == nil || !was.SameTotal(&d)) ||
			files.KeepsNote && d.UUID != "" && was != nil && was.UUID != d.UUID {
			return false
		}
		if was != nil {
			registered++
		}
	}
	return registered == len(files.Devices)
}
