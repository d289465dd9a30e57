package audit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// Stats count actions, also of dry runs, by user and rule.
type Stats struct {
	// Rows are sorted by user and rule. An action for several rules counts in each.
	Rows  []StatsRow   `json:"rows"`
	Total ActionCounts `json:"total"` // counts each of it once
}

// StatsRow counts the actions against a user because of a rule.
type StatsRow struct {
	User snapshot.Username `json:"user"` // the uid without a name, empty for what concerned a host
	Rule enforce.Rule      `json:"rule"` // empty for what an operator had done
	ActionCounts
}

// ActionCounts are numbers of actions.
type ActionCounts struct {
	Warned     int `json:"warned"`     // findings of which the user was notified before
	Terminated int `json:"terminated"` // processes
	Detached   int `json:"detached"`   // GPUs
	Exempted   int `json:"exempted"`   // by operators
	Refused    int `json:"refused"`    // by the host
	Failed     int `json:"failed"`     // tried without success, or the outcome is unknown

	WouldTerminate int `json:"would_terminate,omitempty"` // what a dry run would have ended
	WouldDetach    int `json:"would_detach,omitempty"`
}

func (c ActionCounts) plus(d ActionCounts) ActionCounts {
	return ActionCounts{
		c.Warned + d.Warned, c.Terminated + d.Terminated, c.Detached + d.Detached,
		c.Exempted + d.Exempted, c.Refused + d.Refused, c.Failed + d.Failed,
		c.WouldTerminate + d.WouldTerminate, c.WouldDetach + d.WouldDetach,
	}
}

// Sum counts entries, which must include notices: see Filter.
func Sum(entries []HistoryEntry) Stats {
	type row struct {
		user snapshot.Username
		rule enforce.Rule
	}
	rows := make(map[row]ActionCounts)
	var s Stats
	add := func(user snapshot.Username, rules []enforce.Rule, c ActionCounts) {
		if c == (ActionCounts{}) {
			return
		}
		if len(rules) == 0 {
			rules = []enforce.Rule{""}
		}
		for _, rule := range rules {
			rows[row{user, rule}] = rows[row{user, rule}].plus(c)
		}
		s.Total = s.Total.plus(c)
	}
	for i := range entries {
		e := &entries[i]
		user := e.UserOrUID()
		for _, id := range e.warned {
			add(user, (&Record{IDs: []string{id}}).rules(), ActionCounts{Warned: 1})
		}
		add(user, e.Rules, countsOf(e))
	}
	s.Rows = make([]StatsRow, 0, len(rows))
	for r, c := range rows {
		s.Rows = append(s.Rows, StatsRow{User: r.user, Rule: r.rule, ActionCounts: c})
	}
	slices.SortFunc(s.Rows, func(a, b StatsRow) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Rule, b.Rule))
	})
	return s
}

// UserOrUID is the user, or the uid of one without a name; empty if unknown.
func (e *HistoryEntry) UserOrUID() snapshot.Username {
	if e.User == "" && e.UID != nil {
		return snapshot.Username(fmt.Sprint(*e.UID))
	}
	return e.User
}

// Nothing counts if nothing was left to do.
func countsOf(e *HistoryEntry) ActionCounts {
	switch {
	case e.Status == StatusDryRun && e.Device != nil:
		return ActionCounts{WouldDetach: 1}
	case e.Status == StatusDryRun:
		return ActionCounts{WouldTerminate: 1}
	case e.Action == "exempt" && e.Status == "":
		return ActionCounts{Exempted: 1}
	case e.Action != "":
		return ActionCounts{}
	case e.Status.Ended():
		return ActionCounts{Terminated: 1}
	}
	switch e.Status {
	case order.StatusDetached:
		return ActionCounts{Detached: 1}
	case order.StatusRefused:
		return ActionCounts{Refused: 1}
	case order.StatusFailed, order.StatusSurvived, order.StatusUnknown:
		return ActionCounts{Failed: 1}
	}
	return ActionCounts{}
}
