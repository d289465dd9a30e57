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

const maxEvents = 100 // per page

type gpuRow struct {
	*gpus.Row
	*cell
	IdleSince time.Time
}

func hostPage(p *page, r *http.Request) (string, any) {
	type hostBody struct {
		*live.FleetHost
		Counts   gpus.StateCounts
		GPUs     []gpuRow
		Findings []*live.Finding
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
	rows := make([]gpus.Row, len(h.GPUs))
	for j := range h.GPUs {
		rows[j] = gpus.Row{Host: h.Name, GPU: &h.GPUs[j]}
	}
	body.GPUs = p.gpuRows(rows)
	body.Findings = p.findings(func(f *live.Finding) bool { return f.Host == h.Name })
	body.Events = p.events(func(e *live.FleetEvent) bool { return e.Host == h.Name })
	return "host", body
}

func (p *page) gpuRows(list []gpus.Row) (rows []gpuRow) {
	for i := range list {
		r := &list[i]
		rows = append(rows, gpuRow{r, p.cell(r.Host, r.GPU), p.view.IdleSince(r.Host, r.Index)})
	}
	return rows
}

// Columns are those of a table of GPUs. A host's own page omits HOST.
func (p *page) Columns() []gpus.Column {
	return slices.DeleteFunc(gpus.Columns(), func(c gpus.Column) bool {
		return c.Page == "" || c.Page == "Host" && strings.HasPrefix(p.Path, "/h/")
	})
}

// userPage queries the database, which may be slow, before rendering.
func (s *server) userPage(w http.ResponseWriter, r *http.Request) {
	user := snapshot.Username(r.PathValue("user"))
	hours := s.hours(r.Context(), user)
	s.page(func(p *page, _ *http.Request) (string, any) { return s.ofUser(p, user, hours) })(w, r)
}

// ofUser is for users who have or had something. With hidden names, others look the same whether they exist or not.
func (s *server) ofUser(p *page, user snapshot.Username, hours *usage.ReportRow) (string, any) {
	type userBody struct {
		live.FleetUser
		GPUs     []gpuRow
		Findings []*live.Finding
		Ended    []live.FleetEvent // what was done
		Recorded bool              // Ended includes earlier runs
		Partly   bool              // some of that may be missing
		Hours    *usage.ReportRow  // nil if there are none
		Days     int
	}
	if p.Hidden && user != p.view.self {
		p.Title = "Only your own page can be shown: the names of others are hidden."
		return "", nil
	}
	body := userBody{FleetUser: live.FleetUser{Name: user}, Hours: hours, Days: ranges[0]}
	at := slices.IndexFunc(p.Fleet.Users, func(u live.FleetUser) bool { return u.Name == user })
	if at >= 0 {
		body.FleetUser = p.Fleet.Users[at]
	}
	body.Ended = p.events(func(e *live.FleetEvent) bool {
		return e.User == user && e.Kind == enforce.EventOutcome
	})
	if body.Recorded = s.options.Recorded != nil; body.Recorded && len(body.Ended) < maxEvents {
		list, complete := s.options.Recorded()
		body.Partly = !complete
		body.Ended = append(body.Ended, endedBefore(list, user, maxEvents-len(body.Ended))...)
	}
	if at < 0 && hours == nil && len(body.Ended) == 0 && !p.Hidden {
		p.Title = "No user of this name has been seen lately."
		return "", nil
	}
	body.GPUs = p.gpuRows(p.Fleet.GPUsOf(user))
	body.Findings = p.findings(func(f *live.Finding) bool { return f.User == user })
	p.Title = name(user)
	return "userPage", body
}

func endedBefore(entries []audit.HistoryEntry, user snapshot.Username, most int) (list []live.FleetEvent) {
	for i := range slices.Backward(entries) {
		e := &entries[i]
		if e.User != user || e.ID == "" || e.Action != "" || len(list) == most {
			continue
		}
		event := live.FleetEvent{
			Time: e.Time, Kind: enforce.EventOutcome, Host: e.Host, User: user, PID: e.PID, Record: e,
			Text: fmt.Sprintf("%s: %s", e.Text, cmp.Or(string(e.Status), "outcome unknown")),
			Why:  strings.Join(e.Why, "; "),
		}
		if len(e.Rules) > 0 {
			event.Rule = e.Rules[0]
		}
		list = append(list, event)
	}
	return list
}

func findingsPage(p *page, _ *http.Request) (string, any) {
	type findingsBody struct {
		Findings []*live.Finding
		Events   []live.FleetEvent
	}
	p.Title = "Findings"
	all := p.findings(func(*live.Finding) bool { return true })
	return "findings", findingsBody{all, p.events(func(*live.FleetEvent) bool { return true })}
}

// findings returns those acted on now before those that wait.
func (p *page) findings(selected func(*live.Finding) bool) (list []*live.Finding) {
	for _, pending := range []bool{false, true} {
		for i := range p.Fleet.Findings {
			if f := &p.Fleet.Findings[i]; f.Pending == pending && selected(f) {
				list = append(list, f)
			}
		}
	}
	return list
}

func (p *page) events(selected func(*live.FleetEvent) bool) (list []live.FleetEvent) {
	for _, e := range slices.Backward(p.view.Events(0)) {
		if selected(&e) {
			list = append(list, e)
		}
		if len(list) == maxEvents {
			break
		}
	}
	return list
}

// Since formats the time since.
func (p *page) Since(since time.Time) string { return span(p.Now.Sub(since)) }

// Idle is how long a GPU has been idle; empty below a minute.
func (p *page) Idle(since time.Time) string {
	if since.IsZero() || p.Now.Sub(since) < time.Minute {
		return ""
	}
	return p.Since(since)
}

// Exemptions returns those of the user or host, if given.
func (p *page) Exemptions(user snapshot.Username, host snapshot.Hostname) policy.ExemptionList {
	return slices.DeleteFunc(slices.Clone(p.Fleet.Exemptions), func(e policy.Exemption) bool {
		return user != "" && e.User != user || host != "" && e.Host != host
	})
}
