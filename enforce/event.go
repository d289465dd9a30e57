package enforce

import (
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// EventKind says what an event is about.
type EventKind string

// The events of findings, hosts and limits, which Judge returns.
const (
	EventNew     EventKind = "new"     // a finding that was not there in the last cycle
	EventChanged EventKind = "changed" // a finding about which something else was decided than before
	EventDue     EventKind = "due"     // a finding that the plan acts on, in each such cycle
	EventOver    EventKind = "over"    // a finding that is no longer there
	// EventMore says that a host has Count more findings than events were about. They follow in the next cycles.
	EventMore     EventKind = "more"
	EventNotify   EventKind = "notify"    // the users of a finding are to be notified of it
	EventHostLost EventKind = "host-lost" // a host does not answer any more, or fails for another reason
	EventHostBack EventKind = "host-back"
	// EventHeld is about actions that a safety limit held back, once in an interval: the administrator has to decide.
	EventHeld EventKind = "held"
	EventNote EventKind = "note" // something could not be judged, or a host warned of it
)

// The events of orders and of kernel guards, which the controller adds.
const (
	EventActing  EventKind = "acting"  // an order is being sent
	EventOutcome EventKind = "outcome" // what came of an order
	EventGuard   EventKind = "guard"   // the order for a host's kernel guard, or what it does, has changed
)

// Event is what is new since the last cycle, or what a cycle does. Fields that a kind has no use for are empty.
type Event struct {
	Kind EventKind
	Host snapshot.Hostname
	// Resumed says that it repeats what was known before a restart: it is shown again, not recorded or sent again.
	Resumed bool

	ID       string   // of the finding
	Finding  *Finding // nil for EventOver
	Decision Decision
	Count    int          // of EventMore
	Held     *safety.Held // of EventHeld
	Text     string
	Err      error // why a host was lost, or an order failed

	// Order is what EventActing and EventOutcome are about.
	Order    *order.Order
	Findings []Finding // because of which it is sent
	Lines    []string  // that the host printed
	Warnings []string
	Outcomes []order.Outcome // one for each item
}

// Decision is what is done about a finding. The texts appear in JSON.
type Decision string

// The decisions.
const (
	DecisionAct      Decision = "act"
	DecisionWait     Decision = "wait"      // it has not been there for long enough, or hosts are missing
	DecisionHold     Decision = "hold"      // a safety limit or an operator holds all of its actions back
	DecisionDryRun   Decision = "dry-run"   // it would have been done
	DecisionStuck    Decision = "stuck"     // it was tried before, without effect
	DecisionUnderWay Decision = "under-way" // an earlier order about it is still being carried out
	DecisionNone     Decision = "none"      // there is nothing that could be done
)

// Decision is what the plan does about the finding.
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
