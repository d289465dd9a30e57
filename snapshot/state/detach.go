package state

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Detach ends an environment's attachments to the given devices, or to all of
// them when none is given, and lists the devices it is still attached to. What
// is not attached is no error: it is what was asked for.
func (b *Files) Detach(eid snapshot.EnvID, indices ...snapshot.DeviceIndex) []snapshot.DeviceIndex {
	for i := range b.Devices {
		d := &b.Devices[i]
		if len(indices) == 0 || slices.Contains(indices, d.Index) {
			d.Attachments = without(d.Attachments, func(a snapshot.Attachment) bool { return a.EID == eid })
		}
	}
	return b.AttachedTo(eid)
}
