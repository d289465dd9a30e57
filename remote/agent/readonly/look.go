// Package readonly takes snapshots of hosts without genv, by nvidia-smi and /proc, without sudo.
//
//	s, err := readonly.Reading{Runner: client}.Snapshot(ctx, host)
//
// Such a host has no environments, and every process is unknown: nothing is judged there.
package readonly

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Reading runs commands on hosts.
type Reading struct{ remote.Runner }

// Snapshot takes a snapshot without user names, which nothing on such a host proves.
func (r Reading) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	s, err := r.Look(ctx, host, 0)
	if err == nil && len(s.Processes) > 0 {
		r.Describe(ctx, host, s.Processes)
	}
	return s, err
}

// Look returns what nvidia-smi shows of a host with at least so many registered GPUs.
func (r Reading) Look(ctx context.Context, host remote.Host, registered int) (*snapshot.Snapshot, error) {
	listing, hidden, err := r.gpus(ctx, host, registered)
	if err != nil {
		return nil, err
	}
	usage, err := smi(ctx, r, host, nvidiasmi.AppsArgs(), nvidiasmi.ParseApps)
	if err != nil && (len(hidden) == 0 || !nvidiasmi.ShowsNone(err)) {
		return nil, err
	}
	ask := sync.OnceValues(func() (nvidiasmi.Details, error) { return r.Details(ctx, host) })
	listing.Divide(&usage, func() ([]snapshot.Device, error) {
		return smi(ctx, r, host, nvidiasmi.ListArgs(), nvidiasmi.ParseList)
	}, ask)
	usage.Locate(listing.GPUs, func(app nvidiasmi.App, instances []snapshot.Instance) snapshot.GPUUUID {
		if app.Instance == "" {
			details, _ := ask() // after an error the instance is unknown
			app.Instance = details.Instance(app.GPU, app.PID, instances)
		}
		return app.Instance
	})
	s := &snapshot.Snapshot{Devices: devicesOf(listing)}
	s.Processes, s.Warnings = usage.Processes(listing.Indices())
	for i := range s.Processes {
		s.Processes[i].EnvUnknown = true
	}
	s.Warnings = append(text.Union(listing.Warnings, usage.Warnings), slices.Compact(s.Warnings)...)
	for _, index := range usage.Unreported(s.Devices) {
		s.Device(index).ProcessesUnknown = true
	}
	s.Bound()
	s.Warnings = s.Warnings[:min(len(s.Warnings), maxWarnings)]
	for i, w := range s.Warnings {
		s.Warnings[i] = strings.Clone(text.Cut(w, maxWarning))
	}
	return s, nil
}

// gpus lists a host's GPUs. If nvidia-smi only says that one is lost, or a guard hides some from the login, it lists
// those that root's genv has published.
func (r Reading) gpus(ctx context.Context, host remote.Host, registered int,
) (listing nvidiasmi.Listing, hidden []snapshot.DeviceIndex, err error) {
	listing, err = r.list(ctx, host)
	lost := errors.Is(err, nvidiasmi.ErrGPULost)
	if !lost && !nvidiasmi.ShowsNone(err) && (err != nil || len(listing.GPUs) >= registered) {
		return listing, nil, err
	}
	known := r.Published(ctx, host)
	switch {
	case len(known) == 0:
		return listing, nil, err
	case lost:
		listing.GPUs = hardware.Lost(known, err)
		return listing, nil, nil
	}
	listing.GPUs, hidden = hardware.Visible(known, listing.GPUs)
	if len(hidden) > 0 {
		listing.Warnings = append(listing.Warnings, fmt.Sprintf("nvidia-smi hides %d of %d GPUs from this login: "+
			"whether they are in use is unknown", len(hidden), len(known)))
	}
	return listing, hidden, nil
}

const (
	maxWarnings = 64
	maxWarning  = 4096 // bytes
)

// Devices returns a host's devices, without attachments.
func (r Reading) Devices(ctx context.Context, host remote.Host) ([]snapshot.Device, error) {
	listing, err := r.list(ctx, host)
	return devicesOf(listing), err
}

func (r Reading) list(ctx context.Context, host remote.Host) (nvidiasmi.Listing, error) {
	return new(nvidiasmi.DeviceQuery).Ask(func(modes ...string) (nvidiasmi.Listing, error) {
		return smi(ctx, r, host, nvidiasmi.DevicesArgs(modes...),
			func(out nvidiasmi.RunResult) (nvidiasmi.Listing, error) { return nvidiasmi.ParseDevices(out, modes...) })
	})
}

// Details returns the details of a host's GPUs.
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

// published prints the devices that root's genv has published. Only root can make a folder in /run.
const published = `d=/run/genv; [ -z "$GENV_ROOT_DIR" ] || d=$GENV_ROOT_DIR/run; cat "$d/devices.json"`

// Published returns a host's devices as root sees them; nil if none are published.
func (r Reading) Published(ctx context.Context, host remote.Host) []hardware.BusDevice {
	out, err := r.Run(ctx, host, remote.Command{Args: marked("sh", "-c", published)})
	if err != nil {
		return nil
	}
	list, err := hardware.Decode(dataIn(out.Stdout))
	if err != nil {
		return nil
	}
	return list
}

const dataMark = "genv-data" // the line before the output of a program

func marked(args ...string) []string {
	return append([]string{"sh", "-c", `echo; echo "$0"; exec "$@"`, dataMark}, args...)
}

func dataIn(output []byte) []byte {
	if _, data, found := bytes.Cut(output, []byte("\n"+dataMark+"\n")); found {
		return data
	}
	return output
}

// markedSMI is marked for nvidia-smi, with the exit code after the output.
func markedSMI(args ...string) []string {
	return append([]string{
		"sh", "-c",
		`echo; echo "$0"; LC_ALL=C GENV_BYPASS=1 nvidia-smi "$@"; s=$?; echo; echo "$0 $s"; exit $s`, dataMark,
	},
		args...)
}

// smiAnswer is the output of nvidia-smi; ok is false if it is incomplete or nvidia-smi wasn't found.
func smiAnswer(out remote.Output) (answer nvidiasmi.RunResult, ok bool) {
	data := dataIn(out.Stdout)
	end := bytes.LastIndex(data, []byte("\n"+dataMark+" "))
	if end < 0 {
		return answer, false
	}
	code, err := strconv.Atoi(strings.TrimSpace(string(data[end+len(dataMark)+2:])))
	return nvidiasmi.RunResult{Stdout: data[:end], Stderr: out.Stderr, ExitCode: code}, err == nil && code != notFound
}

const notFound = 127 // the shell's exit code for a missing program
