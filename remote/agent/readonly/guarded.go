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
)

// published prints the devices that root's genv has published on the host. Only root can make a folder in /run.
const published = `d=/run/genv; [ -z "$GENV_ROOT_DIR" ] || d=$GENV_ROOT_DIR/run; cat "$d/devices.json"`

// Published are the devices of a host as root sees them; nil if root's genv has published none.
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

// ShowsNone says whether nvidia-smi failed since a guard lets the login open no device:
// nvidia-smi(1), RETURN VALUE, 4 and 6.
func ShowsNone(err error) bool {
	failed, ok := errors.AsType[*nvidiasmi.ExitError](err)
	return ok && (failed.ExitCode == 4 || failed.ExitCode == 6)
}

// Renumbered is a look with the devices as root sees them, found by UUID: where a guard shows a login only some
// devices, its nvidia-smi counts these from 0. Of the others only what root has published is known.
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

// dataMark is the line before the data of a program that prints no JSON.
const dataMark = "genv-data"

// marked is the command that prints dataMark, on a line of its own, and then runs a program.
func marked(args ...string) []string {
	return append([]string{"sh", "-c", `echo; echo "$0"; exec "$@"`, dataMark}, args...)
}

// dataIn is the output after dataMark; all of it if there is no mark.
func dataIn(output []byte) []byte {
	if _, data, found := bytes.Cut(output, []byte("\n"+dataMark+"\n")); found {
		return data
	}
	return output
}

// markedSMI is marked for nvidia-smi, of which the exit code comes after its output.
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

// notFound is the exit code of a shell that doesn't find the program.
const notFound = 127
