package enforce

import (
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// EventKind says what an event is about.
type EventKind string

// The events of Judge.
const (
	EventNew     EventKind = "new"     // a finding that the last judgement didn't have
	EventChanged EventKind = "changed" // the decision on a finding changed
	EventDue     EventKind = "due"     // the plan acts on a finding; repeated in each such judgement
	EventOver    EventKind = "over"    // a finding is gone
	// EventMore: a host has Count more findings, with events in later judgements.
	EventMore     EventKind = "more"
	EventNotify   EventKind = "notify"    // the users of a finding have to be notified
	EventHostLost EventKind = "host-lost" // a host stopped answering, or fails for another reason
	EventHostBack EventKind = "host-back"
	// EventHeld: a limit held back actions, once in an interval. The administrator has to decide.
	EventHeld EventKind = "held"
	EventNote EventKind = "note" // something could not be judged, or a host warned of it
)

// The events that the controller adds, of orders and kernel guards.
const (
	EventActing  EventKind = "acting"  // an order is being sent
	EventOutcome EventKind = "outcome" // the outcome of an order
	EventGuard   EventKind = "guard"   // the order for a host's kernel guard, or its state, has changed
)

// Event is news since the last judgement, or an action. Unused fields are empty.
type Event struct {
	Kind EventKind
	Host snapshot.Hostname
	// Resumed repeats what was known before a restart. It is shown, but not recorded or sent again.
	Resumed bool

	ID       string   // of the finding
	Finding  *Finding // nil for EventOver
	Decision Decision
	Count    int          // of EventMore
	Held     *safety.Held // of EventHeld
	Text     string
	Err      error // why a host was lost, or an order failed

	// Order is the one of EventActing and EventOutcome.
	Order    *order.Order
	Findings []Finding // that led to it
	Lines    []string  // printed by the host
	Warnings []string
	Outcomes []order.Outcome // one for each item
}

// Decision is what a plan does about a finding. The texts appear in JSON.
type Decision string

const (
	DecisionAct      Decision = "act"
	DecisionWait     Decision = "wait"      // its warning still runs, or it waits for something else
	DecisionHold     Decision = "hold"      // a safety limit or an operator holds back all of its actions
	DecisionDryRun   Decision = "dry-run"   // it would be acted on
	DecisionStuck    Decision = "stuck"     // an earlier order had no effect
	DecisionUnderWay Decision = "under-way" // an earlier order still runs
	DecisionNone     Decision = "none"      // there is nothing to do
)

// Decision is what the plan does about it.
func (f *Finding) Decision() Decision {
	switch {
	case f.Held:
		return DecisionHold
	case f.Pending:
		return DecisionWait
	case len(f.Terminate)+len(f.Detach) > 0:
		return DecisionAct
	case f.UnderWay > 0:
		return DecisionUnderWay
	case len(f.Stuck) > 0:
		return DecisionStuck
	}
	return DecisionNone
}
