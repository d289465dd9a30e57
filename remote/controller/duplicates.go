package controller

import (
	"context"
	"fmt"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

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

// dispute is a note about two names that say they are one machine and are not.
type dispute struct {
	enforce.Note
	isNew bool
}

// merge leaves one host for each machine, with the first of the machine's names
// and the snapshot of the first name that answered. So a name that fails for a
// while changes nothing. It returns what to remember of the machines.
func (c *Controller) merge(cycle *Cycle, all snapshot.Cluster) (Machines, []dispute) {
	names, ids := make([]string, len(all.Hosts)), make([]*machineID, len(all.Hosts))
	for i := range all.Hosts {
		names[i] = c.Hosts[i].Name
		if s := all.Hosts[i].Snapshot; s != nil && all.Hosts[i].Err == nil {
			ids[i] = &machineID{agent.Identity{Machine: s.MachineID, Boot: s.BootID, Folder: s.StateFolder}, c.Link.About(c.Hosts[i]).Peer}
		}
	}
	known := c.Memory.Machines
	g := known.group(names, ids)
	next := known.next(names, g)
	var disputes []dispute
	for _, pair := range g.disputed {
		first, second := names[pair[0]], names[pair[1]]
		text := fmt.Sprintf("this host says that it is the same machine as %s, but shows another host key: they are judged as two machines. "+
			"If they are one machine, list only one of the names", first)
		disputes = append(disputes, dispute{enforce.Note{Host: snapshot.Hostname(second), Text: text}, next.report(first, second)})
	}
	cycle.served = make(map[string]remote.Host)
	at := make(map[int]int) // where the host of a machine is in the cluster
	for i, first := range g.first {
		h := all.Hosts[i]
		if i == first {
			at[i] = len(cycle.Cluster.Hosts)
			cycle.Cluster.Hosts = append(cycle.Cluster.Hosts, h)
			cycle.served[names[i]] = c.Hosts[i]
			continue
		}
		if same := &cycle.Cluster.Hosts[at[first]]; same.Err != nil && h.Err == nil {
			same.Snapshot, same.Err = h.Snapshot, nil
			cycle.served[names[first]] = c.Hosts[i]
		}
		cycle.Duplicates = append(cycle.Duplicates, next.duplicate(names[i], names[first]))
	}
	return next, disputes
}

// Distinct leaves one result for each machine, as merge does, for results that are
// not snapshots. Machines are distinguished by address and host key; if several
// addresses have the same host key, by what the machines report about themselves.
func Distinct[T any](ctx context.Context, c *Controller, results []remote.Result[T]) ([]remote.Result[T], []Duplicate) {
	names, ids := make([]string, len(results)), make([]*machineID, len(results))
	for i, r := range results {
		names[i] = r.Host.Name
		if r.Err == nil {
			ids[i] = &machineID{peer: c.Link.About(r.Host).Peer}
		}
	}
	c.askWhoTheyAre(ctx, hostsOf(results), ids)
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

func hostsOf[T any](results []remote.Result[T]) []remote.Host {
	hosts := make([]remote.Host, len(results))
	for i := range results {
		hosts[i] = results[i].Host
	}
	return hosts
}

// askWhoTheyAre fills in the identities of hosts that share their host key with
// another address: they may be one machine, or copies of one image.
func (c *Controller) askWhoTheyAre(ctx context.Context, hosts []remote.Host, ids []*machineID) {
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
	for _, r := range remote.Each(ctx, shared, c.Fanout, c.Link.Identify) {
		if r.Err == nil {
			of[r.Host.Name].Identity = r.Value
		}
	}
}
