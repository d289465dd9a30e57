package safety

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// MaxEventsPerHost is how many findings of a host events are about in a cycle, besides
// those that are acted on: a host that makes up processes must not fill a log.
const MaxEventsPerHost = 256

// Spent is what was done since the last full cycle began, with that cycle. The limits hold for all of it
// together, so that cycles that are closer together do no more. The zero Spent has nothing.
type Spent struct {
	actions []*Action
	events  map[snapshot.Hostname]int
}

// Begin begins with what a full cycle does.
func (s *Spent) Begin(actions []*Action) { *s = Spent{actions: actions} }

// Allow reports whether further actions, and events on hosts, are within the limits, and counts them if they are. No
// host has more events between two full cycles than in one: what it makes up fills neither the record nor the screen
// faster then.
func (s *Spent) Allow(limits Limits, actions []*Action, events map[snapshot.Hostname]int) bool {
	for host, n := range events {
		if s.events[host]+n > MaxEventsPerHost {
			return false
		}
	}
	if limits.Paused != "" || len(actions) > 0 && limits != (Limits{}) && s.exceeds(limits, actions) {
		return false
	}
	s.actions = append(s.actions, actions...)
	if s.events == nil {
		s.events = make(map[snapshot.Hostname]int)
	}
	for host, n := range events {
		s.events[host] += n
	}
	return true
}

// exceeds reports whether the limits would hold any of the actions back.
func (s *Spent) exceeds(limits Limits, more []*Action) bool {
	all := make([]*Action, 0, len(s.actions)+len(more))
	for _, a := range slices.Concat(s.actions, more) {
		all = append(all, new(*a)) // which Hold marks
	}
	return len(Hold(limits, all)) > 0
}

// Actions are the items of orders. since says when the findings behind them began, by their IDs, and target
// against which user ending a process is directed.
func Actions(orders []order.OfHost, since map[string]time.Time, target func(snapshot.Hostname, *order.Termination) snapshot.Username) (list []*Action) {
	oldest := func(because []string) (at time.Time) {
		for _, id := range because {
			if at.IsZero() || since[id].Before(at) {
				at = since[id]
			}
		}
		return at
	}
	for i := range orders {
		o := &orders[i]
		for k := range o.Order.Terminate {
			t := &o.Order.Terminate[k]
			list = append(list, &Action{Host: o.Host, User: target(o.Host, t), PID: t.Process.PID, Since: oldest(t.Because)})
		}
		for k := range o.Order.Detach {
			d := &o.Order.Detach[k]
			user := gpus.UserName(d.Environment.Username, &d.Environment.UID)
			list = append(list, &Action{Host: o.Host, User: user, Device: d.Device, EID: d.Environment.EID, Since: oldest(d.Because)})
		}
	}
	return list
}
