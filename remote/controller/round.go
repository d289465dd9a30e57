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

// Round is what was seen, concluded and done since a tick, at which all hosts are asked, by one or more judgements.
type Round struct {
	Run    string // of the controller, as in the log
	Number int
	// Early is how often the fleet was judged since the tick, besides the first. Earlier is Early of the round before.
	Early, Earlier int
	Start          time.Time
	Took           time.Duration // until all hosts had answered and deliveries had ended, or until the next tick
	Ended          bool          // sinks get it for the last time, with all that was done in it

	Cluster    snapshot.Cluster
	Duplicates []Duplicate                     // are left out of Cluster
	Via        map[snapshot.Hostname]agent.Via // how each host that answered was reached, where the Link knows
	Plan       enforce.Plan
	DryRun     bool
	Standby    bool // another controller acts, or may: this one only looks
	Stopped    bool // nothing was judged: because of StopAtFailure, or because the run is ending

	Results  []OrderResult  // of orders that ended in this round, also of ones sent earlier
	UnderWay []order.OfHost // orders that go on
	Notified []Notified     // who was notified of a finding, or could not be
	// Unrecorded is why the record could not be kept. Then nothing was done, unless there are Results.
	Unrecorded    error
	RecordChanged bool             // Unrecorded is not that of the last round
	Hold          *operator.OnHold // why operators had rules do nothing; nil if they did not
	Exemptions    policy.ExemptionList

	Records []audit.Record // of what came of the deliveries that ended last
	Items   []audit.Record // of what is done because of what was judged last
	// Policy is what was judged by, Now when, and About what is known of a host without asking it: for companions.
	Policy enforce.Policy
	Now    time.Time
	About  func(snapshot.Hostname) agent.About

	judged     int            // how many times
	sent       []order.OfHost // those of Plan.Orders that could be recorded
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

// see takes in what is known of the hosts.
func (round *Round) see(f *knownFleet) {
	before := round.Duplicates // what was New in this round stays so, to be shown
	round.Cluster, round.Duplicates, round.Via = f.Cluster, slices.Clone(f.Duplicates), f.Via
	for i := range round.Duplicates {
		d := &round.Duplicates[i]
		d.New = d.New || slices.ContainsFunc(before,
			func(known Duplicate) bool { return known.New && known.Name == d.Name })
	}
}

// Unable says why nothing can be done on hosts that answered, or what was ordered there failed as a whole.
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

// add adds a plan to those since the tick. A finding that waits for a look stays as it was, and one
// that was acted on is kept when it is gone.
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

// heldIn is what the limits held back since the tick: of each user and host what was judged last.
func heldIn(before, latest []safety.Held) []safety.Held {
	all := slices.Clone(latest)
	for _, held := range before {
		if !slices.ContainsFunc(latest, func(h safety.Held) bool { return h.Host == held.Host && h.User == held.User }) {
			all = append(all, held)
		}
	}
	return all
}

// label is the number, unique in its run, of a judgement that add has not added yet.
func (round *Round) label() string {
	if round.judged == 0 {
		return fmt.Sprint(round.Number)
	}
	return fmt.Sprintf("%d.%d", round.Number, round.judged)
}

// Notified is what became of a message to a user about a finding.
type Notified struct {
	notify.UserMessage
	Terminals int  // on which it was shown
	Kept      bool // for the next login of the user
	Err       error
}

// Sink consumes events, once each and in order, and last the round that has Ended. Like a Companion it must not wait.
type Sink interface {
	Consume(round *Round, events []enforce.Event)
}

// AtEnd is the round as sinks get it last.
func (round *Round) AtEnd() *Round {
	ended := *round
	ended.Ended = true
	return &ended
}
