package holdings

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// chooseMemory chooses devices until what the user holds is within the limit.
func chooseMemory(known []*held, used, limit int64) []*held {
	counted, freed := 0, int64(0) // choose only ever adds
	enough := func(chosen []*held) bool {
		freed += bytesOf(chosen[counted:])
		counted = len(chosen)
		return used-freed <= limit
	}
	free, busy := partition(known)
	taken := choose(free, enough)
	if !enough(taken) {
		taken = append(taken, busyOver(busy, limit, used-freed)...)
	}
	return spareNeedless(taken, limit-(used-bytesOf(taken)), (*held).bytes)
}

// withKnownMemory are the devices of which the memory is known: no cap of memory counts the others.
func withKnownMemory(devices []*held) []*held {
	return slices.DeleteFunc(devices, func(d *held) bool { return d.Bytes == UnknownBytes })
}

// partition separates the devices that are proven to be in use from the others.
func partition(devices []*held) (free, busy []*held) {
	for _, d := range devices {
		if d.busy() {
			busy = append(busy, d)
		} else {
			free = append(free, d)
		}
	}
	return free, busy
}

// busyOver chooses among devices that are proven to be in use. Their capacities
// are claims of state files, so whatever these say, processes end only while
// what they use themselves is more than the limit, and that is known.
func busyOver(busy []*held, limit, claimed int64) []*held {
	used := int64(0)
	for _, d := range busy {
		used += max(0, d.Used) // unknown counts as 0 here, so that fewer processes end
	}
	counted := 0
	return choose(busy, func(chosen []*held) bool {
		for _, d := range chosen[counted:] {
			used -= max(0, d.Used)
		}
		claimed -= bytesOf(chosen[counted:])
		counted = len(chosen)
		return used <= limit || claimed <= limit
	})
}

func bytesOf(devices []*held) int64 {
	total := int64(0)
	for _, d := range devices {
		total += d.bytes()
	}
	return total
}

func (h *held) bytes() int64 { return h.Bytes }

// amountOf is how much of a cap the devices that it counts are.
func amountOf(c Cap, counted []*held, hosts int) Amount {
	a := Amount{Count: len(counted), Hosts: hosts}
	if c == Memory {
		a.Bytes = bytesOf(counted)
	}
	return a
}

// countedFor lists the devices that count for one of the user's caps.
func (b *Book) countedFor(c Cap, u *User) []*held {
	if c == Memory {
		return withKnownMemory(b.counted(u))
	}
	return b.counted(u)
}

// spareNeedless gives back what turned out not to be needed, the costliest
// first: surplus is by how much too much was chosen.
func spareNeedless[T any](chosen []T, surplus int64, weight func(T) int64) []T {
	for i := len(chosen) - 1; i >= 0; i-- {
		if n := weight(chosen[i]); n <= surplus {
			surplus -= n
			chosen = slices.Delete(chosen, i, i+1)
		}
	}
	return chosen
}

// WithUnknownMemory are the devices that count for a user of which the memory is not known.
func (b *Book) WithUnknownMemory(user snapshot.Username) []*Device {
	var list []*Device
	u := b.users[user]
	if u == nil || !slices.ContainsFunc(u.Devices, func(d *Device) bool { return d.Bytes == UnknownBytes }) {
		return nil
	}
	for _, h := range b.counted(u) {
		if h.Bytes == UnknownBytes {
			list = append(list, h.Device)
		}
	}
	return list
}
