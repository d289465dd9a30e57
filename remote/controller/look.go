package controller

import (
	"context"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// Snapshotter collects snapshots again and again, and judges nothing: for commands that only
// show what is there. It is not safe for concurrent use.
type Snapshotter struct {
	Survey
	machines Machines
}

// Look asks every host once.
func (l *Snapshotter) Look(ctx context.Context) Look {
	look := merge(l.Hosts, l.Collect(ctx), l.machines, l.Link.About)
	l.machines = look.machines
	return look
}

// Collect asks every host for its snapshot, in the order of Hosts.
func (a *Survey) Collect(ctx context.Context) snapshot.Cluster {
	results := Ask(ctx, a, a.Link.Snapshot)
	cluster := snapshot.Cluster{Hosts: make([]snapshot.Host, len(results))}
	for i, r := range results {
		cluster.Hosts[i] = snapshot.Host{
			Name: snapshot.Hostname(r.Host.Name), Labels: r.Host.Labels, Snapshot: r.Value,
			Err: r.Err,
		}
		if r.Err != nil {
			cluster.Hosts[i].Snapshot = nil
		}
	}
	return cluster
}

// Distinct leaves one result for each machine, as merge does, for results that are not snapshots: only
// the same address and host key say that two names are one machine then.
func Distinct[T any](a *Survey, results []remote.Result[T]) ([]remote.Result[T], []Duplicate) {
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
