package nvidiasmi

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type sortedOutput struct {
	lines    []string // of stdout without remarks: rows, or the reason of a failure
	lost     []GPU    // whose handle can't be determined
	warnings []string
	out      RunResult
}

// Exit codes of complete answers: a corrupted infoROM is only a warning.
const (
	exitInfoROM = 14
	exitLost    = 15
)

// Split separates remarks from the rest of an output, and says whether it lacks nothing but lost GPUs.
func Split(out RunResult) (rest, remarks []byte, complete bool) {
	a := &sortedOutput{out: out}
	for line := range bytes.Lines(out.Stdout) {
		if a.remark(string(line)) {
			remarks = append(remarks, line...)
		} else {
			rest = append(rest, line...)
		}
	}
	return rest, remarks, a.complete()
}

func (a *sortedOutput) complete() bool {
	return slices.Contains([]int{0, exitInfoROM, exitLost}, a.out.ExitCode)
}

const maxRemarks = 16

func (a *sortedOutput) warn(line string) {
	if line = printed(line); len(a.warnings) < maxRemarks && !slices.Contains(a.warnings, line) {
		a.warnings = append(a.warnings, line)
	}
}

func sortLines(out RunResult) *sortedOutput {
	a := &sortedOutput{out: out}
	for line := range lines(out.Stdout) {
		if !a.remark(line) {
			a.lines = append(a.lines, line)
		}
	}
	for line := range lines(out.Stderr) {
		if !a.remark(line) {
			a.warn(line)
		}
	}
	if !a.complete() {
		a.warn("nvidia-smi exited with " + strconv.Itoa(out.ExitCode))
	}
	return a
}

// remark takes a line about a lost GPU, or a warning.
func (a *sortedOutput) remark(line string) bool {
	line = strings.TrimSpace(line)
	if strings.HasPrefix(line, "WARNING:") {
		a.warn(line)
		return true
	}
	m := lostLine().FindStringSubmatch(line)
	if m == nil {
		return false
	}
	g := GPU{Address: m[2], Device: snapshot.Device{Index: noIndex, Failed: true, Problem: printed(line)}}
	if n, err := strconv.Atoi(m[1] + m[3]); err == nil && n <= maxIndex {
		g.Index = snapshot.DeviceIndex(n)
	}
	same := func(l GPU) bool { return l.Index == g.Index && l.Address == g.Address }
	if len(a.lost) <= maxIndex && !slices.ContainsFunc(a.lost, same) {
		a.lost = append(a.lost, g)
	}
	return true
}

// lostLine is printed in place of a GPU, with its index, its address, or both: "GPU 0000:02:00.0: …",
// "GPU0000:02:00.0: …" or "GPU3: 0000:04:00.0: …".
var lostLine = text.Pattern(`^Unable to determine the device handle for (?i:gpu) ?` +
	`(?:(?:(\d{1,4}): ?)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])|(\d{1,4}):)?`)

const noIndex = -1 // unknown

func (a *sortedOutput) failure() error {
	line, err := diagnose(a.out)
	return &ExitError{Err: err, ExitCode: a.out.ExitCode, Text: line}
}

func diagnose(out RunResult) (line string, err error) {
	first := ""
	for _, stream := range [][]byte{out.Stdout, out.Stderr} {
		for line := range lines(stream) {
			for _, s := range symptoms {
				if strings.Contains(line, s.text) {
					return shown(line), s.err
				}
			}
			if first == "" {
				first = shown(line)
			}
		}
	}
	switch known := exitCodes[out.ExitCode]; {
	case known != nil:
		return first, known
	case out.ExitCode != 0:
		return first, ErrFailed
	}
	return first, ErrGarbled
}

// Errors of nvidia-smi, each with the next step. If nvidia-smi ran and failed, an *ExitError wraps one of them.
var (
	ErrNotInstalled = errors.New("nvidia-smi not found: install the NVIDIA driver, or add the folder of " +
		"nvidia-smi to PATH")
	ErrNoDriver = errors.New("the NVIDIA driver is not loaded: try `modprobe nvidia`, and look at `dmesg` " +
		"if that fails")
	ErrVersionMismatch = errors.New("the NVIDIA driver was updated but the old one is still loaded: reboot, or " +
		"stop the processes that use the GPUs and load the new one")
	ErrNoDevices  = errors.New("the NVIDIA driver finds no GPU: look at `lspci -d 10de:` and `dmesg`")
	ErrGPULost    = errors.New("a GPU has fallen off the bus: look at `dmesg` for Xid, then reset it or reboot")
	ErrPermission = errors.New("nvidia-smi has no permission to use the GPUs: run it as root, or give it " +
		"access to /dev/nvidia*")
	ErrRefused = errors.New("this machine refuses to start nvidia-smi: look at its file mode, and at what restricts " +
		"genv: AppArmor, SELinux, or `Defaults intercept` of sudo " +
		"(`Defaults!/usr/local/bin/genv !intercept` exempts genv)")
	ErrFailed  = errors.New("nvidia-smi failed: run it manually on this machine to see its output")
	ErrTimeout = errors.New("nvidia-smi did not answer in time: the driver may hang (look at `dmesg`); " +
		"with persistence mode (`nvidia-smi -pm 1`) it answers faster")
	ErrHung = errors.New("the GPU or its driver hangs, so that an earlier nvidia-smi does not return: " +
		"look at `dmesg` for Xid; the machine may need a reboot")
	ErrGarbled = errors.New("nvidia-smi printed unexpected output: run it manually on this machine to see it")
)

// ExitError is a failed run of nvidia-smi. It wraps one of the errors above.
type ExitError struct {
	Err      error
	ExitCode int
	Text     string // the output's line with the reason, quoted; may be empty
}

func (e *ExitError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("nvidia-smi exited with %d: %v", e.ExitCode, e.Err)
	}
	return fmt.Sprintf("nvidia-smi exited with %d (%s): %v", e.ExitCode, e.Text, e.Err)
}

func (e *ExitError) Unwrap() error { return e.Err }

// ShowsNone says whether an error means that nvidia-smi shows this user no GPU, as under a guard.
func ShowsNone(err error) bool { return errors.Is(err, ErrNoDevices) || errors.Is(err, ErrPermission) }

var symptoms = []struct {
	text string
	err  error
}{
	{"Driver/library version mismatch", ErrVersionMismatch},
	{"couldn't communicate with the NVIDIA driver", ErrNoDriver},
	{"Driver Not Loaded", ErrNoDriver},
	{"NVML library not found", ErrNotInstalled},
	{"couldn't find libnvidia-ml", ErrNotInstalled},
	{"No supported GPUs were found", ErrNoDevices},
	{"No devices were found", ErrNoDevices},
	{"GPU is lost", ErrGPULost},
	{"Unable to determine the device handle", ErrGPULost},
	{"GPU requires reset", ErrGPULost},
	{"Insufficient Permissions", ErrPermission},
}

// exitCodes has return codes of nvidia-smi(1), for failures without a known text.
var exitCodes = map[int]error{
	4: ErrPermission, 6: ErrNoDevices, 9: ErrNoDriver, 12: ErrNotInstalled, exitLost: ErrGPULost,
	18: ErrVersionMismatch, 127: ErrNotInstalled,
}

func lines(data []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.Lines(string(data)) {
			line = strings.TrimRight(line, "\r\n\t ")
			if line != "" && !yield(line) {
				return
			}
		}
	}
}

// known returns a field's value, or "" if the driver does not report it: "N/A", or any text in brackets.
func known(field string) string {
	field = strings.TrimSpace(field)
	if field == "N/A" || strings.HasPrefix(field, "[") && strings.HasSuffix(field, "]") {
		return ""
	}
	return field
}

// silent has texts that say nothing about a GPU's health.
var silent = []string{
	"N/A", "[N/A]", "[Not Supported]", "[Insufficient Permissions]", "[No Permission]",
	"[Function Not Found]", "[Requested functionality has been deprecated]",
}

type gpuRow struct {
	failed  bool
	errors  []string   // each once
	columns [][]string // those with each error
}

func (r *gpuRow) note(text, column string) {
	i := slices.Index(r.errors, text)
	if i < 0 {
		i = len(r.errors)
		r.errors, r.columns = append(r.errors, text), append(r.columns, nil)
	}
	r.columns[i] = append(r.columns[i], column)
}

// value is known, but notes error texts. A GPU has failed if the text says so, or a vital value is an error text.
func (r *gpuRow) value(column, field string, vital bool) string {
	field = strings.TrimSpace(field)
	if known(field) != "" || field == "" || slices.Contains(silent, field) {
		return known(field)
	}
	r.note(field, column)
	r.failed = r.failed || vital || field == "[GPU is lost]" || field == "[GPU requires reset]"
	return ""
}

func (r *gpuRow) problem() string {
	var parts []string
	for i, error := range r.errors {
		parts = append(parts, strings.Join(r.columns[i], ", ")+": "+printed(strings.Trim(error, "[]")))
	}
	return strings.Join(parts, "; ")
}

// number parses a value from 0 to limit; ok is false for what no GPU can have.
func number(value string, limit int64) (n int64, ok bool) {
	parsed, err := strconv.ParseUint(strings.TrimSpace(value), 10, 63)
	return int64(parsed), err == nil && int64(parsed) <= limit
}

const maxMiB = 1 << 40 // 1 EiB: far more than any device has, and far from an overflow

func (r *gpuRow) memory(column, field string) snapshot.Memory {
	value := r.value(column, field, true)
	if n, ok := number(value, maxMiB); ok {
		return snapshot.MiB(n)
	}
	if value != "" {
		r.note(value, column)
	}
	return snapshot.Memory{}
}

func (r *gpuRow) percent(field string) *int {
	n, ok := number(r.value("utilization", field, false), 100)
	percent := int(n)
	return valueIf(&percent, ok)
}

// celsius may be below zero.
func (r *gpuRow) celsius(field string) *int {
	n, err := strconv.Atoi(r.value("temperature", field, false))
	return valueIf(&n, err == nil && snapshot.CheckTemperature(n) == nil)
}

func (r *gpuRow) watts(column, field string) *float64 {
	w, err := strconv.ParseFloat(r.value(column, field, false), 64)
	return valueIf(&w, err == nil && snapshot.CheckPower(w) == nil)
}

func valueIf[T any](value *T, ok bool) *T {
	if !ok {
		return nil
	}
	return value
}

func (r *gpuRow) uuid(field string) snapshot.GPUUUID {
	value := r.value("UUID", field, true)
	if value != "" && !isUUID(value) {
		r.note(value, "UUID")
		return ""
	}
	return snapshot.GPUUUID(value)
}

// isUUID accepts "GPU-…" and "MIG-…", the latter with slashes in older drivers.
func isUUID(s string) bool {
	return s != "" && len(s) <= 128 && text.IsMadeOf(s, "-_/")
}

const maxShown = 120 // characters of a line of nvidia-smi in an error

func printed(line string) string { return text.OneLine(text.Cut(line, maxShown)) }

func shown(line string) string { return text.Quoted(strings.TrimSpace(line), maxShown) }
