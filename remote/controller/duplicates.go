package controller

import (
	"fmt"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// Duplicate is a name of a machine that has another name in the fleet. The
// machine is judged and counted once, under the name that comes first.
type Duplicate struct {
	Name   snapshot.Hostname `json:"name"`
	SameAs snapshot.Hostname `json:"same_as"` // the name under which the machine counts
	// New says that it was found in this cycle, and is to be reported now.
	New bool `json:"-"`
}

// String is what the administrator reads.
func (d Duplicate) String() string {
	return fmt.Sprintf("%s and %s are one machine: it counts once, as %s", d.SameAs, d.Name, d.SameAs)
}

// merged is a fleet without duplicates: each machine is listed once.
type merged struct {
	cluster    snapshot.Cluster
	answered   map[snapshot.Hostname]remote.Host // under which name each host of cluster answered
	via        map[snapshot.Hostname]agent.Via   // how it spoke with the controller, where that is known
	duplicates []Duplicate
	machines   Machines // to remember
}

// merge keeps one host for each machine, with the first of the machine's names
// and the snapshot of the first name that answered. So nothing changes while one of
// the names fails.
func merge(asked []remote.Host, all snapshot.Cluster, known Machines, about func(remote.Host) agent.About) merged {
	names, leads, vias := leadsOf(asked, all, about)
	groups := known.group(names, leads)
	n := len(all.Hosts)
	m := merged{
		cluster:  snapshot.Cluster{Hosts: make([]snapshot.Host, 0, n)},
		answered: make(map[snapshot.Hostname]remote.Host, n), via: make(map[snapshot.Hostname]agent.Via, n),
		machines: known.next(names, groups),
	}
	at := make([]int, n) // where the host of a machine is in the cluster
	for i, first := range groups {
		h := all.Hosts[i]
		if i == first {
			at[i] = len(m.cluster.Hosts)
			m.cluster.Hosts = append(m.cluster.Hosts, h)
			m.reached(h.Name, asked[i], vias[i])
			continue
		}
		if same := &m.cluster.Hosts[at[first]]; same.Snapshot == nil && h.Snapshot != nil {
			same.Snapshot, same.Err, same.AskedAt, same.Round, same.IsNew = h.Snapshot, nil, h.AskedAt, h.Round, h.IsNew
			m.reached(same.Name, asked[i], vias[i])
		}
		m.duplicates = append(m.duplicates, m.machines.duplicate(names[i], names[first]))
	}
	return m
}

// reached notes under which name a host answered, and how.
func (m *merged) reached(name snapshot.Hostname, answered remote.Host, via agent.Via) {
	m.answered[name] = answered
	if via != "" {
		m.via[name] = via
	}
}

// leadsOf returns the name of each host, where it leads, and how those that answered were spoken with.
func leadsOf(asked []remote.Host, all snapshot.Cluster, about func(remote.Host) agent.About) ([]string, []lead, []agent.Via) {
	n := len(all.Hosts)
	names, leads, vias := make([]string, n), make([]lead, n), make([]agent.Via, n)
	for i := range all.Hosts {
		names[i] = asked[i].Name
		if s := all.Hosts[i].Snapshot; s != nil && all.Hosts[i].Err == nil {
			host := about(asked[i])
			leads[i], vias[i] = lead{answered: true, token: s.Token, tokens: s.Tokens, peer: host.Peer}, host.Via
		}
	}
	return names, leads, vias
}

// Distinct leaves one result for each machine, as merge does, for results that are not snapshots: only
// the same address and host key say that two names are one machine then.
func Distinct[T any](a *Asker, results []remote.Result[T]) ([]remote.Result[T], []Duplicate) {
	names, leads := make([]string, len(results)), make([]lead, len(results))
	for i, r := range results {
		names[i] = r.Host.Name
		if r.Err == nil {
			leads[i] = lead{answered: true, peer: a.Link.About(r.Host).Peer}
		}
	}
	var kept []remote.Result[T]
	var list []Duplicate
	var machines Machines
	for i, first := range machines.group(names, leads) {
		if i == first {
			kept = append(kept, results[i])
			continue
		}
		list = append(list, machines.duplicate(names[i], names[first]))
	}
	return kept, list
}
