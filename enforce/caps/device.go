package caps

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
)

// personDevice is a device that a user's environments are attached to, or processes use.
type personDevice struct {
	*snapshot.Device
	Host *judging.HostView
	// Newest is when the newest attachment began to count, in UTC. Written, by its user, decides between equal ones.
	Newest, Written snapshot.Date
	// Unknown is the use that processes of unknown environments prove, Exempt that of exempt ones.
	Unknown, Exempt judging.Certainty
	Envs            []snapshot.EnvID // attached to it
	Uses            []usage          // by processes that end if the user loses it
	Capacity, Used  int64            // bytes allowed to environments, and used by processes; or unknownBytes
	// Owner is the person's number. Parts are those of each person, for one of Together.
	Owner int
	Parts []*personDevice
	Idle  bool // it, and all that its processes use, has been idle for as long as the rule idle allows

	// Of a choice:
	Stays bool // its attachments stay, although it is chosen

	caps         uint64          // of the list, as bits, that cover it
	whole        *personDevice   // of a chosen part: the chosen device
	mates        []*personDevice // the host's counted devices
	cost         int8
	chosen, gone bool // whether it is chosen, and whether that frees it
}

type usage struct {
	Process  *snapshot.Process
	Attached bool // its environment is the user's, and attached
}

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
		d.Newest, d.Written = part.Newest, part.Written // as old as the oldest attachment
	}
	d.Capacity, d.Used = add(d.Capacity, part.Capacity), add(d.Used, part.Used)
}

// joined appends b to a. It doesn't copy b if a is empty.
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

func (d *personDevice) perOwner() []*personDevice {
	if d.Parts == nil {
		return []*personDevice{d}
	}
	return d.Parts
}

// Claims of hosts are cut to maxBytes, more than any device has.
const unknownBytes, maxBytes = -1, 1 << 44

// sum adds an amount that a host claims or, if unknown, otherwise.
func sum(bytes int64, more, otherwise snapshot.Memory) int64 {
	if !more.Known() {
		more = otherwise
	}
	if bytes == unknownBytes || !more.Known() {
		return unknownBytes
	}
	return min(bytes+min(more.Bytes(), maxBytes), maxBytes)
}

// memory is what the user has of a device's memory: the larger of the capacities and the processes' use, and at most
// all; unknown if the device shares the machine's memory.
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
