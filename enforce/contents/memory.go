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

// Usages lists the processes on a device, what they use together, and for how many of
// them the driver reports no figure.
func (c *Contents) Usages(index snapshot.DeviceIndex) (usages Usages, used int64, unknown int) {
	for p := range c.On(index) {
		if u := p.Uses(index); u.Memory.Known() {
			usages = append(usages, Usage{p, u.Memory.Bytes()})
			used += u.Memory.Bytes()
		} else {
			unknown++
		}
	}
	return usages, used, unknown
}

// Relieve chooses the processes that end so that the others use at most capacity together.
// Those that end anyway, or that can't be ended, are among them: dealt says which. No
// other process ends in their place.
//
// Any user may start a container for an environment of another one. So the processes that
// no user is proved to have started end first, and the others only for what they use alone.
func (u Usages) Relieve(capacity int64, dealt func(*snapshot.Process) bool) []*snapshot.Process {
	var unproved, proved Usages
	all, alone := -capacity, -capacity
	for _, x := range u {
		all += x.Bytes
		if x.Process.Unproved() {
			unproved = append(unproved, x)
			continue
		}
		proved = append(proved, x)
		alone += x.Bytes
	}
	if len(unproved) == 0 {
		return proved.free(all, dealt)
	}
	return append(unproved.free(all, dealt), proved.free(alone, dealt)...)
}

// free chooses processes that free excess bytes together. What is dealt with counts as
// freed. Then goes the smallest process that alone frees enough; while none does, the
// largest. Ties go to the higher PID, which is most often the younger process.
func (u Usages) free(excess int64, dealt func(*snapshot.Process) bool) []*snapshot.Process {
	var ended []*snapshot.Process
	var rest Usages
	for _, x := range u {
		if dealt(x.Process) {
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
