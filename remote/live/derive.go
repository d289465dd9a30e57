package live

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/exemption"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// moment is what a cycle left behind, and what is derived from it when somebody looks.
type moment struct {
	cycle     controller.Cycle
	failures  []remote.Failure
	hosts     []seen // in the cluster's order
	policy    enforce.Policy
	interval  time.Duration
	enforcing bool
	revision  uint64
}

// seen is a host's last answer.
type seen struct {
	at       time.Time
	via      agent.Via
	snapshot *snapshot.Snapshot // nil if it never answered
}

// fleet derives the document. before is the one of an earlier moment, whose rows are kept
// for hosts that answered the same.
func (m *moment) fleet(before *Fleet) *Fleet {
	cycle := &m.cycle
	f := &Fleet{
		Schema: "genv.live.fleet/1", Revision: m.revision, Run: cycle.Run, Cycle: cycle.Number, Time: cycle.Start,
		Took: cycle.Took.Seconds(), Interval: m.interval.Seconds(), Enforcing: m.enforcing, DryRun: cycle.DryRun && m.enforcing,
		Hosts: make([]Host, len(cycle.Cluster.Hosts)), Findings: make([]Finding, len(cycle.Plan.Findings)),
		Failed: append([]remote.Failure{}, m.failures...), Notes: []enforce.Note{},
		Duplicates: append([]controller.Duplicate{}, cycle.Duplicates...),
		HeldUsers:  append([]safety.Held{}, cycle.Plan.HeldUsers...), HeldHosts: append([]safety.Held{}, cycle.Plan.HeldHosts...),
	}
	if m.enforcing { // else nothing is judged
		f.Notes = append(f.Notes, cycle.Plan.Notes...)
	}
	f.Hold, f.Exemptions = cycle.Hold, append(exemption.List{}, cycle.Exemptions...)
	if cycle.Unrecorded != nil {
		f.Unrecorded = cycle.Unrecorded.Error()
	}
	for i := range cycle.Plan.Findings {
		finding := &cycle.Plan.Findings[i]
		f.Findings[i] = Finding{*finding, finding.Line(), cycle.Decision(finding)}
	}
	known := make(map[*snapshot.Snapshot][]gpus.GPU)
	if before != nil {
		for i := range before.Hosts {
			if h := &before.Hosts[i]; h.snapshot != nil && h.Failure == nil {
				known[h.snapshot] = h.GPUs
			}
		}
	}
	for i := range cycle.Cluster.Hosts {
		f.Hosts[i] = m.host(i, known)
	}
	f.Users = m.users(f)
	return f
}

func (m *moment) host(i int, known map[*snapshot.Snapshot][]gpus.GPU) Host {
	h, last := &m.cycle.Cluster.Hosts[i], &m.hosts[i]
	host := Host{Name: h.Name, Labels: h.Labels, Via: last.via, Seen: last.at, GPUs: []gpus.GPU{}, snapshot: last.snapshot}
	if last.snapshot == nil {
		host.Failure = m.failureOf(h)
		return host
	}
	rows, same := known[last.snapshot]
	if !same {
		rows = gpus.Of(last.snapshot)
	}
	if h.Err != nil {
		host.Failure, rows = m.failureOf(h), unknown(rows)
	}
	host.GPUs, host.Warnings = rows, last.snapshot.Warnings
	return host
}

func (m *moment) failureOf(h *snapshot.Host) *remote.Failure {
	for i := range m.failures {
		if m.failures[i].Host == string(h.Name) {
			return &m.failures[i]
		}
	}
	return &remote.Failure{Host: string(h.Name)}
}

// unknown are the GPUs of a host that doesn't answer any more: only what they are is known.
func unknown(rows []gpus.GPU) []gpus.GPU {
	rows = slices.Clone(rows)
	for i := range rows {
		g := &rows[i]
		*g = gpus.GPU{
			Index: g.Index, UUID: g.UUID, Model: g.Model, MemoryTotal: g.MemoryTotal, State: gpus.Unknown,
			Attached: []gpus.Attachment{}, Processes: []gpus.Process{},
		}
	}
	return rows
}

// users counts what each user has.
func (m *moment) users(f *Fleet) []User {
	byName := make(map[snapshot.Username]*User)
	user := func(name snapshot.Username) *User {
		u := byName[name]
		if u == nil {
			u = &User{Name: name}
			if m.policy != nil {
				u.Cap = m.policy.Settings(enforce.Query{User: name, At: m.cycle.Start}).MaxDevices
			}
			byName[name] = u
		}
		return u
	}
	for i := range f.Hosts {
		here := make(map[snapshot.Username]bool)
		for j := range f.Hosts[i].GPUs {
			countUsers(&f.Hosts[i].GPUs[j], func(name snapshot.Username) *User { here[name] = true; return user(name) })
		}
		for name := range here {
			byName[name].Hosts++
		}
	}
	for i := range f.Findings {
		if name := f.Findings[i].User; name != "" {
			user(name).Findings++
		}
	}
	users := []User{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		users = append(users, *byName[name])
	}
	return users
}

// countUsers counts a GPU for those who have or use it, once for each.
func countUsers(g *gpus.GPU, user func(snapshot.Username) *User) {
	attached, using := make(map[snapshot.Username]bool), make(map[snapshot.Username]bool)
	for i := range g.Processes {
		p := &g.Processes[i]
		if p.User == "" {
			continue
		}
		u := user(p.User)
		if !using[p.User] {
			using[p.User] = true
			u.Used++
		}
		if p.Memory != nil {
			u.Memory += *p.Memory
		}
	}
	for i := range g.Attached {
		name := g.Attached[i].User
		if name == "" || attached[name] {
			continue
		}
		attached[name] = true
		u := user(name)
		u.Attached++
		if !using[name] || g.State == gpus.Idle {
			u.Idle++
		}
	}
}
