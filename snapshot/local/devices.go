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

// deviceList is the devices of this machine. It is not changed after its creation.
type deviceList struct {
	devices   []nvidiasmi.GPU
	index     map[snapshot.GPUUUID]snapshot.DeviceIndex
	unlisted  map[snapshot.GPUUUID]bool // that processes use: nvidia-smi is not called again for these
	hidden    []snapshot.DeviceIndex    // the devices of which nvidia-smi shows this process nothing
	contained bool                      // this process is in a container that has only some devices
	details   nvidiasmi.Details         // asked for when there were MIG instances
	warnings  []string
	machine   snapshot.Memory // of the machine, where a device shares it
	at        time.Time
}

func newDeviceList(listing nvidiasmi.Listing, at time.Time) *deviceList {
	l := &deviceList{
		devices: listing.GPUs, warnings: listing.Warnings, at: at,
		index: make(map[snapshot.GPUUUID]snapshot.DeviceIndex, len(listing.GPUs)),
	}
	for _, d := range l.devices {
		if d.UUID != "" {
			l.index[d.UUID] = d.Index
		}
	}
	return l
}

// readDevices asks nvidia-smi. What root's nvidia-smi lists is published for all users.
func (c *Collector) readDevices(ctx context.Context, oldest time.Duration) (*deviceList, error) {
	at := c.Now()
	if c.hardware().Restricted(at) {
		return c.readRestricted(ctx, oldest, at)
	}
	listing, err := c.SMI.Devices(ctx, oldest)
	driver, unknown := hardware.FromDriver(c.hardware().Proc)
	switch {
	case errors.Is(err, nvidiasmi.ErrGPULost) && len(driver) > 0:
		listing.GPUs = hardware.Lost(driver, err)
	case err != nil:
		return nil, err
	case c.hardware().Root && unknown == nil: // other users may be shown fewer on purpose
		listing.GPUs = hardware.WithMissing(listing.GPUs, driver)
	}
	l := newDeviceList(listing, cmp.Or(listing.Time.Began, at))
	if slices.ContainsFunc(l.devices, func(g nvidiasmi.GPU) bool { return g.Unified }) {
		if kib, err := c.Proc.MemTotal(); err == nil {
			l.machine = snapshot.MachineKiB(kib)
		}
	}
	if slices.ContainsFunc(l.devices, func(g nvidiasmi.GPU) bool { return g.MayBeDivided() }) {
		c.addInstances(ctx, oldest, l)
	}
	_, _ = c.hardware().Publish(l.toRegister()) // without it, a user on a guarded host is told that it is missing
	return l, nil
}

// devicesFor returns the cached list if it is younger than measured and has every device in usage that nvidia-smi
// knows; else a new one.
func (c *Collector) devicesFor(ctx context.Context, usage *nvidiasmi.Usage, measured, oldest time.Duration,
) (*deviceList, error) {
	if l := c.cached().devices; l != nil {
		if l.toParents(usage); !l.lacks(usage) && c.Now().Sub(l.at) < measured {
			return l, nil
		}
	}
	l, err := c.readDevices(ctx, oldest)
	if err != nil {
		return nil, err
	}
	if l.toParents(usage); usage.NamesInstance() {
		c.addInstances(ctx, oldest, l)
		l.toParents(usage)
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

// toParents attributes what uses MIG instances to their devices.
func (l *deviceList) toParents(usage *nvidiasmi.Usage) {
	for i := range l.devices {
		usage.ToParent(l.devices[i].UUID, l.devices[i].Instances)
	}
}

// lacks says whether a process may use a device that isn't listed, or more GPUs are lost than listed.
func (l *deviceList) lacks(usage *nvidiasmi.Usage) bool {
	failed := 0
	for i := range l.devices {
		if l.devices[i].Failed {
			failed++
		}
	}
	return failed < usage.Lost || slices.ContainsFunc(usage.GPUs(), func(gpu snapshot.GPUUUID) bool {
		_, ok := l.index[gpu]
		return !ok && gpu != "" && !l.unlisted[gpu]
	})
}

// addInstances adds the MIG instances of each device, which only `nvidia-smi -L` lists.
func (c *Collector) addInstances(ctx context.Context, oldest time.Duration, l *deviceList) {
	listed, _ := c.SMI.List(ctx, oldest) // without it a device is as others, and whose its instances are isn't known
	if slices.ContainsFunc(listed, func(d snapshot.Device) bool { return len(d.Instances) > 0 }) {
		l.details, _ = c.SMI.Details(ctx, oldest) // without it their memory is what the profiles say
	}
	for _, d := range listed {
		index, known := l.index[d.UUID] // nvidia-smi may number the devices that it shows us differently
		if !known && len(l.hidden) > 0 {
			continue
		}
		if !known {
			index = d.Index
		}
		l.details.Describe(d.UUID, d.Instances)
		if i := slices.IndexFunc(l.devices, func(g nvidiasmi.GPU) bool { return g.Index == index }); i >= 0 {
			l.devices[i].Divide(d.Instances)
		}
	}
}

// locate finds out which MIG instances processes use. nvidia-smi is asked once for new processes.
func (c *Collector) locate(ctx context.Context, oldest time.Duration, usage *nvidiasmi.Usage, l *deviceList) {
	before, after, asked := c.cached().located, make(map[nvidiasmi.App]snapshot.GPUUUID), false
	details := l.details
	for i := range usage.Apps {
		app := &usage.Apps[i]
		at := slices.IndexFunc(l.devices, func(g nvidiasmi.GPU) bool {
			return g.UUID == app.GPU && len(g.Instances) > 0
		})
		if at < 0 {
			continue
		}
		process := nvidiasmi.App{GPU: app.GPU, PID: app.PID}
		instance, known := before[process]
		if app.Instance != "" {
			instance, known = app.Instance, true
		}
		if !known {
			instance = details.Instance(app.GPU, app.PID, l.devices[at].Instances)
		}
		if !known && instance == "" && !asked {
			details, _ = c.SMI.Details(ctx, oldest) // without it the instances are unknown
			instance, asked = details.Instance(app.GPU, app.PID, l.devices[at].Instances), true
		}
		app.Instance, after[process] = instance, instance
	}
	c.update(func(kept *cache) { kept.located = after })
}

func (l *deviceList) toRegister() []snapshot.Device {
	found := make([]snapshot.Device, 0, len(l.devices))
	for _, g := range l.devices {
		d := g.Device
		if d.Unified && l.machine.Known() {
			d.TotalMemory = l.machine
		}
		found = append(found, d)
	}
	return found
}

func (l *deviceList) uuids() map[snapshot.DeviceIndex]snapshot.GPUUUID {
	uuids := make(map[snapshot.DeviceIndex]snapshot.GPUUUID, len(l.devices))
	for i := range l.devices {
		uuids[l.devices[i].Index] = l.devices[i].UUID
	}
	return uuids
}

// areRegistered says whether exactly these devices are registered, and as the GPUs of root's note if this process keeps
// it. A device of unknown memory can't be registered.
func (l *deviceList) areRegistered(files *state.Files) bool {
	left := make(map[snapshot.DeviceIndex]*snapshot.Device, len(files.Devices))
	for i := range files.Devices {
		left[files.Devices[i].Index] = &files.Devices[i]
	}
	for _, d := range l.toRegister() {
		was := left[d.Index]
		if d.TotalMemory.Known() && (was == nil || !was.SameTotal(&d)) ||
			files.KeepsNote && d.UUID != "" && was != nil && was.UUID != d.UUID {
			return false
		}
		delete(left, d.Index)
	}
	return len(left) == 0
}
