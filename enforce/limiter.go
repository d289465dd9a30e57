package enforce

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// limit holds back what is over the limits, and takes it out of the plan.
func (e *evaluation) limit(plan *Plan) {
	if !e.mayExceed(plan) {
		return
	}
	l := newLimiter(e, plan)
	l.holdEach(l.users, l.limits.PerUser, perUser)
	l.holdEach(l.hosts, l.limits.PerHost, perHost)
	l.holdMost()
	if l.limits.Throttle {
		l.release()
	}
	l.apply(plan)
}

// mayExceed reports whether a limit may be exceeded at all. Users and hosts are
// counted only then.
func (e *evaluation) mayExceed(plan *Plan) bool {
	l, all := e.fleet.Limits, tally{}
	for _, r := range plan.Reports {
		all.terminations += len(r.Report.Terminate)
		all.detachments += len(r.Report.Detach)
	}
	for _, h := range e.hosts {
		all.processes += len(h.snapshot.Processes)
	}
	return len(plan.Reports) > 0 && (l.PerUser != Limit{} || l.PerHost != Limit{} || l.Fleet.over(all, perFleet) != "")
}

// limiter decides which actions of a plan are held.
type limiter struct {
	limits  Limits
	actions []*action
	fleet   tally
	users   []*group // sorted by name
	hosts   []*group // in the cluster's order
	byUser  map[snapshot.Username]*group
	byHost  map[*hostView]*group
	held    []*Held
}

// group are the actions against one user, or on one host.
type group struct {
	tally
	user    snapshot.Username
	host    *hostView
	actions []*action
	// shared are the GPU processes of a user by host, or of a host by user.
	shared []*share
}

// share is how many GPU processes a user and a host have in common, while they
// count.
type share struct {
	user, host *group
	n          int
}

func newLimiter(e *evaluation, plan *Plan) *limiter {
	l := &limiter{limits: e.fleet.Limits, byUser: make(map[snapshot.Username]*group), byHost: make(map[*hostView]*group)}
	for _, h := range e.hosts {
		host := &group{host: h}
		l.byHost[h], l.hosts = host, append(l.hosts, host)
		l.countProcesses(h, host)
	}
	since := make(map[string]time.Time, len(plan.Findings))
	for i := range plan.Findings {
		since[plan.Findings[i].ID] = plan.Findings[i].Since
	}
	for _, h := range e.hosts {
		l.addActions(h, since)
	}
	slices.SortFunc(l.users, func(a, b *group) int { return cmp.Compare(a.user, b.user) })
	for _, u := range l.users {
		u.processes = l.fleet.processes
	}
	return l
}

func (l *limiter) countProcesses(h *hostView, host *group) {
	host.processes = len(h.snapshot.Processes)
	l.fleet.processes += host.processes
	byUser := make(map[*group]int)
	for i := range h.snapshot.Processes {
		byUser[l.user(h.userOf(&h.snapshot.Processes[i]))]++
	}
	for user, n := range byUser {
		s := &share{user, host, n}
		user.shared, host.shared = append(user.shared, s), append(host.shared, s)
	}
}

// user is the group of a user. Processes of unknown users are in one that is
// never held: their hosts are.
func (l *limiter) user(name snapshot.Username) *group {
	u := l.byUser[name]
	if u == nil {
		u = &group{user: name}
		l.byUser[name] = u
		if name != "" {
			l.users = append(l.users, u)
		}
	}
	return u
}

func (l *limiter) addActions(h *hostView, since map[string]time.Time) {
	for _, t := range h.draft.terminate {
		p := &t.Process
		l.add(&action{user: h.targetOf(p), host: h, pid: p.PID}, t.Because, since)
	}
	for key, d := range h.draft.detach {
		user := cmp.Or(d.Environment.Username, nameOfUID(d.Environment.UID))
		l.add(&action{user: user, host: h, detach: true, device: key}, d.Because, since)
	}
}

// targetOf is the user against whom ending a process is directed: its own, or
// where the host doesn't report that, the user of its environment.
func (h *hostView) targetOf(p *snapshot.Process) snapshot.Username {
	if user := h.userOf(p); user != "" {
		return user
	}
	if env := h.environmentOf(p); env != nil {
		return env.env.Username
	}
	return ""
}

func (l *limiter) add(a *action, because []string, since map[string]time.Time) {
	for _, id := range because {
		if at := since[id]; a.since.IsZero() || at.Before(a.since) {
			a.since = at
		}
	}
	user, host := l.user(a.user), l.byHost[a.host]
	user.actions, host.actions = append(user.actions, a), append(host.actions, a)
	l.actions = append(l.actions, a)
	l.count(a, 1)
}

// count adds an action to what is going to be done, or takes it away.
func (l *limiter) count(a *action, n int) {
	l.fleet.add(a, n)
	l.byUser[a.user].add(a, n)
	l.byHost[a.host].add(a, n)
}

// holdEach holds the groups that are over their own limit.
func (l *limiter) holdEach(groups []*group, limit Limit, suffix string) {
	for _, g := range groups {
		for why := limit.over(g.tally, suffix); why != ""; why = limit.over(g.tally, suffix) {
			l.hold(g, why)
		}
	}
}

// holdMost holds the users and hosts with most actions until the rest is within
// the limit for the fleet.
func (l *limiter) holdMost() {
	for {
		why := l.limits.Fleet.over(l.fleet, perFleet)
		most := l.most(l.limits.Fleet)
		if why == "" || most == nil {
			return
		}
		l.hold(most, "in all "+why)
	}
}

// most is the user with most of those actions that are too many. A host comes
// before a user only if it has more than twice as many: then no single user
// explains them.
func (l *limiter) most(limit Limit) *group {
	size := func(g *group) int { return g.terminations }
	if limit.Detachments > 0 && l.fleet.detachments > limit.Detachments {
		size = func(g *group) int { return g.detachments }
	}
	largest := func(groups []*group) (most *group, n int) {
		for _, g := range groups {
			if size(g) > n {
				most, n = g, size(g)
			}
		}
		return most, n
	}
	user, ofUser := largest(l.users)
	host, ofHost := largest(l.hosts)
	if ofHost > 2*ofUser {
		return host
	}
	return user
}

// hold holds all actions of a group; of a user whose actions are mostly on one
// host those there, so that a host that makes up processes of a user doesn't keep
// the others from that user. The GPU processes no longer count either, so that
// those that are made up don't raise a limit in percent.
func (l *limiter) hold(g *group, because string) {
	on := g.host
	if on == nil {
		on = g.mostlyOn()
	}
	held := &Held{User: g.user, Because: because}
	if on != nil {
		held.Host = on.name
	}
	l.held = append(l.held, held)
	for _, a := range g.actions {
		if a.held == nil && (on == nil || a.host == on) {
			a.held = held
			l.count(a, -1)
		}
	}
	for _, s := range g.shared {
		if on == nil || s.host.host == on {
			l.fleet.processes -= s.n
			s.host.processes -= s.n
			s.n = 0
		}
	}
}

// manyOnOneHost is more actions against a user on one host than there are without a
// mistake or false reports.
const manyOnOneHost = 32

// mostlyOn is the host that has many and three quarters of the actions against a
// user who has some on other hosts, too; nil when there is none.
func (g *group) mostlyOn() *hostView {
	byHost, all := make(map[*hostView]int), 0
	for _, a := range g.actions {
		if a.held == nil {
			byHost[a.host]++
			all++
		}
	}
	for h, n := range byHost {
		if n >= manyOnOneHost && n < all && 4*n >= 3*all {
			return h
		}
	}
	return nil
}

// release carries out held actions after all, as far as the limits allow: on each
// host those of the oldest findings first, and of the hosts one after the other,
// so that one that makes up old findings doesn't use the limits up.
func (l *limiter) release() {
	held := slices.DeleteFunc(slices.Clone(l.actions), func(a *action) bool { return a.held == nil })
	slices.SortFunc(held, func(a, b *action) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.host.name, b.host.name), cmp.Compare(a.pid, b.pid),
			cmp.Compare(a.device.device, b.device.device), cmp.Compare(a.device.eid, b.device.eid))
	})
	turn, turns := make(map[*action]int, len(held)), make(map[*hostView]int)
	for _, a := range held {
		turn[a] = turns[a.host]
		turns[a.host]++
	}
	slices.SortStableFunc(held, func(a, b *action) int { return cmp.Compare(turn[a], turn[b]) })
	for _, a := range held {
		l.count(a, 1)
		if l.fits(a) {
			a.held.partly = true
			a.held = nil
		} else {
			l.count(a, -1)
		}
	}
}

func (l *limiter) fits(a *action) bool {
	return l.limits.PerUser.over(l.byUser[a.user].tally, perUser) == "" && l.limits.PerHost.over(l.byHost[a.host].tally, perHost) == "" &&
		l.limits.Fleet.over(l.fleet, perFleet) == ""
}
