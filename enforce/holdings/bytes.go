package holdings

import "github.com/seed-3119e985/genv/snapshot"

// AddCapacity adds what an environment may use of the device: all of it without a capacity.
func (d *Device) AddCapacity(capacity, total snapshot.Memory) {
	if !capacity.Known() {
		capacity = total
	}
	switch {
	case d.Bytes == UnknownBytes:
	case !capacity.Known():
		d.Bytes = UnknownBytes
	default:
		d.Bytes = sumOf(d.Bytes, capacity)
	}
}

// AddUsed adds what a process uses of the device.
func (d *Device) AddUsed(used snapshot.Memory) {
	switch {
	case d.Used == UnknownBytes:
	case !used.Known():
		d.Used = UnknownBytes
	default:
		d.Used = sumOf(d.Used, used)
	}
}

// maxBytes is more memory than any device has: 16 TiB.
const maxBytes = 1 << 44

// sumOf adds an amount that a host claims. It is at most maxBytes.
func sumOf(bytes int64, more snapshot.Memory) int64 {
	return min(bytes+min(more.Bytes(), maxBytes), maxBytes)
}

// Settle ends the counting of what makes up a device, whose processes are in Shard.Processes. The
// device has as much memory as total.
func (d *Device) Settle(total snapshot.Memory, processes []Process) {
	d.settleBytes(total)
	d.assess(processes)
}

// settleBytes ends the counting of bytes: the user has as much device memory by a device as the
// environments may use, or as its processes use if that is more, and at most all of it.
// Unknown is not zero.
func (d *Device) settleBytes(total snapshot.Memory) {
	if d.Bytes == UnknownBytes || d.Used == UnknownBytes && len(d.Envs) == 0 {
		d.Bytes = UnknownBytes
		return
	}
	if d.Bytes = max(d.Bytes, d.Used); total.Known() {
		d.Bytes = min(d.Bytes, total.Bytes())
	}
}
