package gpus

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// view is what the driver of a host reports at a moment. Its methods are used by
// the templates, too.
type view struct {
	Driver
	Now time.Time
}

func newView(d Driver, now time.Time) view {
	d.Version, d.CUDA = cmp.Or(d.Version, "550.163.01"), cmp.Or(d.CUDA, "12.4")
	return view{d, now}
}

// uuidOf is the UUID under which an app is shown.
func (v view) uuidOf(a App) string {
	if a.UUID != "" {
		return a.UUID
	}
	for _, d := range v.Devices {
		if d.Index == a.Device {
			return d.UUID
		}
	}
	return "[N/A]"
}

// device is the device that an app uses, perhaps through a MIG instance.
func (v view) device(a App) (Device, bool) {
	uuid := v.uuidOf(a)
	for _, d := range v.Devices {
		if d.UUID == uuid || slices.ContainsFunc(d.MIG, func(m MIG) bool { return m.UUID == uuid }) {
			return d, true
		}
	}
	return Device{}, false
}

// On are the apps that use a device.
func (v view) On(d Device) (apps []App) {
	for _, a := range v.Apps {
		if on, ok := v.device(a); ok && on.Index == d.Index {
			apps = append(apps, a)
		}
	}
	return apps
}

// Used is how much of a device's memory its apps use, in MiB.
func (v view) Used(d Device) (total int64) {
	for _, a := range v.On(d) {
		if a.UsedMiB != nil {
			total += *a.UsedMiB
		}
	}
	return total
}

// Free is the rest of the device's memory, in MiB.
func (v view) Free(d Device) int64 { return d.TotalMiB - v.Used(d) }

// Load is the utilization in percent: that of the app that computes most.
func (v view) Load(d Device) int {
	load := 0
	for _, a := range v.On(d) {
		if a.Load == nil {
			return 97
		}
		load = max(load, *a.Load)
	}
	return load
}

func (v view) Celsius(d Device) int { return 31 + v.Load(d)/3 }

func (v view) Watt(d Device) int { return 70 + 5*v.Load(d) }

// BusID is the PCI address of the device.
func (d Device) BusID() string { return fmt.Sprintf("00000000:%02X:00.0", d.place()) }

// MIGMode is "Enabled" or "Disabled".
func (d Device) MIGMode() string {
	if len(d.MIG) > 0 {
		return "Enabled"
	}
	return "Disabled"
}

// amount is a number of MiB with its unit, or unknown if there is none.
func amount(mib *int64, unit, unknown string) string {
	if mib == nil {
		return unknown
	}
	return fmt.Sprint(*mib) + unit
}
