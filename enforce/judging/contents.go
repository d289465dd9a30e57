package judging

import (
	"iter"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Contents are the processes and attachments of an environment. The zero Contents is
// empty.
type Contents struct {
	Processes   []*snapshot.Process
	Attachments []Attachment
}

// Attachment is an attachment together with its device.
type Attachment struct {
	*snapshot.Attachment
	Device *snapshot.Device
}

// Attached reports whether there is an attachment to a device.
func (c *Contents) Attached(index snapshot.DeviceIndex) bool {
	return slices.ContainsFunc(c.Attachments, func(a Attachment) bool { return a.Device.Index == index })
}

// On are the processes on a device.
func (c *Contents) On(index snapshot.DeviceIndex) iter.Seq[*snapshot.Process] {
	return func(yield func(*snapshot.Process) bool) {
		for _, p := range c.Processes {
			if p.Uses(index) != nil && !yield(p) {
				return
			}
		}
	}
}
