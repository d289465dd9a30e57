package controller

import (
	"cmp"
	"context"
	"fmt"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// merged is a fleet without duplicates: each machine is listed once.
type merged struct {
	cluster    snapshot.Cluster
	answered   map[snapshot.Hostname]remote.Host // under which name each host of cluster answered
	via        map[snapshot.Hostname]agent.Via   // how it spoke with the controller, where that is known
	duplicates []Duplicate
	disputes   []dispute
	machines   Machines // to remember
}

// dispute is a note about two names that say they are one machine and are not.
type dispute struct {
	enforce.Note
	isNew bool
}

// merge keeps one host for each machine, with the first of the machine's names
// and the snapshot of the first name that answered. So nothing changes while one of
// the names fails.
func merge(a *Asker, all snapshot.Cluster, known Machines) merged {
	names, ids, vias := identify(a, all)
	groups := known.group(names, ids)
	n := len(all.Hosts)
	m := merged{
		cluster:  snapshot.Cluster{Hosts: make([]snapshot.Host, 0, n)},
		answered: make(map[snapshot.Hostname]remote.Host, n), via: make(map[snapshot.Hostname]agent.Via, n),
		machines: known.next(names, groups),
	}
	for _, pair := range groups.disputed {
		m.disputes = append(m.disputes, m.machines.dispute(names[pair[0]], names[pair[1]]))
	}
	at := make([]int, n) // where the host of a machine is in the cluster
	for i, first := range groups.first {
		h := all.Hosts[i]
		if i == first {
			at[i] = len(m.cluster.Hosts)
			m.cluster.Hosts = append(m.cluster.Hosts, h)
			m.reached(h.Name, a.Hosts[i], vias[i])
			continue
		}
		if same := &m.cluster.Hosts[at[first]]; same.Err != nil && h.Err == nil {
			same.Snapshot, same.Err = h.Snapshot, nil
			m.reached(same.Name, a.Hosts[i], vias[i])
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

// identify returns the name of each host, and of those that answered what is known of the
// machine, and how they were spoken with.
func identify(a *Asker, all snapshot.Cluster) ([]string, []*machineID, []agent.Via) {
	n := len(all.Hosts)
	names, ids, vias, known := make([]string, n), make([]*machineID, n), make([]agent.Via, n), make([]machineID, n)
	for i := range all.Hosts {
		names[i] = a.Hosts[i].Name
		if s := all.Hosts[i].Snapshot; s != nil && all.Hosts[i].Err == nil {
			about := a.Link.About(a.Hosts[i])
			machine := cmp.Or(s.MachineID, s.BootID) // some images have no machine-id(5)
			known[i] = machineID{agent.Identity{Machine: machine, Boot: s.BootID, Folder: s.StateFolder}, about.Peer}
			ids[i], vias[i] = &known[i], about.Via
		}
	}
	return names, ids, vias
}

func (m *Machines) dispute(first, second string) dispute {
	text := fmt.Sprintf("this host says that it is the same machine as %s, but shows another host key: they are judged as two machines. "+
		"If they are one machine, list only one of the names", first)
	return dispute{enforce.Note{Host: snapshot.Hostname(second), Text: text}, m.report(first, second)}
}

// Distinct leaves one result for each machine, as merge does, for results that are
// not snapshots. Machines are distinguished by address and host key; if several
// addresses have the same host key, by what the machines report about themselves.
func Distinct[T any](ctx context.Context, a *Asker, results []remote.Result[T]) ([]remote.Result[T], []Duplicate) {
	hosts, names, ids := make([]remote.Host, len(results)), make([]string, len(results)), make([]*machineID, len(results))
	for i, r := range results {
		hosts[i], names[i] = r.Host, r.Host.Name
		if r.Err == nil {
			ids[i] = &machineID{peer: a.Link.About(r.Host).Peer}
		}
	}
	askWhoTheyAre(ctx, a, hosts, ids)
	var kept []remote.Result[T]
	var list []Duplicate
	var machines Machines
	for i, first := range machines.group(names, ids).first {
		if i == first {
			kept = append(kept, results[i])
			continue
		}
		list = append(list, machines.duplicate(names[i], names[first]))
	}
	return kept, list
}

// askWhoTheyAre fills in the identities of hosts that share their host key with
// another address: they may be one machine, or copies of one image.
func askWhoTheyAre(ctx context.Context, a *Asker, hosts []remote.Host, ids []*machineID) {
	addresses := make(map[string]map[remote.Peer]bool)
	for _, id := range ids {
		if id == nil || !id.peer.Known() {
			continue
		}
		if addresses[id.peer.HostKey] == nil {
			addresses[id.peer.HostKey] = make(map[remote.Peer]bool)
		}
		addresses[id.peer.HostKey][id.peer] = true
	}
	var shared []remote.Host // with a host key that another address has too
	of := make(map[string]*machineID)
	for i, id := range ids {
		if id != nil && len(addresses[id.peer.HostKey]) > 1 {
			shared = append(shared, hosts[i])
			of[hosts[i].Name] = id
		}
	}
	for _, r := range remote.Each(ctx, shared, a.Fanout, a.Link.Identify) {
		if r.Err == nil {
			of[r.Host.Name].Identity = r.Value
		}
	}
}
