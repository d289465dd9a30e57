package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// readOnly looks at a host that has no genv, with nvidia-smi and /proc, as the
// login and without sudo. There are no environments on such a host and the login
// can't read what its processes claim, so every process is unknown: nothing can
// be judged there, and nothing is done.
type readOnly struct{ remote.Runner }

func (readOnly) via() Via          { return ViaReadOnly }
func (readOnly) can() Capabilities { return Capabilities{Snapshot: true, Parallel: true} }
func (readOnly) notify(context.Context, []Message) ([]int, error) {
	return nil, ErrCannotNotify
}
func (readOnly) close() {}

func (readOnly) Execute(_ context.Context, host remote.Host, _ enforce.Report) (Execution, error) {
	return Execution{}, remote.Errorf(remote.GenvMissing, "there is no genv on %s, so it is only read", host.Name)
}

// Snapshot has no names of users: it is judged, and what others report about such a host
// proves nothing about whose a process is.
func (r readOnly) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	s, err := r.look(ctx, host)
	if err == nil && len(s.Processes) > 0 {
		r.describe(ctx, host, s.Processes)
	}
	return s, err
}

// look is what nvidia-smi shows.
func (r readOnly) look(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	devices, err := r.devices(ctx, host)
	if err != nil {
		return nil, err
	}
	usage, err := smi(ctx, r, host, nvidiasmi.AppsArgs(), nvidiasmi.ParseApps)
	if err != nil {
		return nil, err
	}
	s := &snapshot.Snapshot{Devices: devices}
	s.Processes, s.Warnings = processesOf(usage, r.indices(ctx, host, devices, usage.Apps))
	s.Warnings = bounded(s.Warnings, maxWarnings)
	return s, nil
}

// devices are the devices of a host, without attachments.
func (r readOnly) devices(ctx context.Context, host remote.Host) ([]snapshot.Device, error) {
	found, err := smi(ctx, r, host, nvidiasmi.DevicesArgs(), nvidiasmi.ParseDevices)
	if err != nil {
		return nil, err
	}
	devices := make([]snapshot.Device, len(found))
	for i := range found {
		devices[i] = found[i].Device()
	}
	return devices, nil
}

// smi runs nvidia-smi on a host and parses its output.
func smi[T any](ctx context.Context, r readOnly, host remote.Host, args []string, parse func([]byte) (T, error)) (value T, err error) {
	out, err := r.Run(ctx, host, remote.Command{Args: marked(append([]string{"env", "LC_ALL=C", "GENV_BYPASS=1", "nvidia-smi"}, args...)...)})
	if err != nil {
		return value, err
	}
	if value, err = parse(dataIn(out.Stdout)); err != nil {
		return value, &remote.Error{Class: remote.InvalidOutput, Err: err}
	}
	return value, nil
}

// indices are those of the devices and, if processes use any, of the devices' MIG instances,
// which only `nvidia-smi -L` lists. What it doesn't list is left out.
func (r readOnly) indices(ctx context.Context, host remote.Host, devices []snapshot.Device, apps []nvidiasmi.App) map[snapshot.GPUUUID]snapshot.DeviceIndex {
	indices := make(map[snapshot.GPUUUID]snapshot.DeviceIndex)
	for _, d := range devices {
		indices[d.UUID] = d.Index
	}
	lacks := func(a nvidiasmi.App) bool { _, known := indices[a.GPU]; return !known }
	if !slices.ContainsFunc(apps, lacks) {
		return indices
	}
	listed, _ := smi(ctx, r, host, nvidiasmi.ListArgs(), nvidiasmi.ParseList) // without it they are not attributed
	for _, d := range listed {
		for _, instance := range d.MIG {
			indices[instance] = d.Index
		}
	}
	return indices
}

// processesOf gathers what each process uses. What can't be attributed to a device is a
// warning.
func processesOf(usage nvidiasmi.Usage, indices map[snapshot.GPUUUID]snapshot.DeviceIndex) (list []snapshot.Process, warnings []string) {
	for _, gpu := range usage.NotListed {
		warnings = append(warnings, fmt.Sprintf("the driver does not report which processes use %s: there may be any", cmp.Or(gpu, "a device")))
	}
	at, counted := make(map[snapshot.PID]int), make(map[nvidiasmi.App]bool)
	for _, a := range usage.Apps {
		index, known := indices[a.GPU]
		if !known {
			warnings = append(warnings, fmt.Sprintf("process %d uses %s, which nvidia-smi does not list: it is attributed to no device", a.PID, cmp.Or(a.GPU, "a device without an id")))
			continue
		}
		i, seen := at[a.PID]
		if !seen {
			i = len(list)
			at[a.PID] = i
			list = append(list, snapshot.Process{PID: a.PID, EnvUnknown: true})
		}
		once := nvidiasmi.App{GPU: a.GPU, PID: a.PID}
		if used := list[i].Uses(index); used == nil {
			list[i].Usage = append(list[i].Usage, snapshot.DeviceUsage{Index: index, Memory: a.Memory})
		} else if !counted[once] { // another MIG instance of the device
			used.Memory = sum(used.Memory, a.Memory)
		}
		counted[once] = true
	}
	return list, warnings
}

// sum adds amounts of whole MiB, as nvidia-smi prints them. The sum with an unknown amount
// is unknown.
func sum(a, b snapshot.Memory) snapshot.Memory {
	if !a.Known() || !b.Known() {
		return snapshot.Memory{}
	}
	return snapshot.MiB(a.Bytes()>>20 + b.Bytes()>>20)
}
