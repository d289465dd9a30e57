package caps

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
)

// personDevice is a device that a user's environments are attached to, or that the user's processes use.
type personDevice struct {
	*snapshot.Device
	Host *judging.HostView
	// Newest is since when the newest attachment counts, in UTC, and Written what its user wrote, which decides between
	// equals.
	Newest, Written snapshot.Date
	// Unknown is what processes of unknown environments prove about its use, and Exempt what exempt ones do.
	Unknown, Exempt judging.Certainty
	Envs            []snapshot.EnvID // that are attached to it
	Uses            []usage          // by processes that end when the user loses it
	Capacity, Used  int64            // bytes that environments may use, and that processes use; or unknownBytes
	// Owner is the person's number. Parts are what each of several people has of it, for one of Together.
	Owner int
	Parts []*personDevice
	Idle  bool // it has been idle for so long that the rule about that applies, and so has all that its processes use

	// Of a choice:
	Stays bool // its attachments stay, although it is to go

	caps         uint64          // of the list that are about it, by their bits
	whole        *personDevice   // of a part that is to go: what was chosen
	mates        []*personDevice // the devices of the host that count
	cost         int8
	chosen, gone bool // whether it is to go, and whether it no longer counts then
}

type usage struct {
	Process  *snapshot.Process
	Attached bool // it is in an environment of the user's that is attached to it
}

// together are the devices of several people, each once.
func together(lists [][]*personDevice) []*personDevice {
	parts := slices.Concat(lists...)
	slices.SortStableFunc(parts, byHost)
	room, all := make([]personDevice, len(parts)), make([]*personDevice, 0, len(parts))
	for from, to := 0, 0; from < len(parts); from = to {
		first, d := parts[from], &room[len(all)]
		*d, all = personDevice{Device: first.Device, Host: first.Host, Idle: true}, append(all, d)
		for to < len(parts) && parts[to].Device == first.Device {
			d.add(parts[to])
			to++
		}
		d.Parts = parts[from:to:to]
	}
	return all
}

func byHost(a, b *personDevice) int {
	return cmp.Or(cmp.Compare(a.Host.Position, b.Host.Position), cmp.Compare(a.Index, b.Index))
}

func (d *personDevice) add(part *personDevice) {
	d.Envs, d.Uses = joined(d.Envs, part.Envs), joined(d.Uses, part.Uses)
	d.Unknown, d.Exempt, d.Idle = max(d.Unknown, part.Unknown), max(d.Exempt, part.Exempt), d.Idle && part.Idle
	older := cmp.Or(part.Newest.Compare(d.Newest), part.Written.Compare(d.Written)) < 0
	if unknown := (snapshot.Date{}); d.Newest == unknown || older && part.Newest != unknown {
		d.Newest, d.Written = part.Newest, part.Written // it is as old as the longest attachment
	}
	d.Capacity, d.Used = add(d.Capacity, part.Capacity), add(d.Used, part.Used)
}

// joined are both lists. If the first one is empty, it is the second one, not a copy.
func joined[T any](a, b []T) []T {
	if len(a) == 0 {
		return slices.Clip(b)
	}
	return append(a, b...)
}

func add(a, b int64) int64 {
	if a == unknownBytes || b == unknownBytes {
		return unknownBytes
	}
	return min(a+b, maxBytes)
}

// whose are the parts of a device: itself, if it is one person's.
func (d *personDevice) perOwner() []*personDevice {
	if d.Parts == nil {
		return []*personDevice{d}
	}
	return d.Parts
}

// unknownBytes is an amount that isn't known. What hosts claim is cut to maxBytes, more than any device has.
const unknownBytes, maxBytes = -1, 1 << 44

// sum adds an amount that a host claims, or the other one if that is unknown.
func sum(bytes int64, more, otherwise snapshot.Memory) int64 {
	if !more.Known() {
		more = otherwise
	}
	if bytes == unknownBytes || !more.Known() {
		return unknownBytes
	}
	return min(bytes+min(more.Bytes(), maxBytes), maxBytes)
}

// memory is how much memory the user has by a device: what environments may use or, if it is more, what processes use,
// and at most all of it; unknown for one that shares the memory of its machine.
func (d *personDevice) memory() int64 {
	if d.Unified || d.Capacity == unknownBytes || d.Used == unknownBytes && len(d.Envs) == 0 {
		return unknownBytes
	}
	bytes := max(d.Capacity, d.Used)
	if d.TotalMemory.Known() {
		bytes = min(bytes, d.TotalMemory.Bytes())
	}
	return bytes
}
