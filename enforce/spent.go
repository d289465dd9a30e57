package enforce

import (
	"cmp"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Spent is what was done since the last full cycle began, with that cycle. The safety limits
// hold for all of it together, so that cycles that are closer together do no more.
type Spent struct {
	actions []*safety.Action
	events  map[snapshot.Hostname]int
}

// Begin begins with the plan of a full cycle.
func (s *Spent) Begin(plan *Plan) { *s = Spent{actions: counted(plan)} }

// Allow reports whether a plan of JudgeEarly and its events are within the limits, and counts them
// if they are. Otherwise none of it may be done: the next full cycle decides.
func (s *Spent) Allow(limits safety.Limits, plan *Plan, events []Event) bool {
	if plan.Held() || limits.Paused != "" || !s.roomFor(events) {
		return false
	}
	more := counted(plan)
	if len(more) > 0 && limits != (safety.Limits{}) {
		all := make([]*safety.Action, 0, len(s.actions)+len(more))
		for _, list := range [][]*safety.Action{s.actions, more} {
			for _, a := range list {
				all = append(all, new(*a)) // which Hold marks
			}
		}
		if len(safety.Hold(limits, all)) > 0 {
			return false
		}
	}
	s.actions = append(s.actions, more...)
	if s.events == nil {
		s.events = make(map[snapshot.Hostname]int)
	}
	for i := range events {
		s.events[events[i].Host]++
	}
	return true
}

// roomFor reports whether no host has more events between two full cycles than in one: what a
// host makes up fills neither the record nor the screen faster then.
func (s *Spent) roomFor(events []Event) bool {
	more := make(map[snapshot.Hostname]int)
	for i := range events {
		host := events[i].Host
		if more[host]++; s.events[host]+more[host] > MaxEventsPerHost {
			return false
		}
	}
	return true
}

// counted are the actions of a plan. A process counts for its own user, or for that of a finding if that isn't known.
func counted(plan *Plan) []*safety.Action {
	users := make(map[string]snapshot.Username, len(plan.Findings))
	for i := range plan.Findings {
		users[plan.Findings[i].ID] = plan.Findings[i].User
	}
	return actionsOf(plan, func(_ snapshot.Hostname, t *order.Termination) (user snapshot.Username) {
		if t.Process.Unproved() {
			return "" // it counts for no user
		}
		user = gpus.UserName(t.Process.CountedUser(), t.Process.CountedUID())
		for _, id := range t.Because {
			user = cmp.Or(user, users[id])
		}
		return user
	})
}
