package safety

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Hold sets Held of the actions that limits hold back, and returns what was held, sorted by user and host. It always
// holds all actions against a user on a host (a pair) together. First it holds pairs over a limit per user, then on
// each host over a limit per host the largest pairs, and finally, over a limit for the fleet, the largest pairs of the
// hosts with most actions. So a host that makes up processes, of any number of users, can't stop enforcement on other
// hosts.
func Hold(limits Limits, actions []*Item) []Held {
	if limits.Paused != "" {
		for _, a := range actions {
			a.Held = &Held{Because: limits.Paused, paused: true}
		}
		return nil
	}
	fleet := groupsOf(limits, actions)
	var held []*Held
	for _, host := range fleet.parts {
		for _, pair := range host.parts {
			held = append(held, pair.hold()...)
		}
		held = append(held, host.hold()...)
	}
	held = append(held, fleet.hold()...)
	if limits.Throttle {
		fleet.allow()
	}
	return count(held, actions)
}

// group are actions of the fleet, on a host, or against a user on a host (a pair). Its limit applies to those that
// aren't held.
type group struct {
	limit                     Limit
	prefix, suffix            string // of the reason, and of the limit's key in a policy
	terminations, detachments int    // not held
	in                        *group // nil for the fleet
	parts                     []*group

	user    snapshot.Username // of a pair; "" for all unknown users
	host    snapshot.Hostname
	actions []*Item // of a pair
}

// groupsOf returns the fleet with its hosts, sorted by name, and their pairs, sorted by user. Unknown users may be
// many: no limit per user applies to them.
func groupsOf(limits Limits, actions []*Item) *group {
	fleet := &group{limit: limits.Fleet, prefix: "in all "}
	var host, pair *group
	for _, a := range slices.SortedStableFunc(slices.Values(actions), func(a, b *Item) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.User, b.User))
	}) {
		isNew := host == nil || host.host != a.Host
		if isNew {
			host = &group{limit: limits.PerHost, suffix: "-per-host", in: fleet, host: a.Host}
			fleet.parts = append(fleet.parts, host)
		}
		if isNew || pair.user != a.User {
			pair = &group{limit: limits.PerUser, suffix: "-per-user", in: host, host: a.Host, user: a.User}
			if a.User == "" {
				pair.limit = Limit{}
			}
			host.parts = append(host.parts, pair)
		}
		pair.actions, a.of = append(pair.actions, a), pair
		pair.count(a, 1)
	}
	return fleet
}

// count adds (n = 1) or removes (n = -1) an action that isn't held.
func (g *group) count(a *Item, n int) {
	for ; g != nil; g = g.in {
		if a.PID == 0 {
			g.detachments += n
		} else {
			g.terminations += n
		}
	}
}

// over returns the exceeded limit, or "", and a function that counts the actions of that kind in a group.
func (g *group) over() (why string, size func(*group) int) {
	switch l := g.limit; {
	case l.Terminations > 0 && g.terminations > l.Terminations:
		return fmt.Sprintf("%s%d processes would be terminated, and max-terminations%s is %d", g.prefix, g.terminations,
			g.suffix, l.Terminations), func(g *group) int { return g.terminations }
	case l.Detachments > 0 && g.detachments > l.Detachments:
		return fmt.Sprintf("%s%d GPUs would be detached, and max-detachments%s is %d", g.prefix, g.detachments,
			g.suffix, l.Detachments), func(g *group) int { return g.detachments }
	}
	return "", nil
}

func (g *group) hold() (all []*Held) {
	for why, size := g.over(); why != ""; why, size = g.over() {
		pair := g
		for len(pair.parts) > 0 {
			pair = slices.MaxFunc(pair.parts, func(a, b *group) int { return cmp.Compare(size(a), size(b)) })
		}
		held := &Held{User: pair.user, Host: pair.host, Because: why}
		for _, a := range pair.actions {
			a.Held = held
			pair.count(a, -1)
		}
		all = append(all, held)
	}
	return all
}

// allow carries out held actions after all, as far as the limits allow: on each host those of the oldest findings
// first. Hosts take turns, one action each: one that makes up old findings can't use up the limits.
func (g *group) allow() {
	waiting := make([][]*Item, len(g.parts)) // on each host
	for i, host := range g.parts {
		for _, pair := range host.parts {
			if pair.actions[0].Held != nil { // a pair is held as a whole
				waiting[i] = append(waiting[i], pair.actions...)
			}
		}
		slices.SortFunc(waiting[i], func(a, b *Item) int {
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Device, b.Device),
				cmp.Compare(a.EID, b.EID))
		})
	}
	for turn, left := 0, true; left; turn++ {
		left = false
		for _, onHost := range waiting {
			if turn < len(onHost) {
				left = true
				onHost[turn].allow()
			}
		}
	}
}

func (a *Item) allow() {
	a.of.count(a, 1)
	for g := a.of; g != nil; g = g.in {
		if why, _ := g.over(); why != "" {
			a.of.count(a, -1)
			return
		}
	}
	a.Held.partly, a.Held = true, nil
}

func count(held []*Held, actions []*Item) []Held {
	for _, a := range actions {
		switch {
		case a.Held == nil:
		case a.PID == 0:
			a.Held.Detachments++
		default:
			a.Held.Terminations++
		}
	}
	var list []Held
	for _, h := range held {
		if h.Terminations+h.Detachments > 0 {
			list = append(list, *h)
		}
	}
	slices.SortFunc(list, func(a, b Held) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Host, b.Host))
	})
	return list
}
