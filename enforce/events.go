package enforce

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// EventKind says what an event is about.
type EventKind string

// The events of findings, hosts and limits, which Judge returns.
const (
	// EventNew is a finding that was not there in the last cycle.
	EventNew EventKind = "new"
	// EventChanged is a finding about which something else was decided than before.
	EventChanged EventKind = "changed"
	// EventDue is a finding that the plan acts on. It comes in each such cycle.
	EventDue EventKind = "due"
	// EventOver is a finding that is no longer there.
	EventOver EventKind = "over"
	// EventMore says that a host has Count more findings than those that events
	// were about; they follow in the next cycles.
	EventMore EventKind = "more"
	// EventNotify says that the users of a finding are to be notified of it.
	EventNotify EventKind = "notify"
	// EventHostLost and EventHostBack are about a host that does not answer any
	// more, or fails for another reason than before, and one that answers again.
	EventHostLost EventKind = "host-lost"
	EventHostBack EventKind = "host-back"
	// EventHeld is about actions that a safety limit held back. It comes in each
	// such cycle, since the administrator has to decide.
	EventHeld EventKind = "held"
	// EventNote is something that could not be judged, or that a host warned of.
	EventNote EventKind = "note"
)

// The events of reports, which the controller adds.
const (
	// EventActing is about a report that is going to be sent.
	EventActing EventKind = "acting"
	// EventOutcome is what came of a report.
	EventOutcome EventKind = "outcome"
)

// Event is what is new since the last cycle, or what a cycle does. Fields that a
// kind has no use for are empty.
type Event struct {
	Kind EventKind
	Host snapshot.Hostname
	// Resumed says that it repeats, after a restart, what was known before: it is
	// shown on the screen again, not recorded or sent again.
	Resumed bool

	ID       string   // of the finding
	Finding  *Finding // nil for EventOver
	Decision Decision
	Count    int          // of EventMore
	Held     *safety.Held // of EventHeld
	Text     string
	Err      error // why a host was lost, or a report failed

	// Report is what EventActing and EventOutcome are about, Lines what the host
	// printed, and Outcomes one for each item.
	Report   *Report
	Findings []Finding // because of which it is sent
	Lines    []string
	Warnings []string
	Outcomes []Outcome
}

// Decision is what is done about a finding. The texts appear in JSON.
type Decision string

// The decisions.
const (
	DecisionAct      Decision = "act"
	DecisionWait     Decision = "wait"      // it has not been there for long enough, or hosts are missing
	DecisionHold     Decision = "hold"      // a safety limit holds all of its actions back
	DecisionDryRun   Decision = "dry-run"   // it would have been done
	DecisionStuck    Decision = "stuck"     // it was tried before, without effect
	DecisionUnderWay Decision = "under-way" // an earlier report about it is still being carried out
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

// MaxEventsPerHost is how many findings of a host events are about in a cycle, besides
// those that are acted on: a host that makes up processes must not fill a log.
const MaxEventsPerHost = 256

// maxHeldEvents is about how many hosts and users there are events in a cycle when
// limits hold their actions back. Plan has all of them.
const maxHeldEvents = 64

// announce compares the plan with what was known. It returns what is new, and remembers
// that in the next memory.
func (e *judgement) announce(plan *Plan, cluster snapshot.Cluster) []Event {
	events := e.hostEvents(cluster)
	e.forgetHosts()
	events = append(events, e.findingEvents(plan)...)
	events = append(events, e.overEvents()...)
	all := slices.Concat(plan.HeldHosts, plan.HeldUsers)
	for _, held := range all[:min(len(all), maxHeldEvents)] {
		events = append(events, Event{Kind: EventHeld, Host: held.Host, Held: &held, Text: held.String()})
	}
	return append(events, e.noteEvents(plan, cluster)...)
}

func (e *judgement) findingEvents(plan *Plan) []Event {
	var events, notify []Event
	announced, more := make(map[snapshot.Hostname]int), make(map[snapshot.Hostname]int)
	notified := make(map[snapshot.Hostname]int)
	for i := range plan.Findings {
		f := &plan.Findings[i]
		before, known := e.before.Findings[f.ID]
		on := f.affects()
		event := Event{Host: f.Host, ID: f.ID, Finding: f, Decision: f.Decision()}
		now := KnownFinding{Host: f.Host, Decision: event.Decision, Notified: before.Notified}
		if kind := changeOf(before, known, now); kind != "" || e.before.Resumed {
			if kind != "" && announced[on] >= MaxEventsPerHost && now.Decision != DecisionAct {
				more[on]++
				if known {
					e.next.Findings[f.ID] = before
				}
				continue
			}
			if kind != "" {
				announced[on]++
			}
			event.Kind, event.Resumed = cmp.Or(kind, EventNew), kind == ""
			events = append(events, event)
		}
		if now.Decision == DecisionAct {
			event.Kind, event.Resumed = EventDue, false
			events = append(events, event)
		}
		if stage := f.wantsNotified(); plan.TellUsers && now.Notified < stage && notified[on] < MaxEventsPerHost {
			notified[on]++
			now.Notified = stage
			event.Kind, event.Resumed = EventNotify, false
			notify = append(notify, event)
		}
		e.next.Findings[f.ID] = now
	}
	for _, host := range slices.Sorted(maps.Keys(more)) {
		events = append(events, Event{Kind: EventMore, Host: host, Count: more[host]})
	}
	return append(events, notify...)
}

// affects is the host that a finding is about or, for one about a user, the first host
// on which something ends because of it. What one host makes up must not use up the
// events of others.
func (f *Finding) affects() snapshot.Hostname {
	switch {
	case f.Host == "" && len(f.Detach) > 0:
		return f.Detach[0].Host
	case f.Host == "" && len(f.Terminate) > 0:
		return f.Terminate[0].Host
	}
	return f.Host
}

// changeOf is the kind of event of a finding, "" for none.
func changeOf(before KnownFinding, known bool, now KnownFinding) EventKind {
	switch {
	case !known:
		return EventNew
	case before.Decision != now.Decision:
		return EventChanged
	}
	return ""
}

// wantsNotified is what the users of a finding are to be notified of: the finding when
// it is first seen, and the action. They are not notified of what a safety limit holds
// back: that may be a mistake, or made up by a host.
func (f *Finding) wantsNotified() Notified {
	switch {
	case f.Held:
		return 0
	case f.Pending:
		return NotifiedOfWarning
	}
	return NotifiedOfAction
}

// overEvents are of findings that are no longer there. Those of a host that did not
// answer may still be there.
func (e *judgement) overEvents() []Event {
	var over []Event
	for id, known := range e.before.Findings {
		_, present := e.next.Findings[id]
		switch {
		case present:
		case e.next.Hosts[known.Host].Lost != "":
			e.next.Findings[id] = known
		default:
			over = append(over, Event{Kind: EventOver, Host: known.Host, ID: id})
		}
	}
	slices.SortFunc(over, func(a, b Event) int { return cmp.Compare(a.ID, b.ID) })
	return over
}

func (e *judgement) hostEvents(cluster snapshot.Cluster) []Event {
	var events []Event
	for i := range cluster.Hosts {
		h := &cluster.Hosts[i]
		before := e.before.Hosts[h.Name]
		now := KnownHost{Answered: before.Answered || h.Snapshot != nil, Lost: lostBecause(h)}
		e.next.Hosts[h.Name] = now
		switch changed := before.Lost != now.Lost; {
		case now.Lost != "" && (changed || e.before.Resumed):
			events = append(events, Event{Kind: EventHostLost, Host: h.Name, Err: h.Err, Resumed: !changed})
		case now.Lost == "" && changed:
			events = append(events, Event{Kind: EventHostBack, Host: h.Name})
		}
	}
	return events
}

// lostBecause is the kind of the error of a host that has no snapshot, if its error
// has one (a remote.Error has); "" for a host that answered.
func lostBecause(h *snapshot.Host) string {
	if h.Err == nil && h.Snapshot != nil {
		return ""
	}
	var classified interface{ Kind() string }
	if errors.As(h.Err, &classified) {
		return classified.Kind()
	}
	return "error"
}

// noteEvents are the notes of the plan and the warnings of the hosts that were not
// there in the last cycle.
func (e *judgement) noteEvents(plan *Plan, cluster snapshot.Cluster) []Event {
	var events []Event
	add := func(n Note) {
		if !e.before.Notes[n] && !e.next.Notes[n] {
			events = append(events, Event{Kind: EventNote, Host: n.Host, Text: n.Text})
		}
		e.next.Notes[n] = true
	}
	for _, n := range plan.Notes {
		add(n)
	}
	for _, h := range cluster.Answered() {
		for _, text := range h.Snapshot.Warnings {
			add(Note{Host: h.Name, Text: text})
		}
	}
	return events
}
