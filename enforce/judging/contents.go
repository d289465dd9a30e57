package judging

import (
	"cmp"
	"iter"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Contents are the processes and attachments of an environment. The zero Contents is empty.
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

// Evidence is how sure it is that a user uses a device.
type Evidence int8

// The kinds of evidence, the weakest first.
const (
	Unused Evidence = iota
	// Reported: a process of root in the user's environment uses it, or a process of a host that doesn't report uids.
	Reported
	// Proven: a process of the user's uid uses it.
	Proven
)

// UseBy says what a process that uses a device proves about its use by uid, the user for whom an environment is
// registered. The process is in that environment, or its environment is unknown.
func UseBy(uid snapshot.UID, p *snapshot.Process) Evidence {
	switch {
	case p.UID == nil || *p.CountedUID() == 0:
		return Reported
	case *p.CountedUID() == uid:
		return Proven
	}
	return Unused
}

// Cost is what losing the devices costs the user for whom the environment is registered: 0 if
// there is nothing to lose, then 1 without processes, and more the better their use is proven.
func (c *Contents) Cost(uid snapshot.UID) int8 {
	if len(c.Attachments) == 0 {
		return 0
	}
	most := Unused
	for _, p := range c.Processes {
		most = max(most, UseBy(uid, p))
	}
	return 1 + int8(most)
}

// Used is what the processes on a device use together, in bytes, and for how many of them the driver reports no figure.
func (c *Contents) Used(index snapshot.DeviceIndex) (used int64, unknown int) {
	for p := range c.On(index) {
		if u := p.Uses(index); u.Memory.Known() {
			used += u.Memory.Bytes()
		} else {
			unknown++
		}
	}
	return used, unknown
}

// Excess is what processes of an environment use of a device beyond its capacity.
type Excess struct {
	Used int64 // in bytes
	// Ending are the processes that end for it; empty if there is no excess.
	Ending []*snapshot.Process
}

// Relieve chooses the processes on a device that end so that the others use at most capacity together.
// Those that end anyway, or that can't be ended, are among them: pending says which. No
// other process ends in their place, and none of which the driver reports no figure.
//
// Any user may start a container for an environment of another one. So processes without a proved user end for the
// excess of all together, and proved ones only for the excess of proved ones.
func (c *Contents) Relieve(index snapshot.DeviceIndex, capacity int64, pending func(*snapshot.Process) bool) (
	proved, unproved Excess,
) {
	bytes := func(p *snapshot.Process) int64 { return p.Uses(index).Memory.Bytes() }
	var own, others []*snapshot.Process
	for p := range c.On(index) {
		if !p.Uses(index).Memory.Known() {
			continue
		}
		unproved.Used += bytes(p)
		if p.StartedByUnknown() {
			others = append(others, p)
			continue
		}
		own = append(own, p)
		proved.Used += bytes(p)
	}
	if proved.Used > capacity {
		proved.Ending = free(own, bytes, proved.Used-capacity, pending)
	}
	if unproved.Used > capacity {
		unproved.Ending = free(others, bytes, unproved.Used-capacity, pending)
	}
	return proved, unproved
}

// Container is the container in which all processes are that end; empty if there is none, or more than one.
func (e Excess) Container() (id string, info *snapshot.ContainerInfo) {
	for i, p := range e.Ending {
		if i > 0 && p.Container != id {
			return "", nil
		}
		id, info = p.Container, p.ContainerInfo.WithoutLabels()
	}
	if info != nil {
		info.Init = false // that is about one process
	}
	return id, info
}

// free chooses processes that free excess bytes together. What is pending counts as
// freed. Then goes the smallest process that alone frees enough; while none does, the
// largest. Ties go to the higher PID, which is most often the younger process.
func free(processes []*snapshot.Process, bytes func(*snapshot.Process) int64, excess int64,
	pending func(*snapshot.Process) bool,
) (ended []*snapshot.Process) {
	var rest []*snapshot.Process
	for _, p := range processes {
		if pending(p) {
			excess -= bytes(p)
			ended = append(ended, p)
		} else {
			rest = append(rest, p)
		}
	}
	slices.SortFunc(rest, func(a, b *snapshot.Process) int { // ascending, and the higher PID first
		return cmp.Or(cmp.Compare(bytes(a), bytes(b)), cmp.Compare(b.PID, a.PID))
	})
	for excess > 0 && len(rest) > 0 {
		enough := min(excess, bytes(rest[len(rest)-1]))
		i := slices.IndexFunc(rest, func(p *snapshot.Process) bool { return bytes(p) >= enough })
		ended = append(ended, rest[i])
		excess -= bytes(rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
	return ended
}
