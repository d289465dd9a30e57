package safety

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// MaxEventsPerHost is how many findings of a host events are about in an interval, besides
// those that are acted on: a host that makes up processes must not fill a log.
const MaxEventsPerHost = 256

// Interval is what was done and said since the last tick. The limits hold for all of it together, so that events
// that come close together do no more. The zero Interval has nothing. Its maps must not be shared: see Clone.
type Interval struct {
	actions []*Action
	// Announced and Notified count, by host, the findings with an event and the messages to users.
	Announced, Notified map[snapshot.Hostname]int
	// More are the hosts of which it was said that they have more findings, and Held hosts
	// and users of whom it was said that their actions are held back.
	More map[snapshot.Hostname]bool
	Held map[string]bool
	// Told are the findings of which users were notified, by their IDs, and how far: what didn't arrive is sent again
	// after the next tick.
	Told map[string]int
}

// Clone is a copy that can be added to.
func (i Interval) Clone() Interval {
	return Interval{
		slices.Clip(i.actions), cloned(i.Announced), cloned(i.Notified), cloned(i.More), cloned(i.Held), cloned(i.Told),
	}
}

// cloned is a copy of a map that can be written to.
func cloned[K comparable, V any](m map[K]V) map[K]V {
	clone := make(map[K]V, len(m))
	maps.Copy(clone, m)
	return clone
}

// Allow adds further actions to those of the interval, as far as they are within the limits together. It returns
// the actions that have to wait for the next tick: all of a host, if they are too many.
func (i *Interval) Allow(limits Limits, actions []*Action) (late []*Action) {
	if len(i.actions) == 0 || limits == (Limits{}) || !i.exceeds(limits, actions) {
		i.actions = append(i.actions, actions...)
		return nil
	}
	byHost := make(map[snapshot.Hostname][]*Action)
	var hosts []snapshot.Hostname
	for _, a := range actions {
		if byHost[a.Host] == nil {
			hosts = append(hosts, a.Host)
		}
		byHost[a.Host] = append(byHost[a.Host], a)
	}
	for _, host := range hosts {
		if i.exceeds(limits, byHost[host]) {
			late = append(late, byHost[host]...)
		} else {
			i.actions = append(i.actions, byHost[host]...)
		}
	}
	return late
}

// exceeds reports whether the limits would hold any of the actions back.
func (i *Interval) exceeds(limits Limits, more []*Action) bool {
	all := make([]*Action, 0, len(i.actions)+len(more))
	for _, a := range slices.Concat(i.actions, more) {
		all = append(all, new(*a)) // which Hold marks
	}
	return len(Hold(limits, all)) > 0
}

// Actions are the items of orders. since says when the findings behind them began, by their IDs, and target
// against which user ending a process is directed.
func Actions(orders []order.OfHost, since map[string]time.Time,
	target func(snapshot.Hostname, *order.Termination) snapshot.Username,
) (list []*Action) {
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
			list = append(list, &Action{
				Host: o.Host, User: target(o.Host, t), PID: t.Process.PID,
				Since: oldest(t.Because),
			})
		}
		for k := range o.Order.Detach {
			d := &o.Order.Detach[k]
			user := gpus.UserName(d.Environment.Username, &d.Environment.UID)
			list = append(list, &Action{
				Host: o.Host, User: user, Device: d.Device, EID: d.Environment.EID,
				Since: oldest(d.Because),
			})
		}
	}
	return list
}
