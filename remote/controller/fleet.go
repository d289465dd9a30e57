package controller

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// hostAnswer is a host's snapshot, or the error in its place.
type hostAnswer struct {
	name     string    // of the host
	askedAt  time.Time // by Options.Now
	came     time.Time // by time.Now
	took     time.Duration
	askRound int
	snapshot *snapshot.Snapshot
	err      error
}

// knownFleet has the last answer of each host. It is a value: with and of return changed copies.
type knownFleet struct {
	hosts    []remote.Host
	last     []snapshot.Host // the last answers, in the order of hosts
	at       map[string]int  // the index of each host, by name
	askRound int             // of the last tick; unlike Round.Number over restarts
	judged   bool            // and recorded, or there is no policy: the answers are no longer new
	Fleet
}

// of returns the fleet with other hosts. The last answers of names in both are kept.
func (f knownFleet) of(hosts []remote.Host) knownFleet {
	last, at := make([]snapshot.Host, len(hosts)), make(map[string]int, len(hosts))
	for i, h := range hosts {
		last[i] = snapshot.Host{Name: snapshot.Hostname(h.Name)}
		if before, known := f.at[h.Name]; known {
			last[i] = f.last[before]
		}
		last[i].Labels, at[h.Name] = h.Labels, i
	}
	f.hosts, f.last, f.at = hosts, last, at
	return f
}

// with returns the fleet with answers. It ignores those of hosts that have left the fleet.
func (f knownFleet) with(answers []hostAnswer, machines Machines, about func(remote.Host) agent.About) knownFleet {
	f.last = slices.Clone(f.last)
	for i := range f.last {
		f.last[i].IsNew = f.last[i].IsNew && !f.judged
	}
	f.judged = false
	for _, a := range answers {
		at, known := f.at[a.name]
		if !known || a.askedAt.Before(f.last[at].AskedAt) { // the answer to a later request came first
			continue
		}
		h := &f.last[at]
		h.Snapshot, h.Err, h.AskedAt, h.Took, h.Round, h.IsNew = a.snapshot, a.err, a.askedAt, a.took, a.askRound, true
		if h.Err != nil {
			h.Snapshot = nil
		}
	}
	f.Fleet = merge(f.hosts, snapshot.Cluster{Hosts: f.last}, machines, about)
	return f
}

// Fleet has each machine of a fleet once.
type Fleet struct {
	Cluster    snapshot.Cluster
	Duplicates []Duplicate                     // left out of Cluster
	Via        map[snapshot.Hostname]agent.Via // how each host that answered was asked, where the Link knows

	reached  map[snapshot.Hostname]remote.Host // each host of Cluster under the name that answered, if one did
	machines Machines                          // to remember
}

// merge keeps one host for each machine: its first name, with the snapshot of the first name that answered.
func merge(asked []remote.Host, all snapshot.Cluster, known Machines, about func(remote.Host) agent.About) Fleet {
	identities := identitiesOf(asked, all, about)
	groups := known.group(identities)
	n := len(all.Hosts)
	m := Fleet{
		Cluster: snapshot.Cluster{Hosts: make([]snapshot.Host, 0, n)},
		reached: make(map[snapshot.Hostname]remote.Host, n), Via: make(map[snapshot.Hostname]agent.Via, n),
		machines: known.next(identities, groups),
	}
	at := make([]int, n) // the index of a machine in the cluster, by that of its first name
	for i, first := range groups {
		h := all.Hosts[i]
		if i == first {
			at[i] = len(m.Cluster.Hosts)
			m.Cluster.Hosts = append(m.Cluster.Hosts, h)
			m.reach(h.Name, asked[i], identities[i].via)
			continue
		}
		if same := &m.Cluster.Hosts[at[first]]; same.Snapshot == nil && h.Snapshot != nil {
			h.Name, h.Labels = same.Name, same.Labels
			*same = h
			m.reach(same.Name, asked[i], identities[i].via)
		}
		m.Duplicates = append(m.Duplicates, m.machines.duplicate(identities[i].name, identities[first].name))
	}
	return m
}

func identitiesOf(asked []remote.Host, all snapshot.Cluster, about func(remote.Host) agent.About) []identity {
	identities := make([]identity, len(all.Hosts))
	for i := range all.Hosts {
		identities[i].name = asked[i].Name
		if s := all.Hosts[i].Snapshot; s != nil && all.Hosts[i].Err == nil {
			host := about(asked[i])
			identities[i] = identity{asked[i].Name, true, s.Token, s.Tokens, host.Peer, host.Via}
		}
	}
	return identities
}

type identity struct {
	name     string
	answered bool
	token    string // see snapshot.Snapshot
	tokens   []string
	peer     remote.Peer
	via      agent.Via
}

// Machines remembers which names are one machine, for when some of them don't answer. The zero Machines is empty.
type Machines struct {
	OtherNames map[string][]string `json:"twins,omitempty"` // the other names of the machine, by name

	reported map[[2]string]bool // pairs of names, in order
}

func (m Machines) group(identities []identity) grouping {
	g := make(grouping, len(identities))
	for i := range g {
		g[i] = i
	}
	g.byToken(identities)
	g.byPeer(identities)
	g.bySilence(m.OtherNames, identities)
	return g
}

// grouping has for each index the first index of its group.
type grouping []int

// byToken joins a name that was given a token and a name that shows it. What else hosts say of themselves is no proof.
func (g grouping) byToken(identities []identity) {
	given := make(map[string]int, len(identities))
	for i := range identities {
		if identities[i].token != "" {
			given[identities[i].token] = i
		}
	}
	for i := range identities {
		for _, token := range identities[i].tokens {
			if j, known := given[token]; known {
				g.join(i, j)
			}
		}
	}
}

// byPeer joins names with the same address, port and host key, if one of them can't show tokens.
func (g grouping) byPeer(identities []identity) {
	first := make(map[remote.Peer]int, len(identities))
	for i := range identities {
		l := &identities[i]
		if !l.answered || !l.peer.Known() {
			continue
		}
		if j, known := first[l.peer]; !known {
			first[l.peer] = i
		} else if l.tokens == nil || identities[j].tokens == nil {
			g.join(i, j)
		}
	}
}

// bySilence joins a name that didn't answer to the first other name of its machine that did, else to the first one.
func (g grouping) bySilence(others map[string][]string, identities []identity) {
	if len(others) == 0 {
		return
	}
	at := make(map[string]int, len(identities))
	for i := range identities {
		at[identities[i].name] = i
	}
	for i := range identities {
		if identities[i].answered {
			continue
		}
		with := -1
		for _, other := range others[identities[i].name] {
			if j, known := at[other]; known && (with < 0 || identities[j].answered && !identities[with].answered) {
				with = j
			}
		}
		if with >= 0 {
			g.join(i, with)
		}
	}
}

func (g grouping) join(i, j int) {
	from, to := max(g[i], g[j]), min(g[i], g[j])
	if from == to {
		return
	}
	for k := range g { // duplicates are rare, so this loop is too
		if g[k] == from {
			g[k] = to
		}
	}
}

const maxOtherNames = 8 // remembered for each name

// next is what to remember of a grouping. It forgets names that have left the fleet.
func (m Machines) next(identities []identity, g grouping) Machines {
	members := make(map[int][]string)
	for i, first := range g {
		if i == first {
			continue
		}
		if members[first] == nil {
			members[first] = []string{identities[first].name}
		}
		members[first] = append(members[first], identities[i].name)
	}
	next := Machines{OtherNames: make(map[string][]string), reported: make(map[[2]string]bool, len(m.reported))}
	for _, list := range members {
		for _, name := range list {
			others := slices.Clone(list[:min(len(list), maxOtherNames+1)])
			next.OtherNames[name] = slices.DeleteFunc(others, func(other string) bool { return other == name })
		}
	}
	inFleet := func(name string) bool {
		return slices.ContainsFunc(identities, func(l identity) bool { return l.name == name })
	}
	for pair := range m.reported {
		if inFleet(pair[0]) && inFleet(pair[1]) {
			next.reported[pair] = true
		}
	}
	return next
}

func (m *Fleet) reach(name snapshot.Hostname, answered remote.Host, via agent.Via) {
	m.reached[name] = answered
	if via != "" {
		m.Via[name] = via
	}
}

// duplicate notes that a name is the same machine as another. It is New only the first time.
func (m *Machines) duplicate(name, sameAs string) Duplicate {
	pair := [2]string{min(name, sameAs), max(name, sameAs)}
	d := Duplicate{Name: snapshot.Hostname(name), SameAs: snapshot.Hostname(sameAs), New: !m.reported[pair]}
	if m.reported == nil {
		m.reported = make(map[[2]string]bool)
	}
	m.reported[pair] = true
	return d
}

// Duplicate is a further name of a machine, which is judged and counted once, under its first name.
type Duplicate struct {
	Name   snapshot.Hostname `json:"name"`
	SameAs snapshot.Hostname `json:"same_as"` // the name under which the machine counts
	New    bool              `json:"-"`       // found in this round
}

// String describes it for the administrator.
func (d Duplicate) String() string {
	return fmt.Sprintf("%s and %s are one machine: it counts once, as %s", d.SameAs, d.Name, d.SameAs)
}

func (f *knownFleet) answered() bool {
	return slices.ContainsFunc(f.last, func(h snapshot.Host) bool { return h.Snapshot != nil || h.Err != nil })
}

func (f *knownFleet) lastOf(name string) *snapshot.Snapshot {
	if at, known := f.at[name]; known {
		return f.last[at].Snapshot
	}
	return nil
}
