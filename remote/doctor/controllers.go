package doctor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot/doctor"
)

// askActing asks the host which controller acts there, if nothing failed before.
func (e *examination) askActing(ctx context.Context) {
	switch sudo := e.found[doctor.Sudo]; {
	case e.Acting == nil || e.hasFailed():
		return
	case sudo.Cause == "sudo-lacks-serve", sudo.Cause == "no-root":
		e.add(doctor.Unknown(doctor.Controller, "only root's genv says it (`genv usage serve`)"))
		return
	case e.Genv.Protocol == 0: // genv 1.4.3 can't say it
		e.acting = &agent.Acting{}
		return
	}
	answer, err := e.Acting(ctx, e.host)
	if err != nil {
		e.add(doctor.Unknown(doctor.Controller, "%s", doctor.OneLine(err.Error())))
		return
	}
	e.acting = &answer
}

func (e *examination) hasFailed() bool {
	for _, c := range e.found {
		if c.Status == doctor.Failed {
			return true
		}
	}
	return false
}

// judgeControllers adds which controllers act, and whether they should.
func (d *Document) judgeControllers(e *Election) {
	source, others := sourceOf(d.Hosts, e), false
	for i := range d.Hosts {
		h := &d.Hosts[i]
		if h.acting == nil {
			continue
		}
		c := checkActing(h.acting, e, source)
		others = others || c.Cause == "other-controller"
		h.Checks[len(h.Checks)-1] = c
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
	for i := range hosts {
		if a := hosts[i].acting; acts(a) {
			count[a.Noted.Source]++
		}
	}
	for i := range hosts {
		if a := hosts[i].acting; acts(a) && count[a.Noted.Source] > count[best] {
			best = a.Noted.Source
		}
	}
	return best
}

func acts(a *agent.Acting) bool { return a != nil && a.Noted != nil && !a.Noted.Released }

// checkActing judges the controller of a host, by the source that should count its epochs.
func checkActing(a *agent.Acting, e *Election, source string) doctor.Check {
	is := func(status doctor.Status, cause doctor.Cause, detail, step string) doctor.Check {
		return problem(doctor.Controller, status, cause, detail, step)
	}
	const takeOver = "start the controllers of this election once with --take-over"
	n, seen := cmp.Or(a.Noted, new(fence.Note)), describe(a.Noted)
	own := n.Source == source
	switch {
	case a.Unknown != "":
		return is(doctor.Failed, "controller-unknown", "genv can't read which controller may act, so none may: "+a.Unknown,
			"look at controller.json in /var/lib/genv on the host: if it is damaged and one controller runs, remove it")
	case !a.Refuses && e != nil:
		return is(doctor.Warning, "genv-refuses-none", "its genv can't refuse a controller that was replaced", upgradeStep)
	case !a.Refuses:
		return doctor.Good(doctor.Controller, "its genv lets each controller act")
	case e != nil && e.Err != nil:
		return doctor.Unknown(doctor.Controller, "%s; whether it should isn't known without etcd", seen)
	case own && e.isBehind(n):
		return is(doctor.Failed, "later-epoch", "the host knows a later epoch of this election than that of the leader, and refuses the leader: etcd was set up again as it was, or restored",
			"end all controllers of this election, give etcd another --initial-cluster-token or --leader another key, and start one controller once with --take-over")
	case acts(a) && own:
		return doctor.Good(doctor.Controller, "%s", seen)
	case acts(a) && e == nil:
		return is(doctor.Warning, "other-controller", seen+", and another controller on other hosts", "if that isn't intended, end one of them, and start the other one once with --take-over")
	case acts(a) && e.Leader != nil && e.Leader.Name == n.Name:
		return is(doctor.Failed, "other-cluster", "the leader acts with an epoch from another etcd cluster, so no standby can take over here", "end all controllers of this election, and start one once with --take-over")
	case acts(a):
		return is(doctor.Failed, "other-controller", seen+", so the host refuses the controllers of this election", "end it, or "+takeOver)
	case e != nil && n.Kind() == fence.KindEtcd && !own:
		return is(doctor.Failed, "other-election", seen+", and the host waits for the next leader of its election: the controllers of this one are refused", takeOver)
	case e != nil && e.Leader != nil:
		return is(doctor.Failed, "no-controller", seen+", so nothing is enforced here", "check that hosts.yaml has this host on all controllers, and look at `journalctl -u genv-controller`")
	}
	return doctor.Good(doctor.Controller, "%s", seen)
}

// isBehind reports whether a host knows a later epoch of the election than etcd.
func (e *Election) isBehind(n *fence.Note) bool {
	return e != nil && e.Leader != nil && n.Epoch > e.Epoch
}

// describe says which controller acts, or acted last.
func describe(n *fence.Note) string {
	if n == nil {
		return "no controller has acted yet"
	}
	seen := fmt.Sprintf("%s, since %s by epoch %d of %s", quoted(cmp.Or(n.Name, n.Controller)), n.Since.UTC().Format(time.RFC3339), n.Epoch, origin(n))
	if n.Released {
		return "no controller acts; the last one was " + seen
	}
	return "acts: " + seen
}

// origin is what counts the epochs of a controller.
func origin(n *fence.Note) string {
	if n.Kind() == fence.KindEtcd {
		return "etcd"
	}
	return "its state folder"
}
