package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

const (
	maxGPUs     = 256
	maxFindings = 500
	maxEvents   = 100
)

// gpuRow is a GPU of a host with its letter.
type gpuRow struct {
	*gpus.Row
	*cell
	IdleSince time.Time
}

type findingRow struct {
	*live.Finding
	When string
}

// findingList are findings, and how many there are besides.
type findingList struct {
	Rows []findingRow
	More int
}

func hostPage(p *page, r *http.Request) (string, any) {
	// hostBody is what the page of a host shows.
	type hostBody struct {
		*live.FleetHost
		Counts   gpus.StateCounts
		GPUs     []gpuRow
		Findings findingList
		Events   []live.FleetEvent
	}
	h := p.Fleet.Host(snapshot.Hostname(r.PathValue("host")))
	if h == nil {
		p.Title = "The fleet has no host of this name."
		return "", nil
	}
	p.Title = hostName(h.Name)
	body := hostBody{FleetHost: h}
	body.Counts.Add(h.GPUs...)
	for j := range h.GPUs {
		body.GPUs = append(body.GPUs, p.gpu(gpus.Row{Host: h.Name, GPU: &h.GPUs[j]}))
	}
	body.Findings = p.findings(func(f *live.Finding) bool { return f.Host == h.Name })
	body.Events = p.events(func(e *live.FleetEvent) bool { return e.Host == h.Name })
	return "host", body
}

func (p *page) gpu(row gpus.Row) gpuRow {
	return gpuRow{&row, p.cell(row.Host, row.GPU), p.view.IdleSince(row.Host, row.Index)}
}

// userPage serves the page of a user. The database is asked before the page is rendered: it may be slow.
func (s *server) userPage(w http.ResponseWriter, r *http.Request) {
	user := snapshot.Username(r.PathValue("user"))
	hours := s.hours(r.Context(), user)
	s.page(func(p *page, _ *http.Request) (string, any) { return p.ofUser(user, hours, s.options.Recorded) })(w, r)
}

// ofUser is of a user who has something, or had something lately.
// With hidden names it says the same of all others, whether they exist or not.
func (p *page) ofUser(user snapshot.Username, hours *usage.ReportRow, recorded func() ([]audit.Entry, bool)) (string, any) {
	// userBody is what the page of a user shows.
	type userBody struct {
		live.FleetUser
		GPUs     []gpuRow
		Findings findingList
		Ended    []live.FleetEvent // what was done
		Recorded bool              // Ended has what was done before this run
		Partly   bool              // and some of that may be missing
		Hours    *usage.ReportRow  // of the last days; nil if there are none
		Days     int
	}
	if p.Hidden && user != p.view.self {
		p.Title = "Only your own page can be shown: the names of others are hidden."
		return "", nil
	}
	body := userBody{FleetUser: live.FleetUser{Name: user}, Hours: hours, Days: ranges[0]}
	known := false
	for i := range p.Fleet.Users {
		if p.Fleet.Users[i].Name == user {
			body.FleetUser, known = p.Fleet.Users[i], true
		}
	}
	body.Ended = p.events(func(e *live.FleetEvent) bool {
		return e.User == user && e.Kind == enforce.EventOutcome
	})
	if body.Recorded = recorded != nil; body.Recorded && len(body.Ended) < maxEvents {
		list, complete := recorded()
		body.Partly = !complete
		body.Ended = append(body.Ended, endedBefore(list, user, maxEvents-len(body.Ended))...)
	}
	if !known && hours == nil && len(body.Ended) == 0 && !p.Hidden {
		p.Title = "No user of this name has been seen lately."
		return "", nil
	}
	for _, row := range p.Fleet.GPUsOf(user) {
		body.GPUs = append(body.GPUs, p.gpu(row))
	}
	body.Findings = p.findings(func(f *live.Finding) bool { return f.User == user })
	p.Title = name(user)
	return "userPage", body
}

// endedBefore is what the record has of a user, the newest first.
func endedBefore(entries []audit.Entry, user snapshot.Username, most int) (list []live.FleetEvent) {
	for i := range slices.Backward(entries) {
		e := &entries[i]
		if e.User != user || e.ID == "" || e.Action != "" || len(list) == most {
			continue
		}
		event := live.FleetEvent{Time: e.Time, Kind: enforce.EventOutcome, Host: e.Host, User: user, PID: e.PID, Record: e}
		event.Text = fmt.Sprintf("%s: %s", e.Text, cmp.Or(string(e.Status), "outcome unknown"))
		event.Why = strings.Join(e.Why, "; ")
		if len(e.Rules) > 0 {
			event.Rule = e.Rules[0]
		}
		list = append(list, event)
	}
	return list
}

func findingsPage(p *page, _ *http.Request) (string, any) {
	// findingsBody is what the page of findings shows.
	type findingsBody struct {
		Findings findingList
		Events   []live.FleetEvent
	}
	p.Title = "Findings"
	all := p.findings(func(*live.Finding) bool { return true })
	return "findings", findingsBody{all, p.events(func(*live.FleetEvent) bool { return true })}
}

// findings are those that are selected: what is done now before what waits.
func (p *page) findings(selected func(*live.Finding) bool) (list findingList) {
	for _, pending := range []bool{false, true} {
		for i := range p.Fleet.Findings {
			f := &p.Fleet.Findings[i]
			switch {
			case f.Pending != pending || !selected(f):
			case len(list.Rows) >= maxFindings:
				list.More++
			default:
				list.Rows = append(list.Rows, findingRow{f, when(p.Now, f)})
			}
		}
	}
	return list
}

// events are the last ones that are selected, the newest first.
func (p *page) events(selected func(*live.FleetEvent) bool) []live.FleetEvent {
	var list []live.FleetEvent
	for _, e := range slices.Backward(p.view.Events(0)) {
		if selected(&e) {
			if list = append(list, e); len(list) == maxEvents {
				break
			}
		}
	}
	return list
}

// Parts of pages, with what they need of the page.
type (
	gpuTable struct {
		Columns []gpus.Column
		Rows    []gpuRow
		More    int
		Hidden  bool
		now     time.Time
	}
	findingTable struct {
		List findingList
		Now  time.Time
	}
)

// GPUTable is for the template of this name.
func (p *page) GPUTable(rows []gpuRow, withHost bool) gpuTable {
	shown := rows[:min(len(rows), maxGPUs)]
	columns := slices.DeleteFunc(gpus.Columns(),
		func(c gpus.Column) bool { return c.Page == "" || c.Page == "Host" && !withHost })
	return gpuTable{columns, shown, len(rows) - len(shown), p.Hidden, p.Now}
}

// Since is for how long something is the case.
func (t gpuTable) Since(since time.Time) string { return span(t.now.Sub(since)) }

// Idle is for how long a GPU was seen idle; empty for less than a minute.
func (t gpuTable) Idle(since time.Time) string {
	if since.IsZero() || t.now.Sub(since) < time.Minute {
		return ""
	}
	return span(t.now.Sub(since))
}

// Exemptions are those that name a user or a host; all without either.
func (p *page) Exemptions(user snapshot.Username, host snapshot.Hostname) (list policy.ExemptionList) {
	for _, e := range p.Fleet.Exemptions {
		if (user == "" || e.User == user) && (host == "" || e.Host == host) {
			list = append(list, e)
		}
	}
	return list
}

// FindingTable is for the template of this name.
func (p *page) FindingTable(list findingList) findingTable { return findingTable{list, p.Now} }
