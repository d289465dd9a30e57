package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const oldestAnswer = time.Minute // of nvidia-smi, if no new one comes in time

// Age limits the age of nvidia-smi's answers.
type Age struct {
	Measured time.Duration // the list of devices, with UsedMemory, Utilization, Temperature and Power
	Oldest   time.Duration // any answer, if no new one comes in time; 0 takes no earlier one
	Until    time.Time     // when to stop waiting; zero for the end of the context
}

// Snapshot collects a snapshot with processes sorted by PID. An error, of nvidiasmi or the context, means that nothing
// is known. If the state files can't be read, attachments are unknown (see Device.Unidentified); for a Brief snapshot,
// which can't express that, it is an error.
func (c *Collector) Snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	return c.SnapshotWithin(ctx, Age{Measured: c.DeviceListTTL})
}

// SnapshotWithin is Snapshot with answers of nvidia-smi as old as age allows.
func (c *Collector) SnapshotWithin(ctx context.Context, age Age) (*snapshot.Snapshot, error) {
	asking := ctx
	if !age.Until.IsZero() {
		var cancel context.CancelFunc
		asking, cancel = context.WithDeadline(ctx, age.Until)
		defer cancel()
	}
	usage, err := c.apps(asking, age.Oldest)
	if err != nil {
		return nil, err
	}
	measured := min(age.Measured, c.DeviceListTTL)
	if usage.Time.Ended.Sub(usage.Time.Began) > time.Second {
		measured /= 2 // get a slow driver's new list before the old one expires
	}
	devices, err := c.devicesFor(asking, &usage, measured, age.Oldest)
	if err != nil {
		return nil, err
	}
	c.locate(asking, age.Oldest, &usage, devices)
	observer, seen, warnings, err := c.observe(ctx, usage, devices, c.cached().processes)
	if err != nil {
		return nil, err
	}
	files, unread := c.readFiles(ctx, devices)
	if unread != nil && (c.Brief || ctx.Err() != nil || !errors.Is(unread, errNoStateFiles)) {
		return nil, unread
	}
	// Without processes, most looks find what the last one did. The cached devices never change.
	idle := len(usage.Apps)+len(usage.NotListed)+len(usage.Warnings)+usage.Lost == 0 && !usage.Time.Late
	if last := c.cached(); idle && last.idle != nil && last.idleList == devices && last.idleFiles.Equal(files.At) {
		s := new(*last.idle)
		c.describeHost(s, &files, true)
		return s, nil
	}
	processes, more := observer.resolve(seen, files, unread)
	if len(observer.answers) > 0 && c.hardware().Root {
		_ = c.StateFiles.Remember(ctx, observer.answers) // otherwise the next look does
	}
	s := &snapshot.Snapshot{
		Processes:    processes,
		Environments: files.Environments,
		Devices: described(files.Devices, devices, slices.Concat(usage.Unreported(devices.toRegister()),
			observer.doubtful(processes), c.unexplained(usage, devices))),
		Warnings: fileWarnings(files),
	}
	if unread != nil {
		s.HideState(unread)
	}
	ofFiles := slices.Clip(s.Warnings)
	s.Warnings = slices.Concat(text.Union(devices.Warnings, usage.Warnings), warnings, observer.unseenWarnings(), more,
		ofFiles)
	s.Bound()
	if c.Types != nil {
		c.Types.Set(asking, s, devices.uuids(), c.Now(), c.SMI, observer.mayDraw)
	}
	c.update(func(kept *cache) {
		kept.processes, kept.state = observer.after, ofFiles
		if kept.idle, kept.idleList, kept.idleFiles = nil, devices, files.At; idle && !files.At.IsZero() {
			kept.idle = new(*s)
		}
	})
	c.describeHost(s, &files, false)
	return s, nil
}

// describeHost adds facts about the host, and publishes the look.
func (c *Collector) describeHost(s *snapshot.Snapshot, files *state.Files, again bool) {
	_, offset := c.Now().Zone()
	s.UTCOffset = &offset
	s.Skew = new(time.Duration) // it is this machine
	if since, err := proc.SinceBoot(); err == nil {
		s.Boot = c.Now().Add(-since)
	}
	s.Warnings = slices.Concat(s.Warnings, dropped(s, files))
	c.publishLook(s, again)
	var err error
	if s.BootID, err = c.Proc.BootID(); err != nil {
		s.Warnings = append(s.Warnings, err.Error())
	}
	if c.Brief {
		return
	}
	c.noteRuns(s)
	first := system.FirstUID()
	s.FirstUID, s.Guard = &first, c.hardware().Guard(c.Now())
	if s.StateFolder, s.Service, err = c.StateFiles.Folder(); err != nil {
		s.Warnings = append(s.Warnings, err.Error())
	}
	if c.Reservations != nil && (s.Service == nil || *s.Service) { // otherwise there are none
		if s.Reservations, err = c.Reservations(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Warnings = append(s.Warnings, "reservations are unknown: "+err.Error())
		}
	}
}

// noteRuns marks the environments of `genv run`.
func (c *Collector) noteRuns(s *snapshot.Snapshot) {
	s.Environments = slices.Clone(s.Environments) // the cached ones must not change
	for i := range s.Environments {
		if e := &s.Environments[i]; len(e.PIDs) == 1 && len(e.KernelIDs) == 0 {
			p, err := c.Proc.Stat(e.PIDs[0])
			e.Runs = err == nil && p.Name == "genv"
		}
	}
}

// described marks doubtful devices: they may have processes that aren't in the snapshot.
func described(registered []snapshot.Device, found *deviceList, doubtful []snapshot.DeviceIndex) []snapshot.Device {
	devices := snapshot.Described(registered, found.toRegister())
	for _, index := range doubtful {
		if d := snapshot.FindDevice(devices, index); d != nil {
			d.ProcessesUnknown = true
		}
	}
	return devices
}

func (o *observer) doubtful(processes []snapshot.Process) (devices []snapshot.DeviceIndex) {
	for i := range o.unseen {
		devices = append(devices, o.unseen[i].Indices()...)
	}
	for i := range processes {
		if processes[i].NodeMissing {
			devices = append(devices, processes[i].Indices()...)
		}
	}
	return devices
}

// unexplained lists devices that computed without a process in two measurements.
func (c *Collector) unexplained(usage nvidiasmi.Usage, l *deviceList) (devices []snapshot.DeviceIndex) {
	const busyPercent = 5 // the utilization above which something computes
	before, after := c.cached().loaded, make(map[snapshot.GPUUUID]time.Time)
	used := usage.GPUs()
	for i := range l.GPUs {
		d := &l.GPUs[i]
		if d.Utilization == nil || *d.Utilization <= busyPercent || slices.Contains(used, d.UUID) {
			continue
		}
		first := cmp.Or(before[d.UUID], l.at)
		if after[d.UUID] = first; first != l.at {
			devices = append(devices, d.Index)
		}
	}
	c.update(func(kept *cache) { kept.loaded = after })
	return devices
}

// Processes is the part of a snapshot for `--type processes`, and its warnings. If the state files can't be read, only
// a process's environ shows its environment. If no process uses a device, it calls nvidia-smi once and doesn't read the
// state files.
//
// It updates the cache, but does not use it: a process that has overwritten its claim would otherwise be judged by the
// old claim, and spared for the new one, in every cycle.
func (c *Collector) Processes(ctx context.Context) ([]snapshot.Process, []string, error) {
	usage, err := c.apps(ctx, 0)
	if err != nil {
		return nil, nil, err
	}
	devices := &deviceList{}
	if len(usage.GPUs()) > 0 || c.hardware().Restricted(c.Now()) {
		devices, err = c.devicesFor(ctx, &usage, c.DeviceListTTL, 0)
	}
	if err != nil {
		return nil, nil, err
	}
	observer, seen, warnings, err := c.observe(ctx, usage, devices,
		processCache{proved: c.cached().processes.proved, unverified: c.cached().processes.claims})
	if err != nil {
		return nil, nil, err
	}
	warnings = append(text.Union(devices.Warnings, usage.Warnings), warnings...)
	var files state.Files
	if len(seen) > 0 {
		files, err = c.StateFiles.Read(ctx)
	}
	if errors.Is(err, state.ErrNoDevices) {
		err = nil
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	processes, more := observer.resolve(seen, files, err)
	c.update(func(kept *cache) { kept.processes = observer.after })
	if err != nil {
		more = append(more, err.Error())
	}
	return processes, append(warnings, more...), nil
}

// Environments is the part of a snapshot for `--type envs`, and its warnings. It never runs nvidia-smi.
func (c *Collector) Environments(ctx context.Context) ([]snapshot.Environment, []string, error) {
	files, err := c.StateFiles.Read(ctx)
	if err != nil && !errors.Is(err, state.ErrNoDevices) {
		return nil, nil, err
	}
	return files.Environments, fileWarnings(files), nil
}

// Devices is the part of a snapshot for `--type devices`, and its warnings. It runs nvidia-smi, by ListDevices, only if
// no devices are registered yet.
func (c *Collector) Devices(ctx context.Context) ([]snapshot.Device, []string, error) {
	files, err := c.StateFiles.Read(ctx)
	if errors.Is(err, state.ErrNoDevices) {
		var found []snapshot.Device
		if found, err = c.ListDevices(ctx); err == nil {
			files, err = c.StateFiles.RegisterDevices(ctx, found)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return files.Devices, fileWarnings(files), nil
}

// readFiles also registers the devices if they differ. Errors about the files wrap errNoStateFiles.
func (c *Collector) readFiles(ctx context.Context, devices *deviceList) (state.Files, error) {
	files, err := c.StateFiles.Read(ctx)
	if err != nil && !errors.Is(err, state.ErrNoDevices) {
		return state.Files{}, fmt.Errorf("%w: %w", errNoStateFiles, err)
	}
	if err == nil && devices.areRegistered(&files) {
		return files, nil
	}
	found, registerErr := c.complete(devices, files.Devices)
	switch {
	case registerErr == nil:
		registered, err := c.StateFiles.RegisterDevices(ctx, found)
		registered.Warnings = text.Union(files.Warnings, registered.Warnings)
		return registered, err
	case err == nil: // more is registered than this process sees
		return files, nil
	}
	return state.Files{}, registerErr
}

// fileWarnings adds environments that the kernel contradicts.
func fileWarnings(files state.Files) []string {
	const maxMismatches = 20 // to name: any user can register thousands
	warnings := slices.Clone(files.Warnings)
	mismatches := 0
	for i := range files.Environments {
		e := &files.Environments[i]
		if !e.OwnerMismatch {
			continue
		}
		if mismatches++; mismatches <= maxMismatches {
			warnings = append(warnings, fmt.Sprintf("environment %s is registered for uid %d (%s), but under "+
				"another name, or for processes of another user",
				text.Shown(string(e.EID)), e.UID, text.Shown(string(e.Username))))
		}
	}
	if more := mismatches - maxMismatches; more > 0 {
		warnings = append(warnings, fmt.Sprintf("the same is true of %d more environments: find out who writes "+
			"them into envs.json", more))
	}
	return warnings
}
