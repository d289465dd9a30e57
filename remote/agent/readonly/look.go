// Package readonly looks at a host without genv, with nvidia-smi and /proc, as the login and without sudo.
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

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Reading runs commands on hosts.
type Reading struct{ remote.Runner }

// Snapshot has no user names: what others report about such a host proves nothing about them.
func (r Reading) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	s, err := r.Look(ctx, host)
	if err == nil && len(s.Processes) > 0 {
		r.Describe(ctx, host, s.Processes)
	}
	return s, err
}

// Look is what nvidia-smi shows. If it only says that a GPU is lost, the list of GPUs is that of root's genv.
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

// Bounds of a host's warnings.
const (
	maxWarnings = 64
	maxWarning  = 4096 // bytes
)

// Devices are a host's devices, without attachments.
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

// Details are the details of a host's GPUs.
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

// indices are those of the devices. It also sets the Instances of the devices and their processes, which only
// `nvidia-smi -L` lists.
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

// published prints the devices that root's genv has published. Only root can make a folder in /run.
const published = `d=/run/genv; [ -z "$GENV_ROOT_DIR" ] || d=$GENV_ROOT_DIR/run; cat "$d/devices.json"`

// Published are a host's devices as root sees them; nil if there are none.
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

// ShowsNone says whether a guard lets the login open no device: nvidia-smi(1), RETURN VALUE, 4 and 6.
func ShowsNone(err error) bool {
	failed, ok := errors.AsType[*nvidiasmi.ExitError](err)
	return ok && (failed.ExitCode == 4 || failed.ExitCode == 6)
}

// Renumbered is a look with the devices that root has published, by UUID: where a guard hides some from the login, its
// nvidia-smi counts the others from 0.
func Renumbered(s *snapshot.Snapshot, known []hardware.BusDevice) *snapshot.Snapshot {
	index := map[snapshot.DeviceIndex]snapshot.DeviceIndex{} // by that of the login
	devices := hardware.Devices(known)
	for _, seen := range s.Devices {
		at := slices.IndexFunc(devices, func(d snapshot.Device) bool { return d.UUID == seen.UUID && d.UUID != "" })
		if at < 0 {
			continue
		}
		index[seen.Index] = devices[at].Index
		seen.Index = devices[at].Index
		devices[at] = seen
	}
	renumbered := *s
	renumbered.Devices, renumbered.Processes = devices, nil
	for _, p := range s.Processes {
		var usage []snapshot.DeviceUsage
		for _, u := range p.Usage {
			if to, ok := index[u.Index]; ok {
				usage = append(usage, snapshot.DeviceUsage{Index: to, Memory: u.Memory})
			}
		}
		if p.Usage = usage; len(usage) > 0 {
			renumbered.Processes = append(renumbered.Processes, p)
		}
	}
	if hidden := len(known) - len(index); hidden > 0 {
		renumbered.Warnings = append(slices.Clone(s.Warnings), fmt.Sprintf("nvidia-smi hides %d of %d GPUs from this "+
			"login: whether they are in use is unknown", hidden, len(known)))
	}
	return &renumbered
}

const dataMark = "genv-data" // a line before the data of a program that prints no JSON

// marked prints dataMark on a line of its own and then runs a program.
func marked(args ...string) []string {
	return append([]string{"sh", "-c", `echo; echo "$0"; exec "$@"`, dataMark}, args...)
}

// dataIn is the output after dataMark; all without a mark.
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

// smiAnswer is what nvidia-smi printed; ok is false unless it came to its end.
func smiAnswer(out remote.Output) (answer nvidiasmi.RunResult, ok bool) {
	data := dataIn(out.Stdout)
	end := bytes.LastIndex(data, []byte("\n"+dataMark+" "))
	if end < 0 {
		return answer, false
	}
	code, err := strconv.Atoi(strings.TrimSpace(string(data[end+len(dataMark)+2:])))
	return nvidiasmi.RunResult{Stdout: data[:end], Stderr: out.Stderr, ExitCode: code}, err == nil && code != notFound
}

const notFound = 127 // the exit code of a shell that doesn't find the program
