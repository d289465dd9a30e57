package live

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/companions"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// lastRound has the last state of the round. Documents are derived from it when a viewer asks.
type lastRound struct {
	round    controller.Round
	hosts    map[snapshot.Hostname]answered
	options  Options
	election *election.StatusDocument // nil for none
	revision uint64
}

type answered struct {
	at       time.Time
	via      agent.Via
	snapshot *snapshot.Snapshot // nil if the host never answered
}

// fleet derives the document. It copies unchanged parts of an earlier one.
func (m *lastRound) fleet(before *FleetState) *FleetState {
	round := &m.round
	f := &FleetState{
		Schema: "genv.live.fleet/1", Revision: m.revision, Run: round.Run, Cycle: round.Number, Time: round.Start,
		Took: round.Took.Seconds(), Interval: m.options.Interval.Seconds(), Enforcing: m.options.Enforcing,
		DryRun: round.DryRun && m.options.Enforcing && !round.Standby, Election: m.election,
		Hosts: make([]FleetHost, len(round.Cluster.Hosts)), Findings: make([]Finding, len(round.Plan.Findings)),
		Failed: []remote.Failure{}, Notes: []enforce.Note{},
		Duplicates: append([]controller.Duplicate{}, round.Duplicates...),
		HeldUsers:  append([]safety.Held{}, round.Plan.HeldUsers...),
		HeldHosts:  append([]safety.Held{}, round.Plan.HeldHosts...),
	}
	if m.options.Enforcing {
		f.Notes = append(f.Notes, round.Plan.Notes...)
	}
	f.Hold, f.Exemptions = round.Hold, append(policy.ExemptionList{}, round.Exemptions...)
	if round.Unrecorded != nil {
		f.Unrecorded = round.Unrecorded.Error()
	}
	for i := range round.Plan.Findings {
		finding := &round.Plan.Findings[i]
		f.Findings[i] = Finding{*finding, finding.Line(), round.Decision(finding)}
	}
	known, unable := make(map[snapshot.Hostname]*FleetHost), round.Unable()
	for i := 0; before != nil && i < len(before.Hosts); i++ {
		known[before.Hosts[i].Name] = &before.Hosts[i]
	}
	for i := range round.Cluster.Hosts {
		host := &f.Hosts[i]
		*host = m.host(&round.Cluster.Hosts[i], known[round.Cluster.Hosts[i].Name], unable)
		if host.Failure != nil {
			f.Failed = append(f.Failed, *host.Failure)
		}
	}
	f.Users = m.users(f)
	return f
}

func (m *lastRound) host(h *snapshot.Host, before *FleetHost, unable map[snapshot.Hostname]string) FleetHost {
	last := m.hosts[h.Name]
	host := FleetHost{
		Name: h.Name, Labels: h.Labels, Via: last.via, Seen: last.at, GPUs: []gpus.GPU{}, Changed: m.revision,
		Unable: unable[h.Name], snapshot: last.snapshot,
	}
	if h.Err != nil {
		host.Failure = new(remote.FailureOf(string(h.Name), h.Err))
	}
	s := host.snapshot
	if host.Failure == nil && s != nil {
		host.Guard, host.Service, host.Waiting = m.guard(h, s), s.Service, waitingIn(s)
	}
	if s != nil {
		host.Reservations, host.Reserved = ReservationsOf(s, host.Seen) // they change with time
	}
	if before != nil && host.same(before) {
		host.GPUs, host.Warnings, host.Changed, host.users = before.GPUs, before.Warnings, before.Changed, before.users
		host.Reserved = before.Reserved
		return host
	}
	if s == nil {
		return host
	}
	host.GPUs, host.Warnings = gpus.Of(s), s.Warnings
	if host.Failure != nil {
		host.GPUs, host.Reserved = unknown(host.GPUs), nil
	}
	host.users = usersOf(host.GPUs)
	return host
}

func (h *FleetHost) same(before *FleetHost) bool {
	return h.snapshot == before.snapshot && h.Via == before.Via && h.Guard == before.Guard &&
		h.Unable == before.Unable && maps.Equal(h.Labels, before.Labels) &&
		slices.Equal(h.Reservations, before.Reservations) &&
		(h.Failure != nil || *cmp.Or(h.Reserved, new(int)) == *cmp.Or(before.Reserved, new(int))) &&
		*cmp.Or(h.Failure, new(remote.Failure)) == *cmp.Or(before.Failure, new(remote.Failure))
}

// unknown keeps only what identifies the GPUs of a host that doesn't answer.
func unknown(rows []gpus.GPU) []gpus.GPU {
	rows = slices.Clone(rows)
	for i, g := range rows {
		rows[i] = gpus.GPU{
			Index: g.Index, UUID: g.UUID, Model: g.Model, MemoryTotal: g.MemoryTotal, State: gpus.Unknown,
			Attached: []gpus.Attachment{}, Processes: []gpus.Process{},
		}
	}
	return rows
}

func (m *lastRound) users(f *FleetState) []FleetUser {
	all := make(usersByName)
	for i := range f.Hosts {
		for j := range f.Hosts[i].users {
			here := &f.Hosts[i].users[j]
			u := all.user(here.Name)
			u.Hosts++
			u.Attached += here.Attached
			u.Idle += here.Idle
			u.Used += here.Used
			u.Memory += here.Memory
		}
	}
	for i := range f.Findings {
		if name := f.Findings[i].User; name != "" {
			all.user(name).Findings++
		}
	}
	users := all.list()
	for i := 0; m.options.Policy != nil && i < len(users); i++ {
		users[i].Cap = m.options.Policy.Settings(enforce.Query{User: users[i].Name, At: m.round.Start}).MaxDevices
	}
	return users
}

type usersByName map[snapshot.Username]*FleetUser

func (m usersByName) user(name snapshot.Username) *FleetUser {
	if m[name] == nil {
		m[name] = &FleetUser{Name: name}
	}
	return m[name]
}

func (m usersByName) list() []FleetUser {
	users := make([]FleetUser, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		users = append(users, *m[name])
	}
	return users
}

// usersOf counts each GPU once for each user.
func usersOf(rows []gpus.GPU) []FleetUser {
	all := make(usersByName)
	for i := range rows {
		g := &rows[i]
		memory, attached := make(map[snapshot.Username]int64), make(map[snapshot.Username]bool)
		for j := range g.Processes {
			if p := &g.Processes[j]; p.User != "" {
				memory[p.User] += *cmp.Or(p.Memory, new(int64))
			}
		}
		for name, used := range memory {
			u := all.user(name)
			u.Used, u.Memory = u.Used+1, u.Memory+used
		}
		for j := range g.Attached {
			name := g.Attached[j].User
			if name == "" || attached[name] {
				continue
			}
			attached[name] = true
			u := all.user(name)
			u.Attached++
			if _, uses := memory[name]; !uses || g.State == gpus.Idle {
				u.Idle++
			}
		}
	}
	return all.list()
}

// HostGuard is the state of a host's kernel guard, and the policy's.
type HostGuard struct {
	// Mode is as the host says; missing if it didn't, which is not off.
	Mode   snapshot.GuardMode `json:"mode,omitempty"`
	Reason string             `json:"reason,omitempty"` // why it isn't what was ordered last
	// Policy is what the policy asks for; missing for off, and where nothing is enforced.
	Policy snapshot.GuardMode `json:"policy,omitempty"`
}

// Differs reports whether the guard doesn't, or can't, do what the policy says.
func (g HostGuard) Differs() bool {
	return g.Policy != "" && g.Policy != g.Mode || g.Mode == snapshot.GuardUnable
}

// String is for people, not escaped. It is empty if the policy asks for no guard and it is off or unknown.
func (g HostGuard) String() string {
	if g.Policy == "" && (g.Mode == "" || g.Mode == snapshot.GuardOff) {
		return ""
	}
	s := cmp.Or(string(g.Mode), "unknown")
	if g.Policy != "" && g.Differs() {
		s += fmt.Sprintf(", although the policy says %s", g.Policy)
	}
	if g.Reason != "" {
		s += ": " + g.Reason
	}
	return s
}

func (m *lastRound) guard(h *snapshot.Host, s *snapshot.Snapshot) (g HostGuard) {
	if s.Guard != nil {
		g.Mode, g.Reason = s.Guard.Mode, s.Guard.Reason
	}
	if m.options.Policy == nil || !m.options.Enforcing || m.round.DryRun {
		return g
	}
	if wanted := companions.WantedGuard(m.options.Policy, h, m.round.Start).Mode; wanted != guard.Off {
		g.Policy = snapshot.GuardMode(wanted.String())
	}
	return g
}

// FleetEvent is an event of the controller about one finding, host or item of an order.
type FleetEvent struct {
	Number   uint64              `json:"number"` // 1, 2, … of this controller
	Time     time.Time           `json:"time"`
	Cycle    int                 `json:"cycle"`
	Kind     enforce.EventKind   `json:"kind"`
	Host     snapshot.Hostname   `json:"host,omitempty"`
	User     snapshot.Username   `json:"user,omitempty"`
	PID      snapshot.PID        `json:"pid,omitempty"`
	Rule     enforce.Rule        `json:"rule,omitempty"`
	ID       string              `json:"id,omitempty"` // of the finding
	Decision enforce.Decision    `json:"decision,omitempty"`
	Status   order.OutcomeStatus `json:"status,omitempty"`
	Text     string              `json:"text"` // for people; one line, but not escaped
	// Why is the finding because of which there was an outcome, as people read it.
	Why string `json:"why,omitempty"`
	// Record is the decision about the item; nil if the order has no id.
	Record *audit.HistoryEntry `json:"-"`
}

func byID(list []enforce.Finding) map[string]*enforce.Finding {
	m := make(map[string]*enforce.Finding, len(list))
	for i := range list {
		m[list[i].ID] = &list[i]
	}
	return m
}

// eventsOf returns the events for viewers; before returns the findings of the last state.
func eventsOf(e *enforce.Event, before func() map[string]*enforce.Finding) []FleetEvent {
	base := FleetEvent{Kind: e.Kind, Host: e.Host, ID: e.ID, Decision: e.Decision, Text: e.Text}
	switch e.Kind {
	case enforce.EventNew, enforce.EventChanged, enforce.EventDue:
		if acts := e.Decision == enforce.DecisionAct; acts != (e.Kind == enforce.EventDue) {
			return nil // one event is enough for a finding that is acted on at once
		}
		base.about(e.Finding)
	case enforce.EventHostLost:
		base.Text = "no answer"
		if e.Err != nil {
			base.Text = e.Err.Error()
		}
	case enforce.EventHostBack:
		base.Text = "answers again"
	case enforce.EventOver:
		base.Text = "no longer there"
		if f := before()[e.ID]; f != nil {
			base.about(f)
			base.Text = "no longer there: " + base.Text
		}
	case enforce.EventMore:
		base.Text = fmt.Sprintf("%d more findings", e.Count)
	case enforce.EventHeld:
		base.User, base.Host = e.Held.User, e.Held.Host
	case enforce.EventOutcome:
		return outcomes(base, e)
	case enforce.EventActing, enforce.EventNotify:
		return nil // EventDue and EventOutcome tell it
	}
	return []FleetEvent{base}
}

func (e *FleetEvent) about(f *enforce.Finding) {
	e.User, e.PID, e.Rule, e.Host, e.Text = f.User, f.PID, f.Rule, f.Host, f.Line()
}

func outcomes(base FleetEvent, e *enforce.Event) []FleetEvent {
	if e.Err != nil {
		base.Text = "order failed: " + e.Err.Error()
		return []FleetEvent{base}
	}
	because := byID(e.Findings)
	records := audit.OrderRecords(e.Host, *e.Order, nil)
	var list []FleetEvent
	for n, o := range e.Outcomes {
		event := base
		if e.Order.ID != "" && n < len(records) && isAbout(&records[n], o) {
			records[n].Order = e.Order.ID
			event.Record = records[n].Decided()
			event.Record.Status, event.Record.Reason = o.Status, o.Reason
		}
		event.PID, event.Status = o.PID, o.Status
		user, what, ids := itemOf(e.Order, o)
		event.User, event.Text = user, fmt.Sprintf("%s: %s", what, o.Status)
		if o.Reason != "" {
			event.Text += ": " + o.Reason
		}
		for _, id := range ids {
			if f := because[id]; f != nil {
				event.Rule, event.ID, event.Why = f.Rule, f.ID, f.Line()
				event.User = cmp.Or(event.User, f.User) // 1.4.3 doesn't name the user of a process
				break
			}
		}
		list = append(list, event)
	}
	return list
}

func isAbout(item *audit.Record, o order.Outcome) bool {
	return item.PID == o.PID && (o.PID != 0 || item.EID == o.EID && item.Device != nil && *item.Device == o.Device)
}

func itemOf(sent *order.Order, o order.Outcome) (user snapshot.Username, what string, because []string) {
	what = fmt.Sprintf("GPU %s of environment %s", o.Device, o.EID.Shown())
	if o.PID != 0 {
		what = fmt.Sprintf("process %d", o.PID)
	}
	switch t, d := sent.ItemOf(o); {
	case t != nil:
		return t.Process.Username, what + t.Process.Describe(), t.Because
	case d != nil:
		return d.Environment.Username, what, d.Because
	}
	return "", what, nil
}
