package smi

import (
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-3119e985/genv/snapshot"
)

// View is what an environment may see.
type View struct {
	// Devices are the attached ones; their indices don't change in the output.
	Devices []Device
	// Owns is whether a process belongs to the environment; nil for none.
	Owns func(snapshot.PID) bool
}

// Device is an attached device.
type Device struct {
	Index    snapshot.DeviceIndex
	Capacity snapshot.Memory // shown as the total where it is less; unknown for none
}

// device finds an attached device by its index as nvidia-smi prints it; nil
// when it isn't attached.
func (v View) device(index string) *Device {
	for i := range v.Devices {
		if v.Devices[i].Index.String() == index {
			return &v.Devices[i]
		}
	}
	return nil
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

// lazily compiles a pattern when it is first used: every start of genv would pay
// for it otherwise.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
