package snapshot

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Instance is a part of a device that works as a device of its own (MIG).
type Instance struct {
	UUID    GPUUUID `json:"uuid"`              // "MIG-…"
	Profile string  `json:"profile,omitempty"` // such as "1g.10gb"; empty if it is unknown
	// Total is its memory, and Pool the GPU instance of that: instances with the same one share it. Unknown and empty
	// if not reported.
	Total Memory `json:"total_memory,omitzero"`
	Pool  string `json:"pool,omitempty"`
}

// MayBeDivided says whether the device may have MIG instances: the driver measures no utilization of such a device.
func (d *Device) MayBeDivided() bool {
	return d.MIGMode || d.Utilization == nil && d.UsedMemory.Known() && !d.Failed
}

// Divide sets all MIG instances of the device. The MIG mode outlives a reboot, and the instances don't.
func (d *Device) Divide(instances []Instance) {
	d.Instances = instances
	if d.MIGMode && len(instances) == 0 && d.Unusable == "" {
		d.Unusable = "it is in MIG mode and has no instance"
	}
}

// Memory is how much memory it has at most, by its profile (`nvidia-smi -L`). Total counts only without one: it is from
// the list of processes, where a process's name could make it smaller.
func (i Instance) Memory() Memory {
	for part := range strings.SplitSeq(i.Profile, ".") {
		size, _, _ := strings.Cut(part, "+") // as in 1g.10gb+me
		if digits, isSize := strings.CutSuffix(size, "gb"); isSize {
			if gib, err := strconv.ParseUint(digits, 10, 16); err == nil && gib > 0 {
				return MiB(int64(gib) << 10)
			}
		}
	}
	return i.Total
}

// maxInstances is far above the 7 GPU instances with 7 compute instances of a device.
const maxInstances = 64 * maxDevices

// CheckInstance returns an error, which wraps ErrInvalid, unless a text can be the UUID of a MIG instance.
func CheckInstance(uuid GPUUUID) error {
	if !strings.HasPrefix(string(uuid), "MIG-") || len(uuid) > 128 || !text.IsMadeOf(string(uuid), "-/") {
		return fmt.Errorf("%w: %s is not the UUID of a MIG instance", ErrInvalid, text.Quoted(string(uuid), 80))
	}
	return nil
}

// CheckInstances is CheckInstance for a list, which must not be too long.
func CheckInstances(list []GPUUUID) error {
	if len(list) > maxInstances {
		return tooMany(len(list), "MIG instances", maxInstances)
	}
	for _, uuid := range list {
		if err := CheckInstance(uuid); err != nil {
			return err
		}
	}
	return nil
}
