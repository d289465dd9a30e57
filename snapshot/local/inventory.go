package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ErrIncomplete means that nvidia-smi hides devices from this user, who can't register them.
var ErrIncomplete = errors.New("nvidia-smi shows this user only some of this host's GPUs: `sudo genv usage " +
	"snapshot` registers all of them")

func (c *Collector) hardware() hardware.Catalog {
	s := c.Hardware
	s.Proc = cmp.Or(s.Proc, c.Proc.Root)
	return s
}

// ListDevices lists the devices to register: nvidia-smi's, or root's list for users on a guarded host. The error is
// nvidia-smi's, hardware.ErrNotPublished or ErrIncomplete.
func (c *Collector) ListDevices(ctx context.Context) ([]snapshot.Device, error) {
	if c.hardware().Restricted(c.Now()) {
		return c.published()
	}
	devices, err := c.readDevices(ctx, oldestAnswer, new(nvidiasmi.Usage))
	if err != nil {
		return nil, err
	}
	var registered []snapshot.Device
	if !c.hardware().ListsAll(len(devices.GPUs)) {
		files, err := c.StateFiles.Read(ctx)
		if err != nil && !errors.Is(err, state.ErrNoDevices) {
			return nil, err
		}
		registered = files.Devices
	}
	return c.complete(devices, registered)
}

// complete returns the devices to register. Root keeps the registration of devices that only the driver lists; other
// users get ErrIncomplete.
func (c *Collector) complete(devices *deviceList, registered []snapshot.Device) ([]snapshot.Device, error) {
	source := c.hardware()
	if source.Restricted(c.Now()) {
		return c.published()
	}
	found := devices.toRegister()
	if source.ListsAll(len(found)) {
		return found, nil
	}
	if !source.Root {
		return nil, ErrIncomplete
	}
	for _, d := range registered {
		if snapshot.FindDevice(found, d.Index) == nil {
			found = append(found, snapshot.Device{Index: d.Index, TotalMemory: d.TotalMemory})
		}
	}
	return found, nil
}

// published returns root's list. The driver's /proc folder lacks the memory, without which devices can't be registered.
func (c *Collector) published() ([]snapshot.Device, error) {
	known, err := c.hardware().Known()
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(known, func(d hardware.BusDevice) bool { return d.Bytes != nil }) {
		return nil, hardware.ErrNotPublished
	}
	return hardware.Devices(known), nil
}

// Instances lists the devices with their MIG instances. The error is nvidia-smi's or hardware.ErrNotPublished.
func (c *Collector) Instances(ctx context.Context) ([]snapshot.Device, error) {
	devices, err := c.readDevices(ctx, 0, new(nvidiasmi.Usage))
	if err != nil {
		return nil, err
	}
	return devices.toRegister(), nil
}

// GPUs asks nvidia-smi which GPU each device is, and attributes processes by that from then on.
func (c *Collector) GPUs(ctx context.Context) (map[snapshot.DeviceIndex]snapshot.GPUUUID, error) {
	l, err := c.readDevices(ctx, 0, new(nvidiasmi.Usage))
	if err != nil {
		return nil, err
	}
	c.update(func(kept *cache) { kept.devices = l })
	return l.uuids(), nil
}

func (c *Collector) readRestricted(ctx context.Context, oldest time.Duration, l *deviceList) error {
	known, err := c.hardware().Known()
	if err != nil {
		return err
	}
	seen, err := c.SMI.Devices(ctx, oldest)
	if err != nil && !nvidiasmi.ShowsNone(err) {
		return err
	}
	l.GPUs, l.hidden = hardware.Visible(known, seen.GPUs)
	l.Warnings, l.contained = seen.Warnings, c.hardware().Contained
	return nil
}

func (c *Collector) apps(ctx context.Context, oldest time.Duration) (nvidiasmi.Usage, error) {
	usage, err := c.SMI.Apps(ctx, oldest)
	if err != nil && nvidiasmi.ShowsNone(err) && c.hardware().Restricted(c.Now()) {
		return nvidiasmi.Usage{}, nil
	}
	return usage, err
}

// Hidden lists the devices that nvidia-smi hides from this process.
func (c *Collector) Hidden() []snapshot.DeviceIndex {
	return cmp.Or(c.cached().devices, &deviceList{}).hidden
}

// StateWarnings returns the last snapshot's warnings about the state files.
func (c *Collector) StateWarnings() []string { return c.cached().state }

// HiddenWarning says why the Hidden devices are unknown; empty if there are none.
func (c *Collector) HiddenWarning() string {
	return cmp.Or(c.cached().devices, &deviceList{}).hiddenWarning()
}

func (l *deviceList) hiddenWarning() string {
	words := "a guard hides GPUs %s from this user: whether they are in use is unknown"
	switch {
	case len(l.hidden) == 0:
		return ""
	case l.contained:
		words = "this container doesn't have GPUs %s: whether they are in use is unknown"
	}
	return fmt.Sprintf(words, text.JoinIndices(l.hidden))
}

// LastLook is root's last look at the GPUs, for users whose own look takes too long.
type LastLook struct {
	Schema string     `json:"schema"`
	Time   time.Time  `json:"time"`
	GPUs   []gpus.GPU `json:"gpus"` // without their attachments and processes
}

const lastLookSchema = "genv.last-look/1"

// lastLook is not synced: it is worthless after a crash of the machine.
var lastLook = folder.Note[LastLook]{
	Name: "last-look.json", Max: 1 << 20, Mode: 0o644, Invalid: hardware.ErrGarbled,
	Check: func(l *LastLook) error { return folder.CheckSchema(l.Schema, lastLookSchema) },
}

const (
	lastLookAge  = time.Minute     // of a look that counts
	publishEvery = lastLookAge / 6 // for looks that found nothing new
)

// publishLook stores root's look. Without it, users whose look takes too long get no GPUs.
func (c *Collector) publishLook(s *snapshot.Snapshot, again bool) {
	source, last := c.hardware(), c.cached().published
	recent := c.Now().Sub(last.Time).Abs() < publishEvery
	if !source.Root || source.Run == "" || again && recent {
		return
	}
	found := LastLook{lastLookSchema, c.Now(), gpus.Of(s)}
	for i := range found.GPUs {
		found.GPUs[i].Attached, found.GPUs[i].Processes = nil, nil
	}
	if recent && reflect.DeepEqual(found.GPUs, last.GPUs) {
		return
	}
	if lastLook.Publish(source.Run, found) == nil {
		c.update(func(kept *cache) { kept.published = found })
	}
}

// LastLook returns root's look of the last minute; ok is false without one.
func (c *Collector) LastLook() (l LastLook, ok bool) {
	run := c.hardware().Run
	if run == "" {
		return l, false
	}
	l, err := lastLook.Read(run)
	if err != nil || c.Now().Sub(l.Time) >= lastLookAge {
		return LastLook{}, false
	}
	return l, true
}

// Free lists the GPUs that were free then.
func (l *LastLook) Free() []snapshot.DeviceIndex {
	free := []snapshot.DeviceIndex{}
	for i := range l.GPUs {
		if l.GPUs[i].State == gpus.Free {
			free = append(free, l.GPUs[i].Index)
		}
	}
	return free
}
