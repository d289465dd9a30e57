package safety

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Hold sets Held of the actions that are held back, and returns who is affected by a
// limit, sorted. Processes are those of all hosts, in the order of the cluster.
func Hold(limits Limits, actions []*Action, processes []Processes) []Held {
	if limits.Paused != "" {
		for _, a := range actions {
			a.Held = &Held{Because: limits.Paused, paused: true}
		}
		return nil
	}
	l := newLimiter(limits, actions, processes)
	l.holdEach(l.users, limits.PerUser, perUser)
	l.holdEach(l.hosts, limits.PerHost, perHost)
	l.holdMost()
	if limits.Throttle {
		l.release()
	}
	return l.result()
}

// limiter decides which actions of a plan are held.
type limiter struct {
	limits  Limits
	actions []*Action
	fleet   tally
	users   []*group // sorted by name
	hosts   []*group // in the cluster's order
	byUser  map[snapshot.Username]*group
	byHost  map[snapshot.Hostname]*group
	held    []*Held
}

// group are the actions against one user, or on one host.
type group struct {
	tally
	user    snapshot.Username
	host    snapshot.Hostname
	isHost  bool // it is the group of a host
	actions []*Action
	// shared are the GPU processes of a user by host, or of a host by user.
	shared []*share
}

// share is how many GPU processes a user and a host have in common, while they
// count.
type share struct {
	user, host *group
	n          int
}

func newLimiter(limits Limits, actions []*Action, processes []Processes) *limiter {
	l := &limiter{limits: limits, actions: actions, byUser: make(map[snapshot.Username]*group), byHost: make(map[snapshot.Hostname]*group)}
	for i := range processes {
		l.addHost(&processes[i])
	}
	for _, a := range actions {
		user, host := l.user(a.User), l.byHost[a.Host]
		user.actions, host.actions = append(user.actions, a), append(host.actions, a)
		l.count(a, 1)
	}
	slices.SortFunc(l.users, func(a, b *group) int { return cmp.Compare(a.user, b.user) })
	for _, u := range l.users {
		u.processes = l.fleet.processes
	}
	return l
}

func (l *limiter) addHost(p *Processes) {
	host := &group{host: p.Host, isHost: true}
	l.byHost[p.Host], l.hosts = host, append(l.hosts, host)
	for name, n := range p.ByUser {
		host.processes += n
		user := l.user(name)
		s := &share{user, host, n}
		user.shared, host.shared = append(user.shared, s), append(host.shared, s)
	}
	l.fleet.processes += host.processes
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

// count adds an action to what is going to be done, or takes it away.
func (l *limiter) count(a *Action, n int) {
	l.fleet.add(a, n)
	l.byUser[a.User].add(a, n)
	l.byHost[a.Host].add(a, n)
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
	on, onlyThere := g.host, g.isHost
	if !g.isHost {
		on, onlyThere = g.mostlyOn()
	}
	held := &Held{User: g.user, Host: on, Because: because}
	l.held = append(l.held, held)
	for _, a := range g.actions {
		if a.Held == nil && (!onlyThere || a.Host == on) {
			a.Held = held
			l.count(a, -1)
		}
	}
	for _, s := range g.shared {
		if !onlyThere || s.host.host == on {
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
// user who has some on other hosts, too; false if there is none.
func (g *group) mostlyOn() (snapshot.Hostname, bool) {
	byHost, all := make(map[snapshot.Hostname]int), 0
	for _, a := range g.actions {
		if a.Held == nil {
			byHost[a.Host]++
			all++
		}
	}
	for h, n := range byHost {
		if n >= manyOnOneHost && n < all && 4*n >= 3*all {
			return h, true
		}
	}
	return "", false
}

// release carries out held actions after all, as far as the limits allow: on each
// host those of the oldest findings first, and of the hosts one after the other,
// so that one that makes up old findings doesn't use the limits up.
func (l *limiter) release() {
	held := slices.DeleteFunc(slices.Clone(l.actions), func(a *Action) bool { return a.Held == nil })
	slices.SortFunc(held, func(a, b *Action) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Device, b.Device), cmp.Compare(a.EID, b.EID))
	})
	turn, turns := make(map[*Action]int, len(held)), make(map[snapshot.Hostname]int)
	for _, a := range held {
		turn[a] = turns[a.Host]
		turns[a.Host]++
	}
	slices.SortStableFunc(held, func(a, b *Action) int { return cmp.Compare(turn[a], turn[b]) })
	for _, a := range held {
		l.count(a, 1)
		if l.fits(a) {
			a.Held.partly = true
			a.Held = nil
		} else {
			l.count(a, -1)
		}
	}
}

func (l *limiter) fits(a *Action) bool {
	return l.limits.PerUser.over(l.byUser[a.User].tally, perUser) == "" && l.limits.PerHost.over(l.byHost[a.Host].tally, perHost) == "" &&
		l.limits.Fleet.over(l.fleet, perFleet) == ""
}

// result are the held actions by user and host.
func (l *limiter) result() []Held {
	for _, a := range l.actions {
		switch {
		case a.Held == nil:
		case a.PID == 0:
			a.Held.Detachments++
		default:
			a.Held.Terminations++
		}
	}
	var list []Held
	for _, h := range l.held {
		if h.Terminations+h.Detachments > 0 {
			list = append(list, *h)
		}
	}
	slices.SortFunc(list, func(a, b Held) int { return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Host, b.Host)) })
	return list
}
