package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot/doctor"
)

// askActing asks the host which controller acts there, if nothing failed before.
func (e *examination) askActing(ctx context.Context) {
	hasFailed := func(c doctor.Check) bool { return c.Status == doctor.Failed }
	sudo := e.found[doctor.Sudo]
	switch {
	case e.Acting == nil || slices.ContainsFunc(slices.Collect(maps.Values(e.found)), hasFailed):
	case sudo.Cause == "no-root":
		e.add(doctor.Unknown(doctor.Controller, "only root's genv says it (`genv usage serve`)"))
	case e.Genv.Protocol == 0: // genv 1.4.3 can't say it
		e.acting = &agent.Acting{}
	default:
		if answer, err := e.Acting(ctx, e.host); err != nil {
			e.add(doctor.Unknown(doctor.Controller, "%v", err))
		} else {
			e.acting = &answer
		}
	}
}

// judgeControllers adds which controllers act, and whether they should.
func (d *Document) judgeControllers(e *Election) {
	source, others := sourceOf(d.Hosts, e), false
	for i := range d.Hosts {
		h := &d.Hosts[i]
		if h.acting == nil {
			continue
		}
		c := h.Check(doctor.Controller)
		*c = checkActing(h.acting, e, source)
		others = others || c.Cause == "other-controller"
		h.Status = doctor.Overall(h.Checks)
	}
	d.Controllers = e.checks(others, d.Time)
}

// sourceOf is what should count the epochs on hosts: the election or, if there is none, what does on
// most hosts; of several, that of the first host.
func sourceOf(hosts []Host, e *Election) string {
	if e != nil {
		return fence.ElectionSource(e.Cluster, e.Key)
	}
	count, best := map[string]int{}, ""
	for _, h := range hosts {
		if acts(h.acting) {
			count[h.acting.Noted.Source]++
		}
	}
	for _, h := range hosts {
		if acts(h.acting) && count[h.acting.Noted.Source] > count[best] {
			best = h.acting.Noted.Source
		}
	}
	return best
}

func acts(a *agent.Acting) bool { return a != nil && a.Noted != nil && !a.Noted.Released }

// checkActing judges the controller of a host, by the source that should count its epochs.
func checkActing(a *agent.Acting, e *Election, source string) doctor.Check {
	n, seen := cmp.Or(a.Noted, new(fence.Note)), describe(a.Noted)
	own, elects := n.Source == source, e != nil
	leads := elects && e.Leader != nil
	outside := acts(a) && !own
	c := doctor.First(doctor.Controller,
		doctor.If(a.Unknown != "", "controller-unknown", "genv can't read which controller may act, so none may: %s", a.Unknown),
		doctor.If(!a.Refuses && elects, "genv-refuses-none", "its genv can't refuse a controller that was replaced"),
		doctor.If(!a.Refuses, "", "its genv lets each controller act"),
		doctor.If(elects && e.Err != nil, doctor.Unsure, "%s; whether it should isn't known without etcd", seen),
		doctor.If(own && leads && n.Epoch > e.Epoch, "later-epoch", "the host knows a later epoch of this election than that of the leader, and refuses the leader: etcd was set up again as it was, or restored"),
		doctor.If(acts(a) && own, "", "%s", seen),
		doctor.If(outside && !elects, "other-controller", "%s, and another controller on other hosts", seen).
			Next("if that isn't intended, end one of them, and start the other one once with --take-over"),
		doctor.If(outside && leads && e.Leader.Name == n.Name, "other-cluster", "the leader acts with an epoch from another etcd cluster, so no standby can take over here"),
		doctor.If(outside, "other-controller", "%s, so the host refuses the controllers of this election", seen),
		doctor.If(elects && n.Kind() == fence.KindEtcd && !own, "other-election", "%s, and the host waits for the next leader of its election: the controllers of this one are refused", seen),
		doctor.If(leads, "no-controller", "%s, so nothing is enforced here", seen),
		doctor.If(true, "", "%s", seen))
	if c.Cause == "other-controller" && !elects {
		c.Status = doctor.Warning
	}
	return c
}

// describe says which controller acts, or acted last.
func describe(n *fence.Note) string {
	if n == nil {
		return "no controller has acted yet"
	}
	origin := "its state folder"
	if n.Kind() == fence.KindEtcd {
		origin = "etcd"
	}
	seen := fmt.Sprintf("%s, since %s by epoch %d of %s", quoted(cmp.Or(n.Name, n.Controller)), n.Since.UTC().Format(time.RFC3339), n.Epoch, origin)
	if n.Released {
		return "no controller acts; the last one was " + seen
	}
	return "acts: " + seen
}
