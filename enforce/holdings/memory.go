package holdings

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// chooseMemory chooses devices until what the user holds is within the limit.
func chooseMemory(known []*candidate, used, limit int64) []*candidate {
	counted, freed := 0, int64(0) // choose only ever adds
	enough := func(chosen []*candidate) bool {
		freed += bytesOf(chosen[counted:])
		counted = len(chosen)
		return used-freed <= limit
	}
	free, busy := partition(known)
	taken := choose(free, enough)
	if !enough(taken) {
		taken = append(taken, busyOver(busy, limit, used-freed)...)
	}
	return spareNeedless(taken, limit-(used-bytesOf(taken)), (*candidate).bytes)
}

// withKnownMemory are the devices of which the memory is known: memory caps don't count the others.
func withKnownMemory(devices []*candidate) []*candidate {
	return slices.DeleteFunc(devices, func(d *candidate) bool { return d.Bytes == UnknownBytes })
}

// partition separates the devices that are proven to be in use from the others.
func partition(devices []*candidate) (free, busy []*candidate) {
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
func busyOver(busy []*candidate, limit, claimed int64) []*candidate {
	used := int64(0)
	for _, d := range busy {
		used += max(0, d.Used) // unknown counts as 0 here, so that fewer processes end
	}
	counted := 0
	return choose(busy, func(chosen []*candidate) bool {
		for _, d := range chosen[counted:] {
			used -= max(0, d.Used)
		}
		claimed -= bytesOf(chosen[counted:])
		counted = len(chosen)
		return used <= limit || claimed <= limit
	})
}

func bytesOf(devices []*candidate) int64 {
	total := int64(0)
	for _, d := range devices {
		total += d.bytes()
	}
	return total
}

func (d *candidate) bytes() int64 { return d.Bytes }

// amountOf is how much of a cap the devices that it counts are.
func amountOf(c Cap, counted []*candidate, hosts int) Amount {
	a := Amount{Count: len(counted), Hosts: hosts}
	if c == Memory {
		a.Bytes = bytesOf(counted)
	}
	return a
}

// countedFor lists the devices that count for one of the user's caps.
func (r *Remaining) countedFor(c Cap, u *User) []*candidate {
	if c == Memory {
		return withKnownMemory(r.counted(u))
	}
	return r.counted(u)
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
func (r *Remaining) WithUnknownMemory(user snapshot.Username) []*Device {
	var list []*Device
	u := r.users[user]
	if u == nil || !slices.ContainsFunc(u.Devices, func(d *Device) bool { return d.Bytes == UnknownBytes }) {
		return nil
	}
	for _, d := range r.counted(u) {
		if d.Bytes == UnknownBytes {
			list = append(list, d.Device)
		}
	}
	return list
}
