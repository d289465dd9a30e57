package gpus

import (
	"fmt"
	"slices"
)

// Fault is what is wrong with a device; empty for nothing.
type Fault string

// The faults, as drivers from 2021 to 2026 were seen to show them. Of a lost device no process
// is listed.
const (
	Lost        Fault = "lost"         // a line in place of its row, then one of error texts; exit code 15
	LostBetween Fault = "lost-between" // the line alone; exit code 0
	LostStderr  Fault = "lost-stderr"  // the line on stderr; exit code 0
	LostAll     Fault = "lost-all"     // an old driver: the line is the whole answer; exit code 255
	Gap         Fault = "gap"          // neither row nor line
	Drained     Fault = "drained"      // likewise, also in /proc, and the others move up by one index
	OffBus      Fault = "off-bus"      // "[GPU is lost]" as each value but index, UUID and name
	NeedsReset  Fault = "needs-reset"  // "[GPU requires reset]" as what is measured, but 0 MiB are in use
	Partial     Fault = "partial"      // "[Unknown Error]" as what is measured, except for the memory
	Broken      Fault = "broken"       // "[Unknown Error]" as each value but index, UUID and name
)

// listed says whether nvidia-smi has a row of values for the device.
func (d Device) listed() bool {
	return !slices.Contains([]Fault{Lost, LostBetween, LostStderr, LostAll, Gap, Drained}, d.Fault)
}

// Shown is listed, for the templates.
func (d Device) Shown() bool { return d.listed() }

// Listed are the devices that nvidia-smi lists.
func (v view) Listed() []Device {
	return slices.DeleteFunc(slices.Clone(v.Devices), func(d Device) bool { return !d.listed() })
}

// Complaint is the line about a device in place of its row on stdout; empty for none.
func (d Device) Complaint() string {
	switch d.Fault {
	case Lost, LostBetween:
		return fmt.Sprintf("Unable to determine the device handle for GPU%s: Unknown Error\n", d.address())
	case LostAll:
		return fmt.Sprintf("Unable to determine the device handle for GPU %s: Unknown Error\n", d.address())
	}
	return ""
}

// stderr is what an answer has on stderr.
func (v view) stderr() (text string) {
	for _, d := range v.Devices {
		if d.Fault == LostStderr {
			text += fmt.Sprintf("Unable to determine the device handle for GPU%d: %s: Unknown Error\n", d.Index, d.address())
		}
	}
	return text
}

// with is an answer with the lines after it, and its exit code.
func (v view) with(stdout string) (text string, code int) {
	has := func(f Fault) bool { return slices.ContainsFunc(v.Devices, func(d Device) bool { return d.Fault == f }) }
	switch {
	case has(LostAll):
		i := slices.IndexFunc(v.Devices, func(d Device) bool { return d.Fault == LostAll })
		return v.Devices[i].Complaint(), exitUnknown
	case has(Lost):
		code = exitLost
	case len(v.Warnings) > 0:
		code = exitInfoROM
	}
	for _, line := range v.Warnings {
		stdout += line + "\n"
	}
	return stdout, code
}

// spoil replaces values of a row by what a driver says of a device with a fault.
func (d Device) spoil(row map[string]string) {
	measured := []string{"utilization.gpu", "utilization.memory", "temperature.gpu", "power.draw"}
	switch d.Fault {
	case NeedsReset:
		row["memory.used"] = "0"
		set(row, measured, "[GPU requires reset]")
	case Partial:
		set(row, measured, "[Unknown Error]")
	case OffBus:
		set(row, keysOf(row), "[GPU is lost]")
	case Broken:
		set(row, keysOf(row), "[Unknown Error]")
	}
}

func keysOf(row map[string]string) (names []string) {
	for name := range row {
		names = append(names, name)
	}
	return names
}

func set(row map[string]string, names []string, value string) {
	for _, name := range names {
		row[name] = value
	}
}
