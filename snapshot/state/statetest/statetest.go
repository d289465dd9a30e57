// Package statetest has what tests of the state files share.
//
//	files := state.Files{Devices: statetest.GPUs(2)}
//	require.NoError(t, statetest.Exclusive(&files))
package statetest

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Exclusive says which device has more attachments than fit.
func Exclusive(f *state.Files) error {
	for _, d := range f.Devices {
		room, whole := d.TotalMemory.Bytes(), 0
		for _, a := range d.Attachments {
			room -= a.GPUMemory.Bytes()
			if !a.GPUMemory.Known() {
				whole++
			}
		}
		if room < 0 || (whole > 0 && len(d.Attachments) > 1) {
			return fmt.Errorf("device %d is attached twice: %v", d.Index, d.Attachments)
		}
	}
	return nil
}

// At is a time of 20 November 2026.
func At(clock string) snapshot.Date {
	d, err := snapshot.ParseDate("20/11/2026 " + clock)
	if err != nil {
		panic(err)
	}
	return d
}

// GPUs are n devices of 80 GiB without attachments.
func GPUs(n int) []snapshot.Device {
	devices := make([]snapshot.Device, n)
	for i := range devices {
		devices[i] = snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MustMemory("81920mi")}
	}
	return devices
}
