package rules

import (
	"cmp"
	"errors"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// maxHeldEvents is about how many hosts and users there are events in a cycle when limits hold their actions back.
const maxHeldEvents = 64

// events compares the plan with what was known. It returns what is new, and remembers that.
func (j *judge) events(plan *enforce.Plan, cluster snapshot.Cluster) []enforce.Event {
	ofHosts := j.hostEvents(cluster)
	j.findingEvents(plan)
	return slices.Concat(ofHosts, j.found, j.notify, j.overEvents(), j.heldEvents(plan), j.noteEvents(plan, cluster))
}

func (j *judge) heldEvents(plan *enforce.Plan) (events []enforce.Event) {
	all := slices.Concat(plan.HeldHosts, plan.HeldUsers)
	for _, held := range all[:min(len(all), maxHeldEvents)] {
		if said, whom := j.Next.Tally.Held, string(held.Host)+"/"+string(held.User); !said[whom] {
			said[whom] = true
			event := enforce.Event{Kind: enforce.EventHeld, Host: held.Host, Held: &held, Text: held.String()}
			events = append(events, event)
		}
	}
	return events
}

// findingEvents are, for each finding, about what is new or changed, then what is due; then about hosts with more.
func (j *judge) findingEvents(plan *enforce.Plan) {
	j.more = make(map[snapshot.Hostname]int)
	j.found = make([]enforce.Event, 0, 2*max(0, len(plan.Findings)-len(j.Before.Findings))) // a new one may have two
	for i := range plan.Findings {
		j.addEvents(&plan.Findings[i])
	}
	for _, host := range slices.Sorted(maps.Keys(j.more)) {
		if !j.Next.Tally.More[host] {
			j.Next.Tally.More[host] = true
			j.found = append(j.found, enforce.Event{Kind: enforce.EventMore, Host: host, Count: j.more[host]})
		}
	}
}

// mayAnnounce counts an event of a host that isn't about what is done, and reports whether there is room for it in this
// interval: a host may make things up to fill the screen.
func (j *judge) mayAnnounce(host snapshot.Hostname) bool {
	n := j.Next.Tally.Announced
	if n[host] >= safety.MaxEventsPerHost {
		return false
	}
	n[host]++
	return true
}

// addEvents adds the events of a finding, within the limits per host, and remembers it in the next memory.
func (j *judge) addEvents(f *enforce.Finding) {
	before, known := j.Before.Findings[f.ID]
	now := enforce.KnownFinding{Host: f.Host, Decision: f.Decision(), Notified: before.Notified}
	went := func(id string) bool { // something of it
		before, now := j.Before.Findings[id].Decision, j.Next.Findings[id].Decision
		return before == enforce.DecisionAct && now != enforce.DecisionAct
	}
	if f.Count != nil && f.Pending && (went(f.ID) || went(path.Dir(f.ID))) {
		now.Notified = 0 // the parts of a cap that are left have other IDs now
	}
	event := enforce.Event{Host: f.Host, ID: f.ID, Finding: f, Decision: now.Decision}
	host, acts := f.Affects(), now.Decision == enforce.DecisionAct
	if !known {
		event.Kind = enforce.EventNew
	} else if before.Decision != now.Decision {
		event.Kind = enforce.EventChanged
	}
	h := j.ByName[f.Host]
	old := known && f.Host != "" && !h.IsNew && (!acts || before.Decision == enforce.DecisionAct)
	full := !f.Deferred && !old && event.Kind != "" && !j.mayAnnounce(host) && !acts
	if f.Deferred || old || full {
		if full {
			j.more[host]++
		}
		if known { // nothing is new, or the next cycle finds it changed, too
			j.Next.Findings[f.ID] = before
		}
		if known && !full {
			j.resumed(event)
		}
		return
	}
	if event.Kind == "" {
		j.resumed(event)
	} else {
		j.found = append(j.found, event)
	}
	if event.Kind = enforce.EventDue; acts {
		j.found = append(j.found, event)
	}
	interval, stage := &j.Next.Tally, wantsNotified(f)
	told := interval.Stages[f.ID] >= int(stage) || interval.Notified[host] >= safety.MaxEventsPerHost
	if j.Fleet.TellUsers && now.Notified < stage && !told {
		interval.Notified[host]++
		interval.Stages[f.ID] = int(stage)
		now.Notified = stage
		event.Kind = enforce.EventNotify
		j.notify = append(j.notify, event)
	}
	j.Next.Findings[f.ID] = now
}

// resumed adds the event of a finding that was known before a restart.
func (j *judge) resumed(event enforce.Event) {
	if j.Before.Resumed {
		event.Kind, event.Resumed = enforce.EventNew, true
		j.found = append(j.found, event)
	}
}

// wantsNotified is what the users of a finding are to be notified of: the finding when it is first seen, and the
// action; not what a safety limit holds back, which may be a mistake or made up by a host, nor what is only reported.
func wantsNotified(f *enforce.Finding) enforce.NotifiedOf {
	switch {
	case f.Held, f.Rule == enforce.RuleUnreadable && f.Decision() == enforce.DecisionNone:
		return 0
	case f.Pending:
		return enforce.NotifiedOfWarning
	}
	return enforce.NotifiedOfAction
}

// overEvents are about findings that are gone, but not those of a host that did not answer.
func (j *judge) overEvents() []enforce.Event {
	var over []enforce.Event
	for id, known := range j.Before.Findings {
		_, present := j.Next.Findings[id]
		switch {
		case present:
		case j.Next.Hosts[known.Host].Lost != "", j.Unanswered[known.Host], len(j.Unanswered) > 0 && known.Host == "":
			j.Next.Findings[id] = known
		default:
			over = append(over, enforce.Event{Kind: enforce.EventOver, Host: known.Host, ID: id})
		}
	}
	slices.SortFunc(over, func(a, b enforce.Event) int { return cmp.Compare(a.ID, b.ID) })
	return over
}

func (j *judge) hostEvents(cluster snapshot.Cluster) []enforce.Event {
	var events []enforce.Event
	for i := range cluster.Hosts {
		h := &cluster.Hosts[i]
		before := j.Before.Hosts[h.Name]
		if h.Err == nil && h.Snapshot == nil {
			j.Next.Hosts[h.Name] = before // it is not known yet
			continue
		}
		now := before
		now.Answered, now.Lost = before.Answered || h.Snapshot != nil, lostBecause(h)
		switch {
		case now.Lost == "":
			now.Looked, now.Round, now.LostAt = cmp.Or(h.AskedAt, j.Now), h.Round, time.Time{}
			if view := j.ByName[h.Name]; view != nil {
				now.GPUs = view.GpusByModel
			}
		case now.LostAt.IsZero():
			now.LostAt = j.Now
		}
		j.Next.Hosts[h.Name] = now
		switch changed := before.Lost != now.Lost; {
		case now.Lost != "" && (changed || j.Before.Resumed):
			events = append(events, enforce.Event{Kind: enforce.EventHostLost, Host: h.Name, Err: h.Err, Resumed: !changed})
		case now.Lost == "" && changed:
			events = append(events, enforce.Event{Kind: enforce.EventHostBack, Host: h.Name})
		}
	}
	return events
}

// lostBecause is the kind of the error of a host, if it has one, as a remote.Error has; "" if the host answered.
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

// noteEvents are about the notes of the plan and the warnings of the hosts that are new.
func (j *judge) noteEvents(plan *enforce.Plan, cluster snapshot.Cluster) []enforce.Event {
	var events []enforce.Event
	add := func(n enforce.Note) {
		isNew := !j.Before.Notes[n]
		if j.Next.Notes[n] || isNew && !j.mayAnnounce(n.Host) {
			return // it is new in the next interval
		}
		if j.Next.Notes[n] = true; isNew {
			events = append(events, enforce.Event{Kind: enforce.EventNote, Host: n.Host, Text: n.Text})
		}
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
			add(enforce.Note{Host: h.Name, Text: text})
		}
	}
	return events
}
