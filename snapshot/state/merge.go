package state

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// MergeDevices brings the registered devices in line with those that nvidia-smi found:
// new ones are added, total memory is corrected, and attachments stay. A device
// that is no longer found is dropped, unless an environment is attached to it:
// then it stays, and a note says so. It returns the notes, one line each.
//
// Only a complete answer of nvidia-smi may be merged: one that failed is not a
// host without devices.
func (b *Files) MergeDevices(found []snapshot.Device) (notes []string) {
	kept := make([]snapshot.Device, 0, len(found))
	for _, d := range b.Devices {
		now := snapshot.FindDevice(found, d.Index)
		switch {
		case now != nil && now.TotalMemory.Known():
			d.TotalMemory = sameMemory(d.TotalMemory, now.TotalMemory)
		case now == nil && len(d.Attachments) == 0:
			continue
		case now == nil:
			notes = append(notes, fmt.Sprintf("device %d is attached to %d environments but nvidia-smi no longer shows it",
				d.Index, len(d.Attachments)))
		}
		kept = append(kept, d)
	}
	for _, d := range found {
		switch {
		case b.Device(d.Index) != nil:
		case d.TotalMemory.Known():
			kept = append(kept, snapshot.Device{Index: d.Index, TotalMemory: d.TotalMemory})
		default:
			notes = append(notes, fmt.Sprintf("device %d is not registered: nvidia-smi does not tell its memory", d.Index))
		}
	}
	slices.SortFunc(kept, func(x, y snapshot.Device) int { return cmp.Compare(x.Index, y.Index) })
	b.Devices = kept
	return notes
}

// sameMemory keeps the old spelling when the amount is the same.
func sameMemory(old, found snapshot.Memory) snapshot.Memory {
	if old.Bytes() == found.Bytes() {
		return old
	}
	return found
}
