package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// electionOf puts together what etcd says. Controllers come in the order of their roles.
func electionOf(key string, leader *election.Leader, epoch, cluster uint64, registered []election.Registration, memory time.Time) *Election {
	e := &Election{Key: key, Cluster: fmt.Sprintf("%x", cluster), cluster: cluster, Controllers: []Controller{}, Memory: memory}
	for i := range registered {
		r := &registered[i]
		c := Controller{
			ID: r.ID, Name: r.Name, Role: standby, Host: r.Host, PID: r.PID, Version: r.Version, Since: r.Since,
			Cycle: r.Cycled, Interval: r.Interval, Hosts: r.Hosts, Answered: r.Answered,
			HostsDigest: r.HostsDigest, Policy: r.Policy,
		}
		switch {
		case leader != nil && r.Candidate == leader.Candidate:
			c.Role = leading
		case r.Lost:
			c.Role = lost
		}
		e.Controllers = append(e.Controllers, c)
	}
	if leader != nil {
		e.Leads, e.Epoch, e.Since = true, epoch, leader.Since
		if e.leader() == nil { // it leads before it is registered, or is of another version
			e.Controllers = append(e.Controllers, Controller{ID: leader.ID, Name: leader.Name, Role: leading})
		}
	}
	order := []Role{leading, standby, lost}
	slices.SortStableFunc(e.Controllers, func(a, b Controller) int {
		return cmp.Compare(slices.Index(order, a.Role), slices.Index(order, b.Role))
	})
	return e
}

// leader is the controller that leads; nil for none.
func (e *Election) leader() *Controller {
	if i := slices.IndexFunc(e.Controllers, func(c Controller) bool { return c.Role == leading }); i >= 0 {
		return &e.Controllers[i]
	}
	return nil
}

// count is how many controllers have a role.
func (e *Election) count(role Role) (n int) {
	for i := range e.Controllers {
		if e.Controllers[i].Role == role {
			n++
		}
	}
	return n
}

// judge finds which hosts agree, and what is not in order.
func (d *Document) judge() {
	d.Problems = []Problem{}
	g := d.groups()
	d.judgeEtcd()
	if e := d.Election; e != nil {
		d.judgeElection(e, g)
	}
	d.judgeHosts(g)
}

// maxShown is how many characters of a controller's name are shown.
const maxShown = 100

func (d *Document) add(text, next string) { d.Problems = append(d.Problems, Problem{text, next}) }

// late is after how many intervals without a cycle a leader is late, and after how long at least.
const (
	late      = 3
	lateAfter = 30 * time.Second
	// aheadAfter is by how much the clock of a leader may be ahead of this one.
	aheadAfter = 2 * time.Minute
)

func (d *Document) judgeElection(e *Election, g *groups) {
	if !e.Leads {
		d.judgeVacancy(e, g)
	}
	d.judgeLeader(e)
	d.judgeReach(e)
	d.judgeConfiguration(e)
	d.judgeLost(e)
	if e.Leads && e.count(standby) == 0 {
		d.add("there is no standby: if the leader fails, nothing is enforced", "start another controller with the same --leader on another jump host")
	}
}

func (d *Document) judgeLost(e *Election) {
	for i := range e.Controllers {
		if c := &e.Controllers[i]; c.Role == lost {
			d.add(text.Quoted(c.Name, maxShown)+" is lost: it was killed, or can't reach etcd", "look at `systemctl status genv-controller` on "+orItsHost(c.Host))
		}
	}
}

// judgeVacancy says that no controller leads, and what helps.
func (d *Document) judgeVacancy(e *Election, g *groups) {
	const vacant = "no controller leads, so nothing is enforced"
	switch {
	case len(g.others) > 0:
		d.add("no controller of this election leads, so nothing is enforced except by the controllers named below", "first decide which controllers are to act: hosts on which another one acts refuse those of this election")
	case e.count(standby) > 0:
		d.add(vacant, "wait for half a minute: a standby takes over; if none does, look at `journalctl -u genv-controller` on their machines")
	default:
		d.add(vacant, "start one: `systemctl start genv-controller`, and look at `journalctl -u genv-controller`")
	}
}

// judgeLeader says whether the leader is late, if there is one that is registered.
func (d *Document) judgeLeader(e *Election) {
	l := e.leader()
	if l == nil || l.PID == 0 { // it is not registered, so its cycles aren't known
		return
	}
	limit := max(time.Duration(late*l.Interval*float64(time.Second)), lateAfter)
	next := "look at `systemctl status genv-controller` on " + orItsHost(l.Host) + ", and compare the clocks"
	switch age := d.Time.Sub(l.Cycle); {
	case l.Cycle.IsZero() && d.Time.Sub(e.Since) > limit:
		d.add("the leader has not completed a cycle since it became the leader", next)
	case l.Cycle.IsZero():
	case age > limit:
		d.add("the last cycle of the leader ended "+render.Age(age), next)
	case -age > aheadAfter:
		d.add("the clock of the leader is ahead of this one by more than 2 minutes, so whether its cycles are late isn't known", next)
	}
}

// judgeReach says that the leader reaches less than half of its hosts, if a standby reaches more:
// hosts that are down aren't a reason to change the leader.
func (d *Document) judgeReach(e *Election) {
	l := e.leader()
	if l == nil || l.Answered == nil || *l.Answered*2 >= l.Hosts {
		return
	}
	for i := range e.Controllers {
		if c := &e.Controllers[i]; c.Role == standby && c.Answered != nil && *c.Answered > *l.Answered {
			d.add(fmt.Sprintf("only %d of %d hosts answer the leader, and %d answer %s", *l.Answered, l.Hosts, *c.Answered, text.Quoted(c.Name, maxShown)),
				"if `journalctl -u genv-controller` on "+orItsHost(l.Host)+" says that it can't connect to them, stop it: `systemctl stop genv-controller` there; the standby reaches them")
			return
		}
	}
}

// judgeConfiguration says which standbys would enforce something else than the leader.
func (d *Document) judgeConfiguration(e *Election) {
	l := e.leader()
	if l == nil {
		return
	}
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	for i := range e.Controllers {
		c := &e.Controllers[i]
		if c.Role != standby {
			continue
		}
		name := text.Quoted(c.Name, maxShown)
		if differ(c.HostsDigest, l.HostsDigest) {
			d.add(name+" has other hosts than the leader: if it leads, it enforces those", "use the same hosts.yaml, then `systemctl reload genv-controller` on "+orItsHost(c.Host))
		}
		if differ(c.Policy, l.Policy) {
			d.add(name+" has another policy than the leader: if it leads, it enforces that", "use the same policy.yaml, then `systemctl reload genv-controller` on "+orItsHost(c.Host))
		}
	}
}

func orItsHost(host string) string { return cmp.Or(text.Printable(host), "its host") }
