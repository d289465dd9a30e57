// Package contents has what is in an environment of a host: its processes and attachments,
// looked up by device, how sure it is that a user uses a device, and which processes end
// where too much memory is used; and what is dropped where there is too much to remember. It is pure, and
// applies no rule: that is for package enforce.
//
//	var c contents.Contents
//	c.Add(process)
//	for p := range c.On(0) { … }
package contents

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
	// byDevice are the processes of an environment with many, and attachedTo the
	// attachments: few are faster looked through than indexed.
	byDevice   map[snapshot.DeviceIndex][]*snapshot.Process
	attachedTo map[snapshot.DeviceIndex]bool
}

// Attachment is an attachment together with its device.
type Attachment struct {
	*snapshot.Attachment
	Device *snapshot.Device
}

// few is how much of a list is looked through rather than indexed.
const few = 16

// Attach adds an attachment.
func (c *Contents) Attach(a Attachment) {
	c.Attachments = append(c.Attachments, a)
	if len(c.Attachments) <= few {
		return
	}
	if c.attachedTo == nil {
		c.attachedTo = make(map[snapshot.DeviceIndex]bool)
		for _, before := range c.Attachments {
			c.attachedTo[before.Device.Index] = true
		}
	}
	c.attachedTo[a.Device.Index] = true
}

// Attached reports whether there is an attachment to a device.
func (c *Contents) Attached(index snapshot.DeviceIndex) bool {
	if c.attachedTo != nil {
		return c.attachedTo[index]
	}
	return slices.ContainsFunc(c.Attachments, func(a Attachment) bool { return a.Device.Index == index })
}

// Add adds a process.
func (c *Contents) Add(p *snapshot.Process) {
	c.Processes = append(c.Processes, p)
	switch {
	case c.byDevice != nil:
		c.index(p)
	case len(c.Processes) > few:
		c.byDevice = make(map[snapshot.DeviceIndex][]*snapshot.Process)
		for _, before := range c.Processes {
			c.index(before)
		}
	}
}

func (c *Contents) index(p *snapshot.Process) {
	for _, u := range p.Usage {
		c.byDevice[u.Index] = append(c.byDevice[u.Index], p)
	}
}

// On are the processes on a device.
func (c *Contents) On(index snapshot.DeviceIndex) iter.Seq[*snapshot.Process] {
	return func(yield func(*snapshot.Process) bool) {
		if c.byDevice != nil {
			slices.Values(c.byDevice[index])(yield)
			return
		}
		for _, p := range c.Processes {
			if p.Uses(index) != nil && !yield(p) {
				return
			}
		}
	}
}
