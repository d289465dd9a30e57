package controllers

import (
	"cmp"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// HostsOf is what the hosts said that answered a look of a pool without a claim.
func HostsOf(pool *agent.Pool, looks []remote.Result[*snapshot.Snapshot]) (hosts []Host) {
	for i := range looks {
		if looks[i].Err == nil {
			about := pool.About(looks[i].Host)
			hosts = append(hosts, hostOf(looks[i].Host.Name, &about))
		}
	}
	return hosts
}

func hostOf(name string, about *agent.About) Host {
	h := Host{Host: name, State: none}
	said := &about.Acting
	switch {
	case !about.Can.Fence:
		h.State = cannot
	case said.NotedUnknown != "":
		h.State, h.Error = unknown, said.NotedUnknown
	case said.Noted != nil:
		n := said.Noted
		h.State, h.Controller, h.Source, h.Kind = acts, cmp.Or(n.Name, n.Controller), n.Source, n.Kind()
		h.Epoch, h.Since = n.Epoch, n.Since
		if n.Released {
			h.State = released
		}
	}
	return h
}
