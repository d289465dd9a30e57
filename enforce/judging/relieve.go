package judging

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Used is what the processes on a device use together, in bytes, and for how many of them the
// driver reports no figure.
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
		if p.Unproved() {
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

// Container is the container in which all processes are that end; empty if there is none, or
// more than one.
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
