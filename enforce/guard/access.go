package guard

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// facts are what an access follows from.
type facts struct {
	Files      *state.Files
	Proven     map[registration]bool // environments that are, according to the kernel, those of their users
	Devices    []hardware.BusDevice
	Order      *Order
	ExemptUIDs []snapshot.UID // of the order's exempt users
}

// registration names an environment: in a file that everybody may write, an id can be there twice.
type registration struct {
	EID snapshot.EnvID
	UID snapshot.UID
}

// access is who may open what.
type access struct {
	Guarded Minors
	Allowed map[snapshot.UID]Minors
	Devices []Device // all, and why some are not guarded
}

// accessOf decides who may open what. What is unknown is allowed.
func accessOf(f facts) access {
	p := access{Allowed: map[snapshot.UID]Minors{}}
	for i := range f.Devices {
		d := f.judged(&f.Devices[i])
		if d.Guarded {
			p.Guarded.Add(*d.Minor)
		}
		p.Devices = append(p.Devices, d)
	}
	owners := f.owners()
	for i := range f.Files.Devices {
		registered := &f.Files.Devices[i]
		at := slices.IndexFunc(p.Devices, func(d Device) bool {
			return d.Guarded && snapshot.SameGPU(d.Index, d.UUID, registered.Index, registered.UUID)
		})
		if at < 0 {
			continue
		}
		for _, a := range registered.Attachments {
			for _, uid := range owners[a.EID] {
				p.allow(uid, MinorsOf(*p.Devices[at].Minor))
			}
		}
	}
	for _, uid := range f.ExemptUIDs {
		p.allow(uid, AllMinors())
	}
	return p
}

// judged says whether a device is guarded.
func (f *facts) judged(d *hardware.BusDevice) Device {
	out := Device{Index: d.Index, UUID: d.UUID, Minor: d.Minor}
	switch {
	case f.Order.ExemptsDevice(d.Index, d.UUID):
		out.Why = "it is exempt"
	case d.Minor == nil:
		out.Why = "the number of its device node is unknown"
	case !AllMinors().Has(*d.Minor):
		out.Why = fmt.Sprintf("its device node has number %d, which no GPU of this driver has", *d.Minor)
	case slices.ContainsFunc(f.Files.Devices,
		func(r snapshot.Device) bool { return r.Unidentified && r.Index == d.Index }):
		out.Why = "GPUs were renumbered, and what is attached to it is unknown until it is attached again"
	default:
		out.Guarded = true
	}
	return out
}

// owners are the guarded users of environments by id. One that is there twice counts for each proven user.
func (f *facts) owners() map[snapshot.EnvID][]snapshot.UID {
	owners := make(map[snapshot.EnvID][]snapshot.UID, len(f.Files.Environments))
	for i := range f.Files.Environments {
		e := &f.Files.Environments[i]
		if f.Proven[registration{e.EID, e.UID}] && e.UID != 0 && e.UID >= f.Order.First() {
			owners[e.EID] = append(owners[e.EID], e.UID)
		}
	}
	return owners
}

func (p *access) allow(uid snapshot.UID, minors Minors) {
	p.Allowed[uid] = p.Allowed[uid].Or(minors)
}

// with is the access with all that was allowed before, too.
func (p access) with(before map[snapshot.UID]Minors) access {
	for uid, minors := range before {
		p.allow(uid, minors)
	}
	return p
}

// LastGPU is the highest minor number of major 195 that can be a GPU: 254 is nvidia-modeset, 255 is nvidiactl.
const LastGPU = 253

// Minors is a set of minor numbers of NVIDIA devices, 0 to 255; a number that can't be a GPU's is never added.
type Minors [4]uint64

// AllMinors are all that a GPU can have.
func AllMinors() (m Minors) {
	for minor := range LastGPU + 1 {
		m.Add(minor)
	}
	return m
}

// MinorsOf is the set of these minors.
func MinorsOf(minors ...int) (m Minors) {
	for _, minor := range minors {
		m.Add(minor)
	}
	return m
}

// Add puts a minor into the set.
func (m *Minors) Add(minor int) {
	if minor >= 0 && minor <= LastGPU {
		m[minor/64] |= 1 << (minor % 64)
	}
}

// Has says whether the minor is in the set.
func (m Minors) Has(minor int) bool {
	return minor >= 0 && minor < 256 && m[minor/64]&(1<<(minor%64)) != 0
}

// Or is the set of the minors that are in m or in other.
func (m Minors) Or(other Minors) Minors {
	for i := range m {
		m[i] |= other[i]
	}
	return m
}

// Len is how many minors are in the set.
func (m Minors) Len() (n int) {
	for _, word := range m {
		n += bits.OnesCount64(word)
	}
	return n
}
