package enforce

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// maxHeldEvents is about how many hosts and users there are events in a cycle when
// limits hold their actions back. Plan has all of them.
const maxHeldEvents = 64

// events compares the plan with what was known. It returns what is new, and remembers
// that in the next memory.
func (j *judgement) events(plan *Plan, cluster snapshot.Cluster) []Event {
	ofHosts := j.hostEvents(cluster)
	ofFindings, toUsers := j.findingEvents(plan)
	return slices.Concat(ofHosts, ofFindings, toUsers, j.overEvents(), j.heldEvents(plan), j.noteEvents(plan, cluster))
}

// heldEvents are about what the limits hold back, once in an interval.
func (j *judgement) heldEvents(plan *Plan) (events []Event) {
	all := slices.Concat(plan.HeldHosts, plan.HeldUsers)
	for _, held := range all[:min(len(all), maxHeldEvents)] {
		whom := string(held.Host) + "/" + string(held.User)
		if said := j.next.Interval.Held; !said[whom] {
			said[whom] = true
			events = append(events, Event{Kind: EventHeld, Host: held.Host, Held: &held, Text: held.String()})
		}
	}
	return events
}

// findingEvents are about what is new or changed, then about what is due, for each
// finding; then about hosts with more of them. Those in notify are about users to notify.
func (j *judgement) findingEvents(plan *Plan) (events, notify []Event) {
	c := eventCollector{
		judgement: j, more: make(map[snapshot.Hostname]int),
		events: make([]Event, 0, 2*max(0, len(plan.Findings)-len(j.before.Findings))), // a new one may have two
	}
	for i := range plan.Findings {
		c.add(&plan.Findings[i])
	}
	for _, host := range slices.Sorted(maps.Keys(c.more)) {
		if !j.next.Interval.More[host] {
			j.next.Interval.More[host] = true
			c.events = append(c.events, Event{Kind: EventMore, Host: host, Count: c.more[host]})
		}
	}
	return c.events, c.notify
}

// eventCollector collects the events of findings, within the limits per host.
type eventCollector struct {
	*judgement
	more           map[snapshot.Hostname]int // findings without an event, by host
	events, notify []Event
}

// mayAnnounce counts an event of a host that isn't about what is done, and reports whether there is room for it in
// this interval: a host that makes things up must not fill the screen.
func (j *judgement) mayAnnounce(host snapshot.Hostname) bool {
	n := j.next.Interval.Announced
	if n[host] >= safety.MaxEventsPerHost {
		return false
	}
	n[host]++
	return true
}

// add adds the events of a finding, and remembers it in the next memory.
func (c *eventCollector) add(f *Finding) {
	before, known := c.before.Findings[f.ID]
	now := KnownFinding{Host: f.Host, Decision: f.Decision(), Notified: before.Notified}
	event := Event{Host: f.Host, ID: f.ID, Finding: f, Decision: now.Decision}
	kind, host, acts := changeOf(before, known, now), f.Affects(), now.Decision == DecisionAct
	h := c.byName[f.Host]
	old := known && f.Host != "" && !h.isNew && (!acts || before.Decision == DecisionAct)
	full := !f.Deferred && !old && kind != "" && !c.mayAnnounce(host) && !acts
	if f.Deferred || old || full {
		if full {
			c.more[host]++
		}
		if known { // nothing is new, or the next cycle finds it changed, too
			c.next.Findings[f.ID] = before
		}
		if known && !full {
			c.resumed(event)
		}
		return
	}
	if kind == "" {
		c.resumed(event)
	} else {
		c.events = append(c.events, as(kind, event))
	}
	if acts {
		c.events = append(c.events, as(EventDue, event))
	}
	interval, stage := &c.next.Interval, wantsNotified(f)
	told := interval.Told[f.ID] >= int(stage) || interval.Notified[host] >= safety.MaxEventsPerHost
	if c.fleet.TellUsers && now.Notified < stage && !told {
		interval.Notified[host]++
		interval.Told[f.ID] = int(stage)
		now.Notified = stage
		c.notify = append(c.notify, as(EventNotify, event))
	}
	c.next.Findings[f.ID] = now
}

// resumed adds the event of a finding that was known before a restart.
func (c *eventCollector) resumed(event Event) {
	if c.before.Resumed {
		event.Kind, event.Resumed = EventNew, true
		c.events = append(c.events, event)
	}
}

// as is an event as one of another kind.
func as(kind EventKind, e Event) Event {
	e.Kind = kind
	return e
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
// back: that may be a mistake, or made up by a host. Nor of what is only reported.
func wantsNotified(f *Finding) Notified {
	switch {
	case f.Held, f.Rule == RuleUnreadable && f.Decision() == DecisionNone:
		return 0
	case f.Pending:
		return NotifiedOfWarning
	}
	return NotifiedOfAction
}

// overEvents are of findings that are no longer there. Those of a host that did not
// answer may still be there.
func (j *judgement) overEvents() []Event {
	var over []Event
	for id, known := range j.before.Findings {
		_, present := j.next.Findings[id]
		switch {
		case present:
		case j.next.Hosts[known.Host].Lost != "", j.waiting[known.Host], len(j.waiting) > 0 && known.Host == "":
			j.next.Findings[id] = known
		default:
			over = append(over, Event{Kind: EventOver, Host: known.Host, ID: id})
		}
	}
	slices.SortFunc(over, func(a, b Event) int { return cmp.Compare(a.ID, b.ID) })
	return over
}

func (j *judgement) hostEvents(cluster snapshot.Cluster) []Event {
	var events []Event
	for i := range cluster.Hosts {
		h := &cluster.Hosts[i]
		before := j.before.Hosts[h.Name]
		if h.Err == nil && h.Snapshot == nil {
			j.next.Hosts[h.Name] = before // it is not known yet
			continue
		}
		now := before
		now.Answered, now.Lost = before.Answered || h.Snapshot != nil, lostBecause(h)
		switch {
		case now.Lost == "":
			now.Looked, now.Round, now.LostAt = cmp.Or(h.AskedAt, j.now), h.Round, time.Time{}
			if view := j.byName[h.Name]; view != nil {
				now.GPUs = view.gpusByModel
			}
		case now.LostAt.IsZero():
			now.LostAt = j.now
		}
		j.next.Hosts[h.Name] = now
		switch changed := before.Lost != now.Lost; {
		case now.Lost != "" && (changed || j.before.Resumed):
			events = append(events, Event{Kind: EventHostLost, Host: h.Name, Err: h.Err, Resumed: !changed})
		case now.Lost == "" && changed:
			events = append(events, Event{Kind: EventHostBack, Host: h.Name})
		}
	}
	return events
}

// lostBecause is the kind of the error of a host that failed, if its error has one (a remote.Error has); "" for a
// host that answered.
func lostBecause(h *snapshot.Host) string {
	if h.Err == nil {
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
func (j *judgement) noteEvents(plan *Plan, cluster snapshot.Cluster) []Event {
	var events []Event
	add := func(n Note) {
		switch {
		case j.next.Notes[n]:
			return
		case !j.before.Notes[n] && !j.mayAnnounce(n.Host):
			return // it is new in the next interval
		case !j.before.Notes[n]:
			events = append(events, Event{Kind: EventNote, Host: n.Host, Text: n.Text})
		}
		j.next.Notes[n] = true
	}
	for _, n := range plan.Notes {
		add(n)
	}
	for i := range cluster.Hosts {
		h := &cluster.Hosts[i]
		if h.Err != nil || h.Snapshot == nil {
			continue
		}
		for _, text := range h.Snapshot.Warnings {
			add(Note{Host: h.Name, Text: text})
		}
	}
	return events
}
