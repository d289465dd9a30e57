package controller

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// Round is what was seen, decided and done since a tick, by one or more judgements. Users read "cycle" for it.
type Round struct {
	Run    string // of the controller, as in the log
	Number int
	// Early counts the judgements since the tick, without the first. Earlier is Early of the round before.
	Early, Earlier int
	Start          time.Time
	Took           time.Duration // until all hosts had answered and deliveries had ended, or until the next tick
	Ended          bool          // sinks get it for the last time, complete

	Cluster    snapshot.Cluster
	Duplicates []Duplicate                     // left out of Cluster
	Via        map[snapshot.Hostname]agent.Via // how each host that answered was asked, where the Link knows
	Plan       enforce.Plan
	DryRun     bool
	Standby    bool // this controller only looks: another one acts, or may
	Stopped    bool // nothing more is judged: because of StopAtFailure, or because the run is ending

	Results  []OrderResult  // of orders that ended in this round, also of those sent earlier
	UnderWay []order.OfHost // orders without an outcome yet
	Notified []Notified     // the messages about findings, also those that failed
	// Unrecorded is why the record could not be kept. Without ActUnrecorded, nothing is done until it can be.
	Unrecorded    error
	RecordChanged bool             // Unrecorded differs from that of the last round
	Hold          *operator.OnHold // an operator's stop of all rules; nil for none
	Exemptions    policy.ExemptionList

	Records []audit.Record // of the deliveries that ended last
	Items   []audit.Record // of the orders of the last judgement
	// Policy and Now are those of the last judgement. About returns what earlier answers told about a host.
	Policy enforce.Policy
	Now    time.Time
	About  func(snapshot.Hostname) agent.About

	judged     int            // how many times
	sent       []order.OfHost // Plan.Orders after the last recorded judgement
	unrecorded string         // the text of Unrecorded in the last round
}

// Decision is what is done about a finding.
func (round *Round) Decision(f *enforce.Finding) enforce.Decision {
	d := f.Decision()
	if d == enforce.DecisionAct && round.DryRun {
		return enforce.DecisionDryRun
	}
	return d
}

func (round *Round) see(f *knownFleet) {
	before := round.Duplicates // what was New in this round stays New, to be shown
	round.Cluster, round.Duplicates, round.Via = f.Cluster, slices.Clone(f.Duplicates), f.Via
	for i := range round.Duplicates {
		d := &round.Duplicates[i]
		d.New = d.New || slices.ContainsFunc(before,
			func(known Duplicate) bool { return known.New && known.Name == d.Name })
	}
}

// Unable says why nothing can be done on hosts that answered, or why the whole order failed there.
func (round *Round) Unable() map[snapshot.Hostname]string {
	reasons := make(map[snapshot.Hostname]string)
	for i := range round.Cluster.Hosts {
		h := &round.Cluster.Hosts[i]
		if h.Err == nil && h.Snapshot != nil && h.Snapshot.Trial != nil && h.Snapshot.Trial.Unable != "" {
			reasons[h.Name] = h.Snapshot.Trial.Unable
		}
	}
	for i := range round.Results {
		if r := &round.Results[i]; r.Err == nil && reasons[r.Host] == "" {
			if why := r.Undone(order.StatusFailed); why != "" {
				reasons[r.Host] = why
			}
		}
	}
	return reasons
}

// add adds a plan to those since the tick. A deferred finding stays as it was before, and one that was acted on is
// kept when it is gone.
func (round *Round) add(plan enforce.Plan, policy enforce.Policy, now time.Time) {
	before := round.Plan
	round.Plan, round.Policy, round.Now, round.Early = plan, policy, now, round.judged
	if round.judged++; round.judged == 1 {
		return
	}
	round.Plan.Orders = slices.Concat(round.sent, plan.Orders)
	round.Plan.HeldUsers = heldIn(before.HeldUsers, plan.HeldUsers)
	round.Plan.HeldHosts = heldIn(before.HeldHosts, plan.HeldHosts)
	index := make(map[string]int, len(plan.Findings))
	for i := range plan.Findings {
		index[plan.Findings[i].ID] = i
	}
	round.Plan.Findings = slices.Clone(plan.Findings)
	for i := range before.Findings {
		f := &before.Findings[i]
		at, there := index[f.ID]
		switch {
		case there && plan.Findings[at].Deferred:
			round.Plan.Findings[at] = *f
		case !there && f.Decision() == enforce.DecisionAct:
			round.Plan.Findings = append(round.Plan.Findings, *f)
		}
	}
}

// heldIn is what the limits held back since the tick: the latest for each user and host.
func heldIn(before, latest []safety.Held) []safety.Held {
	all := slices.Clone(latest)
	for _, held := range before {
		if !slices.ContainsFunc(latest, func(h safety.Held) bool { return h.Host == held.Host && h.User == held.User }) {
			all = append(all, held)
		}
	}
	return all
}

// label numbers, uniquely in the run, the judgement that add will add next.
func (round *Round) label() string {
	if round.judged == 0 {
		return fmt.Sprint(round.Number)
	}
	return fmt.Sprintf("%d.%d", round.Number, round.judged)
}

// Notified is the result of a message to a user about a finding.
type Notified struct {
	notify.UserMessage
	Terminals int  // on which it was shown
	Kept      bool // for the next login of the user
	Err       error
}

// Sink consumes events, each once and in order: of judgements, operators and outcomes. It also gets a round after its
// first judgement if that was recorded, when it has Ended and, without a policy, at answers. It must not wait.
type Sink interface {
	Consume(round *Round, events []enforce.Event)
}

// AtEnd returns the round as sinks get it last.
func (round *Round) AtEnd() *Round {
	ended := *round
	ended.Ended = true
	return &ended
}
