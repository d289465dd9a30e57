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
	names, ids := identify(a, all)
	groups := known.group(names, ids)
	m := merged{answered: make(map[snapshot.Hostname]remote.Host), machines: known.next(names, groups)}
	for _, pair := range groups.disputed {
		m.disputes = append(m.disputes, m.machines.dispute(names[pair[0]], names[pair[1]]))
	}
	at := make(map[int]int) // where the host of a machine is in the cluster
	for i, first := range groups.first {
		h := all.Hosts[i]
		if i == first {
			at[i] = len(m.cluster.Hosts)
			m.cluster.Hosts = append(m.cluster.Hosts, h)
			m.answered[h.Name] = a.Hosts[i]
			continue
		}
		if same := &m.cluster.Hosts[at[first]]; same.Err != nil && h.Err == nil {
			same.Snapshot, same.Err = h.Snapshot, nil
			m.answered[same.Name] = a.Hosts[i]
		}
		m.duplicates = append(m.duplicates, m.machines.duplicate(names[i], names[first]))
	}
	return m
}

// via asks the Link how it spoke with the hosts that answered.
func (m *merged) via(link Link) map[snapshot.Hostname]agent.Via {
	via := make(map[snapshot.Hostname]agent.Via)
	for _, h := range m.cluster.Answered() {
		if v := link.About(m.answered[h.Name]).Via; v != "" {
			via[h.Name] = v
		}
	}
	return via
}

// identify returns the name of each host, and what is known of its machine.
func identify(a *Asker, all snapshot.Cluster) ([]string, []*machineID) {
	names, ids := make([]string, len(all.Hosts)), make([]*machineID, len(all.Hosts))
	for i := range all.Hosts {
		names[i] = a.Hosts[i].Name
		if s := all.Hosts[i].Snapshot; s != nil && all.Hosts[i].Err == nil {
			machine := cmp.Or(s.MachineID, s.BootID) // some images have no machine-id(5)
			ids[i] = &machineID{agent.Identity{Machine: machine, Boot: s.BootID, Folder: s.StateFolder}, a.Link.About(a.Hosts[i]).Peer}
		}
	}
	return names, ids
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
