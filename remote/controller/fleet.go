package controller

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// hostAnswer is what came of asking a host for its snapshot.
type hostAnswer struct {
	host     remote.Host
	askedAt  time.Time // by the monotonic clock, and when it came
	came     time.Time
	took     time.Duration
	round    int
	snapshot *snapshot.Snapshot
	err      error
}

// knownFleet is what is known of all hosts: the last answer of each. It is a value.
type knownFleet struct {
	hosts []remote.Host
	last  []snapshot.Host // of each of hosts
	round int             // of the last tick
	Look
}

// of returns the fleet with other hosts. What is known of those with the same name stays.
func (f knownFleet) of(hosts []remote.Host) knownFleet {
	last := make([]snapshot.Host, len(hosts))
	for i, h := range hosts {
		last[i] = snapshot.Host{Name: snapshot.Hostname(h.Name), Labels: h.Labels}
		if at := slices.IndexFunc(f.hosts, func(known remote.Host) bool { return known.Name == h.Name }); at >= 0 {
			last[i] = f.last[at]
			last[i].Labels = h.Labels
		}
	}
	f.hosts, f.last = hosts, last
	return f
}

// with returns the fleet with answers that came. Those of a host that is not in the fleet any more are dropped.
func (f knownFleet) with(answers []hostAnswer, known Machines, about func(remote.Host) agent.About) knownFleet {
	byName := make(map[string]*hostAnswer, len(answers))
	for i := range answers {
		byName[answers[i].host.Name] = &answers[i]
	}
	f.last = slices.Clone(f.last)
	for i := range f.last {
		h := &f.last[i]
		if h.IsNew = false; byName[string(h.Name)] == nil {
			continue
		}
		a := byName[string(h.Name)]
		h.Snapshot, h.Err, h.AskedAt, h.Round, h.IsNew = a.snapshot, a.err, a.askedAt, a.round,
			time.Since(a.came) <= enforce.FreshFor
		if h.Took = a.took; h.Err != nil {
			h.Snapshot = nil
		}
	}
	f.Look = merge(f.hosts, snapshot.Cluster{Hosts: f.last}, known, about)
	return f
}

// asNew is the cluster as if all hosts had just answered.
func (f *knownFleet) asNew() snapshot.Cluster {
	hosts := slices.Clone(f.Cluster.Hosts)
	for i := range hosts {
		hosts[i].IsNew = true
	}
	return snapshot.Cluster{Hosts: hosts}
}

// answered reports whether any host has answered, or failed.
func (f *knownFleet) answered() bool {
	return slices.ContainsFunc(f.last, func(h snapshot.Host) bool { return h.Snapshot != nil || h.Err != nil })
}

// lastOf is the last snapshot of a host; nil for none.
func (f *knownFleet) lastOf(name string) *snapshot.Snapshot {
	at := slices.IndexFunc(f.hosts, func(h remote.Host) bool { return h.Name == name })
	if at < 0 {
		return nil
	}
	return f.last[at].Snapshot
}
