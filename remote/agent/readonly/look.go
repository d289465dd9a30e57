// Package readonly looks at a host that has no genv, with nvidia-smi and /proc, as the login and without sudo.
//
//	s, err := readonly.Reading{Runner: client}.Snapshot(ctx, host)
//
// There are no environments on such a host, and the login can't read what its processes
// claim, so every process is unknown: nothing can be judged there, and nothing is done.
package readonly

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Reading runs commands on hosts.
type Reading struct{ remote.Runner }

// Snapshot has no names of users: it is judged, and what others report about such a host
// proves nothing about the user of a process.
func (r Reading) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	s, err := r.Look(ctx, host)
	if err == nil && len(s.Processes) > 0 {
		r.Describe(ctx, host, s.Processes)
	}
	return s, err
}

// Look is what nvidia-smi shows. If that is only that a GPU is lost, root's genv says which there are.
func (r Reading) Look(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	listing, err := r.list(ctx, host)
	if errors.Is(err, nvidiasmi.ErrGPULost) {
		if known := r.Published(ctx, host); len(known) > 0 {
			listing.GPUs, err = hardware.Lost(known, err), nil
		}
	}
	if err != nil {
		return nil, err
	}
	usage, err := smi(ctx, r, host, nvidiasmi.AppsArgs(), nvidiasmi.ParseApps)
	if err != nil {
		return nil, err
	}
	s := &snapshot.Snapshot{Devices: devicesOf(listing)}
	indices := r.indices(ctx, host, s.Devices, &usage)
	s.Processes, s.Warnings = usage.Processes(indices)
	for i := range s.Processes {
		s.Processes[i].EnvUnknown = true
	}
	s.Warnings = slices.Compact(slices.Concat(listing.Warnings, usage.Warnings, s.Warnings))
	markUnreported(s.Devices, usage.NotListed, indices)
	s.Bound()
	s.Warnings = s.Warnings[:min(len(s.Warnings), maxWarnings)]
	for i, w := range s.Warnings {
		s.Warnings[i] = strings.Clone(text.Cut(w, maxWarning))
	}
	return s, nil
}

// What is kept of what a host says for people.
const (
	maxWarnings = 64
	maxWarning  = 4096 // bytes
)

// Devices are the devices of a host, without attachments.
func (r Reading) Devices(ctx context.Context, host remote.Host) ([]snapshot.Device, error) {
	listing, err := r.list(ctx, host)
	return devicesOf(listing), err
}

func (r Reading) list(ctx context.Context, host remote.Host) (nvidiasmi.Listing, error) {
	return new(nvidiasmi.DeviceQuery).Ask(func(args []string, parse nvidiasmi.ParseListing) (nvidiasmi.Listing, error) {
		return smi(ctx, r, host, args, parse)
	})
}

// Details are the details of the GPUs of a host.
func (r Reading) Details(ctx context.Context, host remote.Host) (nvidiasmi.Details, error) {
	return smi(ctx, r, host, nvidiasmi.DetailsArgs(), nvidiasmi.ParseDetails)
}

func devicesOf(listing nvidiasmi.Listing) []snapshot.Device {
	devices := make([]snapshot.Device, len(listing.GPUs))
	for i := range listing.GPUs {
		devices[i] = listing.GPUs[i].Device
	}
	return devices
}

// smi runs nvidia-smi on a host and parses its answer. What it printed is in the error.
func smi[T any](ctx context.Context, r Reading, host remote.Host, args []string,
	parse func(nvidiasmi.RunResult) (T, error),
) (value T, err error) {
	out, err := r.Run(ctx, host, remote.Command{Args: markedSMI(args...)})
	answer, ok := smiAnswer(out)
	switch {
	case ok:
	case err != nil:
		return value, err
	default:
		return value, remote.Errorf(remote.InvalidOutput, "%w: it is cut", nvidiasmi.ErrGarbled)
	}
	if value, err = parse(answer); err == nil {
		return value, nil
	}
	class := remote.CommandFailed
	if errors.Is(err, nvidiasmi.ErrGarbled) {
		class = remote.InvalidOutput
	}
	return value, &remote.Error{Class: class, Err: err}
}

// indices are those of the devices. It also sets the Instances of the devices, which only `nvidia-smi
// -L` lists, and of the processes on them.
func (r Reading) indices(ctx context.Context, host remote.Host, devices []snapshot.Device,
	usage *nvidiasmi.Usage,
) map[snapshot.GPUUUID]snapshot.DeviceIndex {
	indices := make(map[snapshot.GPUUUID]snapshot.DeviceIndex)
	divided := usage.NamesInstance()
	for i := range devices {
		d := &devices[i]
		indices[d.UUID] = d.Index
		divided = divided || d.MIGMode || d.MayBeDivided() && slices.Contains(usage.GPUs(), d.UUID)
	}
	if !divided {
		return indices
	}
	listed, _ := smi(ctx, r, host, nvidiasmi.ListArgs(), nvidiasmi.ParseList) // without it they are unknown
	var details nvidiasmi.Details
	if slices.ContainsFunc(listed, func(d snapshot.Device) bool { return len(d.Instances) > 0 }) {
		details, _ = smi(ctx, r, host, nvidiasmi.DetailsArgs(), nvidiasmi.ParseDetails) // likewise
	}
	for _, d := range listed {
		details.Describe(d.UUID, d.Instances)
		usage.ToParent(d.UUID, d.Instances)
		for i := range usage.Apps {
			if app := &usage.Apps[i]; app.GPU == d.UUID && app.Instance == "" {
				app.Instance = details.Instance(d.UUID, app.PID, d.Instances)
			}
		}
		if known := snapshot.FindDevice(devices, d.Index); known != nil {
			known.Divide(d.Instances)
		}
	}
	return indices
}

// markUnreported marks the devices of which the driver doesn't report the processes: all of
// them, if it says so of one that isn't known.
func markUnreported(devices []snapshot.Device, unreported []snapshot.GPUUUID,
	indices map[snapshot.GPUUUID]snapshot.DeviceIndex,
) {
	for _, gpu := range unreported {
		index, known := indices[gpu]
		for i := range devices {
			if !known || devices[i].Index == index {
				devices[i].ProcessesUnknown = true
			}
		}
	}
}
