package gpus

import (
	"crypto/sha256"
	"fmt"
)

// uuid makes a device's UUID from a text and its index, in NVIDIA's form.
func uuid(seed string, index int) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%s/%d", seed, index))
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// busID is the PCI address that the device of an index seems to have.
func busID(index int) string { return fmt.Sprintf("00000000:%02X:00.0", index+1) }

// uuidOf is the UUID under which an app shows.
func (h Host) uuidOf(a App) string {
	if a.UUID != "" {
		return a.UUID
	}
	for _, d := range h.Devices {
		if d.Index == a.Device {
			return d.UUID
		}
	}
	return "[N/A]"
}

// device is the device that an app runs on, also by way of a MIG instance.
func (h Host) device(a App) (Device, bool) {
	uuid := h.uuidOf(a)
	for _, d := range h.Devices {
		if d.UUID == uuid {
			return d, true
		}
		for _, m := range d.MIG {
			if m.UUID == uuid {
				return d, true
			}
		}
	}
	return Device{}, false
}

// used is the memory of a device that its apps hold.
func (h Host) used(d Device) int64 {
	var total int64
	for _, a := range h.Apps {
		if on, ok := h.device(a); ok && on.Index == d.Index && a.UsedMiB != nil {
			total += *a.UsedMiB
		}
	}
	return total
}

// busy says whether any app runs on a device.
func (h Host) busy(d Device) bool {
	for _, a := range h.Apps {
		if on, ok := h.device(a); ok && on.Index == d.Index {
			return true
		}
	}
	return false
}
