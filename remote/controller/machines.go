package controller

import (
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// machineID is what is known of the machine of a name: what it reports about
// itself, and to what the connection was made.
type machineID struct {
	agent.Identity
	peer remote.Peer
}

// complete reports whether the machine reported all that identifies it. The machine
// and the boot are not enough: several simulated hosts or containers may share them.
func (id *machineID) complete() bool { return id.Machine != "" && id.Boot != "" && id.Folder != "" }

// claims reports whether two names say that they are one machine.
func (id *machineID) claims(other *machineID) bool {
	return id.complete() && id.Machine == other.Machine && id.Boot == other.Boot && id.Folder == other.Folder
}

// otherKey reports whether two names are known to have shown different host keys. A
// host can claim any identity: with that of another machine it would take that
// machine's place, which would then not be judged any more. But it can't prove to
// have the other machine's host key.
func (id *machineID) otherKey(other *machineID) bool {
	return id.peer.Known() && other.peer.Known() && id.peer.HostKey != other.peer.HostKey
}

// same reports whether two names are known to be one machine now.
func (id *machineID) same(other *machineID) bool {
	if id.complete() && other.complete() {
		return id.claims(other) && !id.otherKey(other)
	}
	return id.peer.Known() && id.peer == other.peer
}

// differs reports whether two names are known to be two machines. One that was
// restarted between the two answers is still one.
func (id *machineID) differs(other *machineID) bool {
	if id.complete() && other.complete() {
		return id.Machine != other.Machine || id.Folder != other.Folder || id.otherKey(other)
	}
	return id.otherKey(other)
}

// Duplicate is a name of a machine that has another name in the fleet. The
// machine is judged and counted once, under the name that comes first.
type Duplicate struct {
	Name   snapshot.Hostname `json:"name"`
	SameAs snapshot.Hostname `json:"same_as"`
	// New says that it was found in this cycle, and is to be reported now.
	New bool `json:"-"`
}

// String is what the administrator reads.
func (d Duplicate) String() string {
	return fmt.Sprintf("%s and %s are one machine: it counts once, as %s", d.SameAs, d.Name, d.SameAs)
}

// Machines remembers which names are one machine, for the cycles in which not all
// of them answer. The zero Machines remembers none.
type Machines struct {
	// Twins are the names that are one machine with this one.
	Twins map[string][]string `json:"twins,omitempty"`

	reported map[[2]string]bool // pairs of names, in order
}

// duplicate says that a name is the same machine as another. It is New only once.
func (m *Machines) duplicate(name, sameAs string) Duplicate {
	return Duplicate{Name: snapshot.Hostname(name), SameAs: snapshot.Hostname(sameAs), New: m.report(name, sameAs)}
}

// report remembers that a pair of names is reported, and reports whether that is new.
func (m *Machines) report(a, b string) bool {
	pair := [2]string{min(a, b), max(a, b)}
	if m.reported[pair] {
		return false
	}
	if m.reported == nil {
		m.reported = make(map[[2]string]bool)
	}
	m.reported[pair] = true
	return true
}

// group finds the names that are one machine, and the pairs of names that say they
// are but are not. The identity of a name that did not answer is nil.
func (m Machines) group(names []string, ids []*machineID) *grouping {
	g := newGrouping(len(names))
	g.byMachine(ids)
	g.byPeer(ids)
	g.byMemory(m.Twins, names, ids)
	return g
}

// maxTwins is how many other names of a machine are remembered with each.
const maxTwins = 8

// next is what to remember of a grouping: names that left the fleet are forgotten.
func (m Machines) next(names []string, g *grouping) Machines {
	members := make(map[int][]string)
	for i, first := range g.first {
		if i == first {
			continue
		}
		if members[first] == nil {
			members[first] = []string{names[first]}
		}
		members[first] = append(members[first], names[i])
	}
	next := Machines{Twins: make(map[string][]string), reported: make(map[[2]string]bool, len(m.reported))}
	for _, list := range members {
		for _, name := range list {
			others := slices.Clone(list[:min(len(list), maxTwins+1)])
			next.Twins[name] = slices.DeleteFunc(others, func(other string) bool { return other == name })
		}
	}
	for pair := range m.reported {
		if slices.Contains(names, pair[0]) && slices.Contains(names, pair[1]) {
			next.reported[pair] = true
		}
	}
	return next
}

// grouping puts indices into groups; each group is identified by its first index.
type grouping struct {
	first []int
	// disputed are pairs that say they are one machine and show two host keys.
	disputed [][2]int
}

func newGrouping(n int) *grouping {
	g := &grouping{first: make([]int, n)}
	for i := range g.first {
		g.first[i] = i
	}
	return g
}

func (g *grouping) join(i, j int) {
	from, to := max(g.first[i], g.first[j]), min(g.first[i], g.first[j])
	if from == to {
		return
	}
	for k := range g.first { // duplicates are rare, so this loop is too
		if g.first[k] == from {
			g.first[k] = to
		}
	}
}

// byMachine joins names that say they are one machine, unless they show two host keys.
func (g *grouping) byMachine(ids []*machineID) {
	distinct := make(map[[3]string][]int, len(ids))
	for i, id := range ids {
		if id == nil || !id.complete() {
			continue
		}
		key := [3]string{id.Machine, id.Boot, id.Folder}
		others := distinct[key]
		if at := slices.IndexFunc(others, func(j int) bool { return id.same(ids[j]) }); at >= 0 {
			g.join(others[at], i)
			continue
		}
		if len(others) > 0 {
			g.disputed = append(g.disputed, [2]int{others[0], i})
		}
		distinct[key] = append(others, i)
	}
}

// byPeer joins names that lead to one machine by their connections, if one of them doesn't say
// which machine it is: byMachine has joined the others.
func (g *grouping) byPeer(ids []*machineID) {
	if !slices.ContainsFunc(ids, func(id *machineID) bool { return id != nil && !id.complete() }) {
		return
	}
	peers := make(map[remote.Peer][]int, len(ids))
	for i, id := range ids {
		if id == nil || !id.peer.Known() {
			continue
		}
		for _, j := range peers[id.peer] {
			if id.same(ids[j]) {
				g.join(i, j)
			}
		}
		peers[id.peer] = append(peers[id.peer], i)
	}
}

// byMemory joins names that were one machine before and are not known to be two
// now. A name that did not answer joins only one of its twins, so that it can't
// join two that are different machines now.
func (g *grouping) byMemory(twins map[string][]string, names []string, ids []*machineID) {
	if len(twins) == 0 {
		return
	}
	at := make(map[string]int, len(names))
	for i, name := range names {
		at[name] = i
	}
	for i, name := range names {
		var others []int
		for _, twin := range twins[name] {
			if j, known := at[twin]; known {
				others = append(others, j)
			}
		}
		if ids[i] == nil {
			g.joinSilent(i, others, ids)
			continue
		}
		for _, j := range others {
			if ids[j] != nil && !ids[i].differs(ids[j]) {
				g.join(i, j)
			}
		}
	}
}

// joinSilent joins a name that did not answer to the first of its twins that did,
// or to the first twin if none did.
func (g *grouping) joinSilent(i int, twins []int, ids []*machineID) {
	if len(twins) == 0 {
		return
	}
	with := twins[0]
	if at := slices.IndexFunc(twins, func(j int) bool { return ids[j] != nil }); at >= 0 {
		with = twins[at]
	}
	g.join(i, with)
}
