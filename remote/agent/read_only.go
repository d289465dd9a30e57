package agent

import (
	"context"

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
	s, _, err := r.look(ctx, host)
	return s, err
}

// look returns a snapshot and the host's names for the owners of its processes.
func (r readOnly) look(ctx context.Context, host remote.Host) (*snapshot.Snapshot, map[snapshot.UID]snapshot.Username, error) {
	devices, err := r.devices(ctx, host)
	if err != nil {
		return nil, nil, err
	}
	usage, err := smi(ctx, r, host, nvidiasmi.AppsArgs(), nvidiasmi.ParseApps)
	if err != nil {
		return nil, nil, err
	}
	s := &snapshot.Snapshot{Devices: devices}
	byUUID := make(map[snapshot.GPUUUID]snapshot.DeviceIndex)
	for _, d := range devices {
		byUUID[d.UUID] = d.Index
	}
	s.Processes = processesOf(usage.Apps, byUUID)
	return s, r.describe(ctx, host, s.Processes), nil
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

// processesOf gathers what each process uses; a device that is not known is
// left out.
func processesOf(apps []nvidiasmi.App, byUUID map[snapshot.GPUUUID]snapshot.DeviceIndex) []snapshot.Process {
	var list []snapshot.Process
	at := make(map[snapshot.PID]int)
	for _, a := range apps {
		index, known := byUUID[a.GPU]
		if !known {
			continue
		}
		i, seen := at[a.PID]
		if !seen {
			i = len(list)
			at[a.PID] = i
			list = append(list, snapshot.Process{PID: a.PID, EnvUnknown: true})
		}
		if list[i].Uses(index) == nil {
			list[i].Usage = append(list[i].Usage, snapshot.DeviceUsage{Index: index, Memory: a.Memory})
		}
	}
	return list
}
