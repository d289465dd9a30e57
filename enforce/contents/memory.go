package contents

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Usage is a process with what it uses of a device.
type Usage struct {
	Process *snapshot.Process
	Bytes   int64
}

// Usages are what processes use of one device.
type Usages []Usage

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

// Usages lists the processes on a device of which the driver reports what they use.
func (c *Contents) Usages(index snapshot.DeviceIndex) (usages Usages) {
	for p := range c.On(index) {
		if u := p.Uses(index); u.Memory.Known() {
			usages = append(usages, Usage{p, u.Memory.Bytes()})
		}
	}
	return usages
}

// Excess is what processes of an environment use of a device beyond its capacity.
type Excess struct {
	Used int64 // in bytes
	// Ending are the processes that end for it; empty if there is no excess.
	Ending []*snapshot.Process
}

// Relieve chooses the processes that end so that the others use at most capacity together.
// Those that end anyway, or that can't be ended, are among them: pending says which. No
// other process ends in their place.
//
// Any user may start a container for an environment of another one. So the processes that
// no user is proved to have started end first, for what all use together, and the others
// only for what they use alone.
func (u Usages) Relieve(capacity int64, pending func(*snapshot.Process) bool) (proved, unproved Excess) {
	var own, others Usages
	for _, x := range u {
		unproved.Used += x.Bytes
		if x.Process.Unproved() {
			others = append(others, x)
			continue
		}
		own = append(own, x)
		proved.Used += x.Bytes
	}
	if proved.Used > capacity {
		proved.Ending = own.free(proved.Used-capacity, pending)
	}
	if unproved.Used > capacity {
		unproved.Ending = others.free(unproved.Used-capacity, pending)
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
func (u Usages) free(excess int64, pending func(*snapshot.Process) bool) []*snapshot.Process {
	var ended []*snapshot.Process
	var rest Usages
	for _, x := range u {
		if pending(x.Process) {
			excess -= x.Bytes
			ended = append(ended, x.Process)
		} else {
			rest = append(rest, x)
		}
	}
	slices.SortFunc(rest, func(a, b Usage) int { // ascending, and the higher PID first
		return cmp.Or(cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(b.Process.PID, a.Process.PID))
	})
	for excess > 0 && len(rest) > 0 {
		i := rest.nextToEnd(excess)
		ended = append(ended, rest[i].Process)
		excess -= rest[i].Bytes
		rest = slices.Delete(rest, i, i+1)
	}
	return ended
}

// nextToEnd is the position of the smallest that frees enough, or else of the largest with
// the highest PID. They are in ascending order.
func (u Usages) nextToEnd(excess int64) int {
	enough := min(excess, u[len(u)-1].Bytes)
	i, _ := slices.BinarySearchFunc(u, enough, func(x Usage, want int64) int { return cmp.Compare(x.Bytes, want) })
	return i
}
