package smi

import (
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// View is what an environment may see.
type View struct {
	// Devices are the attached ones; their indices don't change in the output.
	Devices []Device
	// Renumbered says that nvidia-smi may show this user only some devices, numbered from 0, as on a guarded host: then
	// they are known by their UUIDs and addresses alone, and shown with their own indices.
	Renumbered bool
	// Owns is whether a process belongs to the environment; nil for none.
	Owns func(snapshot.PID) bool
}

// Device is an attached device.
type Device struct {
	Index    snapshot.DeviceIndex
	UUID     snapshot.GPUUUID // where Renumbered, likewise
	Address  string           // of the PCI bus, in any notation
	Capacity snapshot.Memory  // shown as the total where it is less; unknown for none
}

// find finds an attached device of which nvidia-smi prints the number and, where numbers
// mean nothing, something else; nil when it isn't attached.
func (v View) find(number string, same func(*Device) bool) *Device {
	if !v.Renumbered {
		return v.device(number)
	}
	return v.first(same)
}

func (v View) first(is func(*Device) bool) *Device {
	for i := range v.Devices {
		if is(&v.Devices[i]) {
			return &v.Devices[i]
		}
	}
	return nil
}

// at says whether a device is the one at an address of the bus.
func at(address string) func(*Device) bool {
	return func(d *Device) bool { return hardware.SameAddress(d.Address, address) }
}

// named says whether a device is the one with a UUID.
func named(uuid string) func(*Device) bool {
	return func(d *Device) bool { return d.UUID != "" && string(d.UUID) == uuid }
}

// renumber writes a device's own index over the number in a part of a line, in the same
// width unless there is no room for it.
func (d *Device) renumber(line string, start, end int) string {
	index := d.Index.String()
	for len(index) > end-start && start > 1 && line[start-1] == ' ' && line[start-2] == ' ' {
		start--
	}
	return line[:start] + padded(index, end-start) + line[end:]
}

// device finds an attached device by its index; nil when it isn't attached.
func (v View) device(index string) *Device {
	return v.first(func(d *Device) bool { return d.Index.String() == index })
}

func (v View) owns(pid string) bool {
	n, err := strconv.ParseInt(pid, 10, 32)
	return err == nil && v.Owns != nil && v.Owns(snapshot.PID(n))
}

// total replaces a device's total memory in MiB, in the same width.
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
	listedMIG = text.Pattern(`^ +MIG `) // an instance of the GPU above it
)

// rewriteList keeps the attached devices of -L, with their MIG instances.
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
