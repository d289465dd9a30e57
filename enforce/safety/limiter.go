package safety

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Hold sets Held of the actions that are held back, and returns the users and hosts affected by a limit, sorted. It
// holds all actions against a user on a host together (a pair): first the pairs over a limit per user; then, on each
// host over a limit per host, the largest pair until the rest is within the limit; at last, while the rest is over a
// limit for the fleet, the largest pair on the host with most actions. So a host that makes up processes, of any number
// of users, can't stop enforcement on other hosts.
func Hold(limits Limits, actions []*Action) []Held {
	if limits.Paused != "" {
		for _, a := range actions {
			a.Held = &Held{Because: limits.Paused, paused: true}
		}
		return nil
	}
	l := newLimiter(limits, actions)
	for _, h := range l.hosts {
		l.holdOn(h)
	}
	for {
		why, size := limits.Fleet.over(l.fleet, perFleet)
		if why == "" {
			break
		}
		most := slices.MaxFunc(l.hosts, func(a, b *hostActions) int {
			return cmp.Compare(size(a.tally), size(b.tally))
		})
		l.hold(most.largest(size), "in all "+why)
	}
	if limits.Throttle {
		l.release()
	}
	return l.result()
}

type limiter struct {
	limits  Limits
	actions []*Action
	fleet   tally
	hosts   []*hostActions // sorted by name
	held    []*Held
}

type hostActions struct {
	tally
	pairs []*pair // sorted by user
}

// pair are the actions against a user on a host; "" are all unknown users.
type pair struct {
	tally
	on      *hostActions
	user    snapshot.Username
	host    snapshot.Hostname
	actions []*Action
}

func newLimiter(limits Limits, actions []*Action) *limiter {
	l := &limiter{limits: limits, actions: slices.Clone(actions)}
	slices.SortStableFunc(l.actions, func(a, b *Action) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.User, b.User))
	})
	var h *hostActions
	var p *pair
	for _, a := range l.actions {
		newHost := p == nil || p.host != a.Host
		if newHost {
			h = &hostActions{}
			l.hosts = append(l.hosts, h)
		}
		if newHost || p.user != a.User {
			p = &pair{on: h, user: a.User, host: a.Host}
			h.pairs = append(h.pairs, p)
		}
		p.actions, a.of = append(p.actions, a), p
		l.count(a, 1)
	}
	return l
}

// count adds an action to those that aren't held (n = 1), or takes it away (n = -1).
func (l *limiter) count(a *Action, n int) {
	for _, t := range []*tally{&l.fleet, &a.of.on.tally, &a.of.tally} {
		t.add(a, n)
	}
}

// holdOn holds what is over the limits per user and per host. No limit per user is for unknown users, who may be many.
func (l *limiter) holdOn(h *hostActions) {
	for _, p := range h.pairs {
		if why, _ := l.limits.PerUser.over(p.tally, perUser); why != "" && p.user != "" {
			l.hold(p, why)
		}
	}
	for {
		why, size := l.limits.PerHost.over(h.tally, perHost)
		if why == "" {
			return
		}
		l.hold(h.largest(size), why)
	}
}

func (h *hostActions) largest(size func(tally) int) *pair {
	return slices.MaxFunc(h.pairs, func(a, b *pair) int { return cmp.Compare(size(a.tally), size(b.tally)) })
}

func (l *limiter) hold(p *pair, because string) {
	held := &Held{User: p.user, Host: p.host, Because: because}
	l.held = append(l.held, held)
	for _, a := range p.actions {
		a.Held = held
		l.count(a, -1)
	}
}

// release carries out held actions after all, as far as the limits allow. On each host the oldest finding comes first.
// The hosts take turns, one action each: one that makes up old findings can't use up the limits.
func (l *limiter) release() {
	var waiting []*Action
	for _, h := range l.hosts {
		first := len(waiting)
		for _, p := range h.pairs {
			if p.actions[0].Held != nil { // all of a pair are held, or none
				waiting = append(waiting, p.actions...)
			}
		}
		onHost := waiting[first:]
		slices.SortFunc(onHost, func(a, b *Action) int {
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Device, b.Device),
				cmp.Compare(a.EID, b.EID))
		})
		for turn, a := range onHost {
			a.turn = turn
		}
	}
	slices.SortStableFunc(waiting, func(a, b *Action) int { return cmp.Compare(a.turn, b.turn) })
	for _, a := range waiting {
		l.count(a, 1)
		ofUser, _ := l.limits.PerUser.over(a.of.tally, perUser)
		onHost, _ := l.limits.PerHost.over(a.of.on.tally, perHost)
		inAll, _ := l.limits.Fleet.over(l.fleet, perFleet)
		if (ofUser == "" || a.User == "") && onHost == "" && inAll == "" {
			a.Held.partly = true
			a.Held = nil
		} else {
			l.count(a, -1)
		}
	}
}

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
	slices.SortFunc(list, func(a, b Held) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Host, b.Host))
	})
	return list
}
