package controller

import (
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// Cycle is one round: what was seen, concluded and done.
type Cycle struct {
	Run    string // of the controller, as in the log
	Number int
	// Early counts the cycles between two full ones; 0 for a full one. Of such a cycle only the
	// hosts in Asked were asked: all others are as in the last full cycle. Number is that of
	// the full one.
	Early int
	Asked map[snapshot.Hostname]bool
	// Earlier is how many early cycles there were before a full one.
	Earlier int
	Start   time.Time
	Took    time.Duration // set by Loop
	// Ended says that sinks get it for the last time, with all that was done in it.
	Ended   bool
	Cluster snapshot.Cluster
	// Duplicates are the names that are left out of Cluster because another name
	// leads to the same machine.
	Duplicates []Duplicate
	// Via is how each host that answered was reached, where the Link knows.
	Via    map[snapshot.Hostname]agent.Via
	Plan   enforce.Plan
	DryRun bool
	// Standby says that this controller may not act, since another one does or may: it only looks.
	Standby bool
	// Results are those of the orders that ended in this cycle, in the order of the plan;
	// some may have been sent in earlier ones. UnderWay are those that hosts are
	// still carrying out.
	Results  []OrderResult
	UnderWay []order.OfHost
	// Stopped says that nothing was judged: because of StopAtFailure, or because the
	// run is ending.
	Stopped bool
	// Notified are the users who were notified of a finding, or could not be.
	Notified []Delivery
	// Unrecorded is why the record could not be kept. Without Results, nothing
	// was done for that.
	Unrecorded error
	// RecordChanged says that Unrecorded is not that of the last cycle.
	RecordChanged bool
	// Hold is why operators had rules do nothing, nil if they did not; Exemptions are
	// those that operators made.
	Hold       *operator.OnHold
	Exemptions policy.ExemptionList

	// Records are of what came of the orders that ended last.
	Records []audit.Record

	askedAt  map[string]time.Time              // by the monotonic clock, when each host that answered was asked for its snapshot
	answered map[snapshot.Hostname]remote.Host // under which name each host of Cluster answered
}

// Decision is what the cycle does about a finding.
func (cycle *Cycle) Decision(f *enforce.Finding) enforce.Decision {
	d := f.Decision()
	if d == enforce.DecisionAct && cycle.DryRun {
		return enforce.DecisionDryRun
	}
	return d
}

// AtEnd is the cycle as sinks get it when it has ended.
func (cycle *Cycle) AtEnd() *Cycle {
	ended := *cycle
	ended.Ended = true
	return &ended
}

// OrderResult is an order that was sent to its host, and what came of it.
type OrderResult struct {
	Cycle     int // in which it was sent
	Host      snapshot.Hostname
	Order     order.Order
	Execution agent.Execution
	Err       error
	// Findings are those because of which it was sent.
	Findings []enforce.Finding
}

// Sink consumes events, once each and in order, and then the cycle that has Ended, without events. It is never
// called from two goroutines at a time and must not wait for anything slow. The record and the
// messages to users are not sinks: the record comes before anything is sent, and
// messages are sent to the hosts with the orders.
type Sink interface {
	Consume(cycle *Cycle, events []enforce.Event)
}
