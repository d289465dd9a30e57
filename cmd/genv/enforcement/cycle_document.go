package enforcement

import (
	"math"
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// CycleDocument is the JSON of one cycle.
type CycleDocument struct {
	Schema string  `json:"schema"`
	Cycle  int     `json:"cycle"`
	Time   string  `json:"time"`
	TookMS float64 `json:"took_ms"`
	// Early is how many judgements there were between ticks since the last document. Their orders are in this one,
	// and findings that they ended in none.
	Early    int                             `json:"early_cycles,omitempty"`
	DryRun   bool                            `json:"dry_run"`
	Hosts    int                             `json:"hosts"`
	Answered int                             `json:"answered"` // how many of them did
	Via      map[snapshot.Hostname]agent.Via `json:"via"`
	Findings []findingDocument               `json:"findings"`
	Notes    []enforce.Note                  `json:"notes"` // what can't be judged
	Orders   []orderDocument                 `json:"reports"`
	Failed   []remote.Failure                `json:"failed"`
	// Duplicates were left out.
	Duplicates []controller.Duplicate `json:"duplicates"`
	HeldUsers  []safety.Held          `json:"held_users"`           // against whom safety limits held actions back
	HeldHosts  []safety.Held          `json:"held_hosts"`           // likewise, of unknown users
	Unrecorded string                 `json:"unrecorded,omitempty"` // why the record can't be written
	Notified   []notifiedDocument     `json:"told"`                 // users who were notified
	// Hold is an operator's, if there is one.
	Hold       *operator.OnHold         `json:"hold,omitempty"`
	Exemptions policy.ExemptionList     `json:"exemptions"`
	Standby    bool                     `json:"standby,omitempty"`  // another controller leads, or may
	Election   *election.StatusDocument `json:"election,omitempty"` // with --leader
	ByUser     []userDocument           `json:"by_user,omitzero"`   // with --by user
}

type notifiedDocument struct {
	Host      snapshot.Hostname `json:"host,omitempty"`
	UID       snapshot.UID      `json:"uid"`
	ID        string            `json:"id"`
	Terminals int               `json:"terminals"`      // that showed it
	Kept      bool              `json:"kept,omitempty"` // for the next login
	Error     string            `json:"error,omitempty"`
}

type findingDocument struct {
	enforce.Finding
	Line     string           `json:"line"`
	Decision enforce.Decision `json:"decision"`
}

type orderDocument struct {
	Host      snapshot.Hostname   `json:"host"`
	Terminate []terminateDocument `json:"terminate"`
	Detach    []enforce.DeviceRef `json:"detach"`
	// Sent is false in a dry run.
	Sent bool `json:"sent"`
	// UnderWay says that the host still does it: outcomes are in a later document.
	UnderWay bool            `json:"under_way,omitempty"`
	Cycle    int             `json:"cycle,omitempty"` // in which it was sent, if earlier
	Lines    []string        `json:"lines"`           // what the host printed
	Outcomes []order.Outcome `json:"outcomes"`        // empty when the host can't tell
}

type terminateDocument struct {
	PID     snapshot.PID           `json:"pid"`
	EID     snapshot.EnvID         `json:"eid,omitempty"`
	Devices []snapshot.DeviceIndex `json:"devices"`
}

func documentOf(round *controller.Round, failures []remote.Failure) CycleDocument {
	document := CycleDocument{
		Schema: "genv.remote.enforce/1", Cycle: round.Number, Time: round.Start.Format("2006-01-02T15:04:05.000Z07:00"),
		TookMS: math.Round(round.Took.Seconds()*1e6) / 1e3,
		Early:  round.Earlier, DryRun: round.DryRun, Hosts: len(round.Cluster.Hosts),
		Answered: round.Cluster.CountAnswered(), Via: round.Via,
		Findings: []findingDocument{}, Notes: append([]enforce.Note{}, round.Plan.Notes...), Orders: []orderDocument{},
		Failed:     failures,
		Duplicates: append([]controller.Duplicate{}, round.Duplicates...), Notified: []notifiedDocument{},
		Hold: round.Hold, Exemptions: append(policy.ExemptionList{}, round.Exemptions...),
		HeldUsers: append([]safety.Held{}, round.Plan.HeldUsers...),
		HeldHosts: append([]safety.Held{}, round.Plan.HeldHosts...),
	}
	for i := range round.Plan.Findings {
		f := &round.Plan.Findings[i]
		document.Findings = append(document.Findings,
			findingDocument{Finding: *f, Line: f.Line(), Decision: round.Decision(f)})
	}
	if round.Unrecorded != nil {
		document.Unrecorded = round.Unrecorded.Error()
	}
	for _, t := range round.Notified {
		notified := notifiedDocument{Host: t.Host, UID: t.UID, ID: t.ID, Terminals: t.Terminals, Kept: t.Kept}
		if t.Err != nil {
			notified.Error = t.Err.Error()
		}
		document.Notified = append(document.Notified, notified)
	}
	for _, a := range round.Results {
		if !slices.ContainsFunc(round.Plan.Orders, func(o order.OfHost) bool { return o.Order.ID == a.Order.ID }) {
			r := orderDocumentOf(round, order.OfHost{Host: a.Host, Order: a.Order})
			r.Cycle = a.Cycle
			document.Orders = append(document.Orders, r)
		}
	}
	for _, o := range round.Plan.Orders {
		document.Orders = append(document.Orders, orderDocumentOf(round, o))
	}
	return document
}

func orderDocumentOf(round *controller.Round, o order.OfHost) orderDocument {
	document := orderDocument{
		Host: o.Host, Terminate: []terminateDocument{}, Detach: []enforce.DeviceRef{},
		Lines: []string{}, Outcomes: []order.Outcome{},
	}
	for _, t := range o.Order.Terminate {
		document.Terminate = append(document.Terminate, terminateDocument{
			PID: t.Process.PID, EID: t.Process.EID, Devices: t.Process.Indices(),
		})
	}
	for _, d := range o.Order.Detach {
		document.Detach = append(document.Detach, enforce.DeviceRef{
			Host: o.Host, Index: d.Device, EID: d.Environment.EID,
		})
	}
	for _, a := range round.Results {
		if o.Order.ID != "" && a.Order.ID == o.Order.ID {
			document.Sent = true
			document.Lines = append(document.Lines, a.Execution.Lines...)
			document.Outcomes = append(document.Outcomes, a.Execution.Outcomes...)
		}
	}
	document.UnderWay = slices.ContainsFunc(round.UnderWay,
		func(u order.OfHost) bool { return o.Order.ID != "" && u.Order.ID == o.Order.ID })
	document.Sent = document.Sent || document.UnderWay
	return document
}
