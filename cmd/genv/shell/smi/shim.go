// Package smi is the shim of nvidia-smi: it runs the real one and shows only one environment's devices and processes. A
// device's total memory is the environment's capacity, and in the table its used memory is that of these processes.
//
// It rewrites the table, -L, --query-gpu and --query-compute-apps. For other calls the real program replaces it, and
// output that it doesn't recognise is shown unchanged. Enforcement doesn't depend on it.
//
//	call, ok := smi.Parse([]string{"--query-gpu=name", "--format=csv"})
//	// run nvidia-smi with call.Args(), then
//	out, ok = call.Rewrite(out, view)
package smi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Shim is one call of nvidia-smi.
type Shim struct {
	Real           string   // its path
	Args           []string // without the program's name
	Environ        []string
	Bypass         bool                 // runs the real program: outside an environment, or by GENV_BYPASS=1
	View           func() (View, error) // called before nvidia-smi runs, for calls that Parse knows
	Stdout, Stderr io.Writer
	Exec           func(path string, argv, environ []string) error // as syscall.Exec, which returns only on failure
}

// Run returns the exit status. Its error means that the real program could not be started.
func (s Shim) Run(ctx context.Context) (status int, err error) {
	call, ok := Parse(s.Args)
	if s.Bypass || !ok {
		return s.handOver()
	}
	view, err := s.View()
	if err != nil {
		_, _ = fmt.Fprintf(s.Stderr, "genv: showing all GPUs of this host: %v\n", err)
		return s.handOver()
	}
	if call.Outside(view) {
		_, err := io.WriteString(s.Stdout, NoDevices)
		return NoDevicesStatus, err
	}
	return s.rewritten(ctx, call, view)
}

func (s Shim) rewritten(ctx context.Context, call CommandLine, view View) (int, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, s.Real, call.Args(view)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = s.Environ, &stdout, &stderr
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		return 0, fmt.Errorf("start %s: %w", s.Real, err)
	}
	rest, remarks, complete := nvidiasmi.Split(nvidiasmi.RunResult{
		Stdout:   stdout.Bytes(),
		ExitCode: cmd.ProcessState.ExitCode(),
	})
	out, ok := call.Rewrite(rest, view)
	switch {
	case complete && ok:
		_, err = s.Stdout.Write(append(out, remarks...))
		_, _ = s.Stderr.Write(stderr.Bytes())
		return shell.ExitStatus(cmd.ProcessState), err
	case call.isQuery():
		return s.handOver() // the output has an additional column
	}
	_, _ = s.Stderr.Write(stderr.Bytes())
	_, err = s.Stdout.Write(stdout.Bytes())
	return shell.ExitStatus(cmd.ProcessState), err
}

func (s Shim) handOver() (int, error) {
	if err := s.Exec(s.Real, append([]string{s.Real}, s.Args...), s.Environ); err != nil {
		return 0, fmt.Errorf("start %s: %w", s.Real, err)
	}
	return 0, nil
}

// Rewrite reduces an output to the view; not ok if the output isn't as expected.
func (c CommandLine) Rewrite(out []byte, v View) ([]byte, bool) {
	var text string
	var ok bool
	switch c.form {
	case "":
		text, ok = rewriteTable(string(out), v)
	case "L":
		text, ok = rewriteList(string(out), v)
	case "format gpus":
		text, ok = c.rewriteCSV(string(out), v.keyColumn(), v.gpuRow)
	case "apps format":
		text, ok = c.rewriteCSV(string(out), "pid", v.appRow)
	}
	if !ok {
		return out, false
	}
	return []byte(text), true
}

// CommandLine is a call whose output can be rewritten.
type CommandLine struct {
	form     string // one of forms
	args     []string
	fields   []string // of a query
	header   bool     // likewise
	selected string   // the operand of -i; empty for none
}

var (
	switches = map[string]string{"-L": "L", "--list-gpus": "L"}
	operands = map[string]string{
		"-i": "i", "--id": "i",
		"--query-gpu": "gpus", "--query-compute-apps": "apps", "--format": "format",
	}
	// forms are nvidia-smi's combinations of flags; each also allows -i.
	forms = []string{"", "L", "format gpus", "apps format"}
)

func (c CommandLine) isQuery() bool { return strings.Contains(c.form, "format") }

// Parse parses the arguments; not ok for a call that is the real program's.
func Parse(args []string) (CommandLine, bool) {
	values := map[string]string{}
	for i := 0; i < len(args); i++ {
		flag, value, joined := strings.Cut(args[i], "=")
		if !joined && flag == "-i" && i+1 < len(args) {
			i++
			value, joined = args[i], true
		}
		known := switches
		if joined {
			known = operands
		}
		key, ok := known[flag]
		if _, twice := values[key]; !ok || twice || joined && value == "" {
			return CommandLine{}, false
		}
		values[key] = value
	}
	selected := values["i"]
	delete(values, "i")
	c := CommandLine{form: strings.Join(slices.Sorted(maps.Keys(values)), " "), args: args, selected: selected}
	ok := slices.Contains(forms, c.form)
	if c.isQuery() {
		options := strings.Split(values["format"], ",")
		c.fields, c.header = strings.Split(values["gpus"]+values["apps"], ","), !slices.Contains(options, "noheader")
		ok = ok && slices.Contains(options, "csv")
	}
	return c, ok
}

// Outside reports whether the call selects a device that isn't in the view. If devices are renumbered, that is so only
// if none of the selected ones is in it.
func (c CommandLine) Outside(v View) bool {
	if v.Renumbered && c.selected != "" {
		return v.uuids(c.selected) == ""
	}
	n, err := strconv.ParseUint(c.selected, 10, 16)
	return err == nil && v.device(strconv.FormatUint(n, 10)) == nil
}

// NoDevices is what nvidia-smi prints, with NoDevicesStatus, if a selection matches no device.
const (
	NoDevices       = "No devices were found\n"
	NoDevicesStatus = 6
)

// Args are for the real program: a query also asks for the column that chooses rows, and if devices are renumbered,
// UUIDs select them.
func (c CommandLine) Args(v View) []string {
	args := slices.Clone(c.args)
	for i, arg := range args {
		switch flag, value, _ := strings.Cut(arg, "="); flag {
		case "--query-gpu":
			args[i] = flag + "=" + v.keyColumn() + "," + value
		case "--query-compute-apps":
			args[i] = flag + "=pid," + value
		case "-i", "--id":
			switch {
			case !v.Renumbered:
			case value != "":
				args[i] = flag + "=" + v.uuids(value)
			case i+1 < len(args):
				args[i+1] = v.uuids(args[i+1])
			}
		}
	}
	return args
}

func (v View) keyColumn() string {
	if v.Renumbered {
		return uuidColumn
	}
	return "index"
}

// uuids replaces indices by UUIDs, and leaves out devices that aren't attached: the real program would take their
// indices as its own numbers.
func (v View) uuids(selection string) string {
	var names []string
	for name := range strings.SplitSeq(selection, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(name), 10, 16)
		switch d := v.device(strconv.FormatUint(n, 10)); {
		case err != nil: // a UUID or an address
			names = append(names, name)
		case d != nil && d.UUID != "":
			names = append(names, string(d.UUID))
		}
	}
	return strings.Join(names, ",")
}

// View is what an environment may see.
type View struct {
	Devices []Device // attached, by index
	// Renumbered means that nvidia-smi may show this user only some devices, numbered from 0, as on a guarded host.
	// Then UUIDs and addresses identify devices, and the output gets their own indices.
	Renumbered bool
	Owns       func(snapshot.PID) bool // whether the environment has a process; nil for none
}

// Device is an attached device.
type Device struct {
	Index    snapshot.DeviceIndex
	UUID     snapshot.GPUUUID // required if Renumbered
	Address  string           // of the PCI bus, in any notation; required if Renumbered
	Capacity snapshot.Memory  // shown as the total if it is less; unknown for none
}

// find finds an attached device by nvidia-smi's number or, if devices are renumbered, by same.
func (v View) find(number string, same func(*Device) bool) *Device {
	if !v.Renumbered {
		return v.device(number)
	}
	return snapshot.Find(v.Devices, same)
}

func named(uuid string) func(*Device) bool {
	return func(d *Device) bool { return d.UUID != "" && string(d.UUID) == uuid }
}

// renumber replaces a number by the device's own index, in the same width if there is room.
func (d *Device) renumber(line string, start, end int) string {
	index := d.Index.String()
	for len(index) > end-start && start > 1 && line[start-1] == ' ' && line[start-2] == ' ' {
		start--
	}
	return line[:start] + padded(index, end-start) + line[end:]
}

func (v View) device(index string) *Device {
	return snapshot.Find(v.Devices, func(d *Device) bool { return d.Index.String() == index })
}

func (v View) owns(pid string) bool {
	n, err := strconv.ParseInt(pid, 10, 32)
	return err == nil && v.Owns != nil && v.Owns(snapshot.PID(n))
}

// total limits a device's total memory in MiB, in the same width.
func (d *Device) total(mib string) string {
	n, err := strconv.ParseInt(mib, 10, 64)
	if err != nil || !d.Capacity.Known() || d.Capacity.Bytes()>>20 >= n {
		return mib
	}
	capacity := strconv.FormatInt(d.Capacity.Bytes()>>20, 10)
	return strings.Repeat(" ", len(mib)-len(capacity)) + capacity
}

var (
	listedGPU = text.Pattern(`^GPU (\d+): (?:.*\(UUID: ([^()]*)\))?`)
	listedMIG = text.Pattern(`^ +MIG `) // of the GPU above it
)

func rewriteList(out string, v View) (string, bool) {
	var kept strings.Builder
	in, found := false, false
	for line := range strings.Lines(out) {
		match := listedGPU().FindStringSubmatch(line)
		switch {
		case match != nil:
			device := v.find(match[1], named(match[2]))
			if in, found = device != nil, true; in && v.Renumbered {
				line = device.renumber(line, len("GPU "), len("GPU ")+len(match[1]))
			}
		case !found || !listedMIG().MatchString(line):
			return "", false
		}
		if in {
			kept.WriteString(line)
		}
	}
	return kept.String(), found
}
