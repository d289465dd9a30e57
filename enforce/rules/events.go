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

const maxHeldEvents = 64

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

// mayAnnounce counts an event of a host, besides those acted on, and reports whether it fits in this interval: a host
// may make things up to fill the screen.
func (j *judge) mayAnnounce(host snapshot.Hostname) bool {
	n := j.Next.Tally.Announced
	if n[host] >= safety.MaxEventsPerHost {
		return false
	}
	n[host]++
	return true
}

func (j *judge) addEvents(f *enforce.Finding) {
	before, known := j.Before.Findings[f.ID]
	now := enforce.KnownFinding{Host: f.Host, Decision: f.Decision(), Notified: before.Notified}
	acted := func(id string) bool { // a part of it
		before, now := j.Before.Findings[id].Decision, j.Next.Findings[id].Decision
		return before == enforce.DecisionAct && now != enforce.DecisionAct
	}
	if f.Count != nil && f.Pending && (acted(f.ID) || acted(path.Dir(f.ID))) {
		now.Notified = 0 // the remaining parts of a cap have other IDs now
	}
	event := enforce.Event{Host: f.Host, ID: f.ID, Finding: f, Decision: now.Decision}
	host, acts := f.Affects(), now.Decision == enforce.DecisionAct
	if !known {
		event.Kind = enforce.EventNew
	} else if before.Decision != now.Decision {
		event.Kind = enforce.EventChanged
	}
	h := j.ByName[f.Host]
	unchanged := known && f.Host != "" && !h.IsNew && (!acts || before.Decision == enforce.DecisionAct)
	tooMany := !f.Deferred && !unchanged && event.Kind != "" && !j.mayAnnounce(host) && !acts
	if f.Deferred || unchanged || tooMany {
		if tooMany {
			j.more[host]++
		}
		if known { // nothing is new, or the next judgement finds it changed, too
			j.Next.Findings[f.ID] = before
		}
		if known && !tooMany {
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
	skip := interval.Stages[f.ID] >= int(stage) || interval.Notified[host] >= safety.MaxEventsPerHost
	if j.Fleet.NotifyUsers && now.Notified < stage && !skip {
		interval.Notified[host]++
		interval.Stages[f.ID] = int(stage)
		now.Notified = stage
		event.Kind = enforce.EventNotify
		j.notify = append(j.notify, event)
	}
	j.Next.Findings[f.ID] = now
}

func (j *judge) resumed(event enforce.Event) {
	if j.Before.Resumed {
		event.Kind, event.Resumed = enforce.EventNew, true
		j.found = append(j.found, event)
	}
}

// wantsNotified is the stage that the users of a finding should be notified of: the warning, then the action. They
// aren't notified of actions that a safety limit holds back, which may be a mistake or made up by a host, nor of what
// is only reported.
func wantsNotified(f *enforce.Finding) enforce.NotifiedOf {
	switch {
	case f.Held, f.Rule == enforce.RuleUnreadable && f.Decision() == enforce.DecisionNone:
		return 0
	case f.Pending:
		return enforce.NotifiedOfWarning
	}
	return enforce.NotifiedOfAction
}

// overEvents are about findings that are gone, except those of hosts that didn't answer.
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
			j.Next.Hosts[h.Name] = before // not asked yet
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

// lostBecause is the kind of a host's error, from its Kind method as of remote.Error; "" if the host answered.
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

func (j *judge) noteEvents(plan *enforce.Plan, cluster snapshot.Cluster) []enforce.Event {
	var events []enforce.Event
	add := func(n enforce.Note) {
		isNew := !j.Before.Notes[n]
		if j.Next.Notes[n] || isNew && !j.mayAnnounce(n.Host) {
			return // then it is new in the next interval
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
