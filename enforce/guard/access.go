package guard

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
)

// registration names an environment: in a file that all users write, an ID may occur twice.
type registration struct {
	EID snapshot.EnvID
	UID snapshot.UID
}

type access struct {
	Guarded Minors
	Allowed map[snapshot.UID]Minors
	Devices []Device // all, and why some are not guarded
}

// accessOf decides who may open what. What is unknown is allowed.
func accessOf(e *observation, devices []hardware.BusDevice, o *Order, exempt []snapshot.UID) access {
	p := access{Allowed: map[snapshot.UID]Minors{}}
	for i := range devices {
		d := e.judged(&devices[i], o)
		if d.Guarded {
			p.Guarded.Add(*d.Minor)
		}
		p.Devices = append(p.Devices, d)
	}
	owners := e.owners(o.First())
	for i := range e.files.Devices {
		registered := &e.files.Devices[i]
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
	for _, uid := range exempt {
		p.allow(uid, AllMinors())
	}
	return p
}

func (e *observation) judged(d *hardware.BusDevice, o *Order) Device {
	out := Device{Index: d.Index, UUID: d.UUID, Minor: d.Minor}
	switch {
	case o.ExemptsDevice(d.Index, d.UUID):
		out.Why = "it is exempt"
	case d.Minor == nil:
		out.Why = "the number of its device node is unknown"
	case !AllMinors().Has(*d.Minor):
		out.Why = fmt.Sprintf("its device node has number %d, which no GPU of this driver has", *d.Minor)
	case slices.ContainsFunc(e.files.Devices,
		func(r snapshot.Device) bool { return r.Unidentified && r.Index == d.Index }):
		out.Why = "GPUs were renumbered, and what is attached to it is unknown until it is attached again"
	default:
		out.Guarded = true
	}
	return out
}

// owners are the guarded users of environments. An ID that occurs twice has each proven user.
func (e *observation) owners(first snapshot.UID) map[snapshot.EnvID][]snapshot.UID {
	owners := make(map[snapshot.EnvID][]snapshot.UID, len(e.files.Environments))
	for i := range e.files.Environments {
		env := &e.files.Environments[i]
		if e.proven[registration{env.EID, env.UID}] && env.UID != 0 && env.UID >= first {
			owners[env.EID] = append(owners[env.EID], env.UID)
		}
	}
	return owners
}

func (p *access) allow(uid snapshot.UID, minors Minors) {
	p.Allowed[uid] = p.Allowed[uid].Or(minors)
}

func (p access) with(before map[snapshot.UID]Minors) access {
	for uid, minors := range before {
		p.allow(uid, minors)
	}
	return p
}

// LastGPU is the highest minor of a GPU of major 195: 254 is nvidia-modeset, 255 nvidiactl.
const LastGPU = 253

// Minors is a set of minors of NVIDIA devices, 0 to LastGPU.
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

// Add adds a minor.
func (m *Minors) Add(minor int) {
	if minor >= 0 && minor <= LastGPU {
		m[minor/64] |= 1 << (minor % 64)
	}
}

// Has reports whether a minor is in the set.
func (m Minors) Has(minor int) bool {
	return minor >= 0 && minor < 256 && m[minor/64]&(1<<(minor%64)) != 0
}

// Or is the union.
func (m Minors) Or(other Minors) Minors {
	for i := range m {
		m[i] |= other[i]
	}
	return m
}

// Len is the number of minors.
func (m Minors) Len() (n int) {
	for _, word := range m {
		n += bits.OnesCount64(word)
	}
	return n
}
