package live

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Viewers get documents built from harmless fields: a new field of a document is hidden until it is added here.

// hiddenText replaces texts that may contain a name.
const hiddenText = "details are hidden"

func hideText(text string) string {
	if text == "" {
		return ""
	}
	return hiddenText
}

func (f *Feed) hidden(from *FleetState) *FleetState {
	f.deriving.Lock()
	defer f.deriving.Unlock()
	if f.nameless == nil || f.nameless.Revision != from.Revision {
		f.nameless = withoutNames(from)
	}
	return f.nameless
}

func withoutNames(f *FleetState) *FleetState {
	h := &FleetState{
		Schema: f.Schema, Revision: f.Revision, Run: f.Run, Cycle: f.Cycle, Time: f.Time, Took: f.Took,
		Interval: f.Interval, Enforcing: f.Enforcing, DryRun: f.DryRun, Duplicates: f.Duplicates,
		Users: []FleetUser{}, Notes: []enforce.Note{}, HeldUsers: []safety.Held{}, Exemptions: policy.ExemptionList{},
		Unrecorded: hideText(f.Unrecorded),
		Findings:   each(f.Findings, hideFinding), Failed: each(f.Failed, hideFailure),
		Hosts: each(f.Hosts, func(h *FleetHost) FleetHost {
			return hideHost(h, func(snapshot.Username) bool { return false })
		}),
		HeldHosts: each(f.HeldHosts, func(h *safety.Held) safety.Held {
			return safety.Held{
				Host: h.Host, Terminations: h.Terminations, Detachments: h.Detachments, Because: hiddenText,
			}
		}),
	}
	if f.Hold != nil {
		h.Hold = &operator.OnHold{Since: f.Hold.Since, By: hiddenText, Reason: hiddenText}
	}
	if e := f.Election; e != nil { // a leader's name contains that of its account
		h.Election = &election.StatusDocument{
			Role: e.Role, Since: e.Since, Epoch: e.Epoch, LeaderSince: e.LeaderSince, Answered: e.Answered,
			Memory: e.Memory, Refused: e.Refused, Leader: hideText(e.Leader), Error: hideText(e.Error),
		}
	}
	return h
}

func each[T any](list []T, become func(*T) T) []T {
	result := make([]T, len(list))
	for i := range list {
		result[i] = become(&list[i])
	}
	return result
}

func hideHost(h *FleetHost, shown func(snapshot.Username) bool) FleetHost {
	host := FleetHost{
		Name: h.Name, Via: h.Via, Seen: h.Seen, Changed: h.Changed,
		GPUs: each(h.GPUs, func(g *gpus.GPU) gpus.GPU { return hideGPU(g, shown) }),
		// The Reason may contain a name.
		Guard: HostGuard{Mode: h.Guard.Mode, Policy: h.Guard.Policy}, Service: h.Service,
		Reservations: hideReservations(h.Reservations, shown), Reserved: h.Reserved, Unable: hideText(h.Unable),
	}
	if h.Failure != nil {
		host.Failure = new(hideFailure(h.Failure))
	}
	if h.Waiting != nil {
		host.Waiting = new(*h.Waiting)
		host.Waiting.People = each(h.Waiting.People, func(p *WaitingPerson) WaitingPerson {
			if !shown(p.User) {
				return WaitingPerson{GPUs: p.GPUs, Seconds: p.Seconds}
			}
			return *p
		})
	}
	return host
}

func hideGPU(g *gpus.GPU, shown func(snapshot.Username) bool) gpus.GPU {
	return gpus.GPU{
		Index: g.Index, UUID: g.UUID, Model: g.Model, Driver: g.Driver, State: g.State, Problem: g.Problem,
		MIGMode: g.MIGMode, Display: g.Display, MemoryUsed: g.MemoryUsed, MemoryTotal: g.MemoryTotal,
		Utilization: g.Utilization, Temperature: g.Temperature, Power: g.Power, Instances: g.Instances,
		Attached: each(g.Attached, func(a *gpus.Attachment) gpus.Attachment {
			if !shown(a.User) {
				return gpus.Attachment{Since: a.Since, Memory: a.Memory}
			}
			return *a
		}),
		Processes: each(g.Processes, func(p *gpus.Process) gpus.Process {
			if !shown(p.User) {
				return gpus.Process{Memory: p.Memory}
			}
			return *p
		}),
	}
}

func hideFinding(f *Finding) Finding {
	return Finding{
		Finding: enforce.Finding{
			Rule: f.Rule, Host: f.Host, Devices: f.Devices, For: f.For, Limit: f.Limit,
			Since: f.Since, Cycles: f.Cycles, Pending: f.Pending, Due: f.Due,
		},
		Line: string(f.Rule) + ": " + hiddenText, Decision: f.Decision,
	}
}

func hideFailure(f *remote.Failure) remote.Failure {
	return remote.Failure{Host: f.Host, Class: f.Class, Error: string(f.Class), NextStep: f.Class.NextStep()}
}

func hideEvent(e *FleetEvent) {
	*e = FleetEvent{
		Number: e.Number, Time: e.Time, Cycle: e.Cycle, Kind: e.Kind, Host: e.Host, Rule: e.Rule,
		Decision: e.Decision, Status: e.Status, Text: string(e.Kind) + ": " + hiddenText,
	}
}

func hideReservations(list []Reservation, shown func(snapshot.Username) bool) []Reservation {
	list = slices.Clone(list) // nil stays nil
	for i := range list {
		if !shown(list[i].User) {
			id := fnv.New64a() // the user may have chosen the ID
			_, _ = id.Write([]byte(list[i].ID))
			list[i].ID, list[i].User, list[i].Reason = fmt.Sprintf("%016x", id.Sum64()), "", ""
		}
	}
	return list
}

func (r *restricted) reveal(hidden, all *FleetState) *FleetState {
	f := *hidden
	f.Hosts, f.Findings = slices.Clone(hidden.Hosts), slices.Clone(hidden.Findings)
	for i := range all.Hosts {
		h := &all.Hosts[i]
		if slices.ContainsFunc(h.GPUs, func(g gpus.GPU) bool { return slices.Contains(g.Users(), r.user) }) ||
			slices.ContainsFunc(h.Reservations, func(b Reservation) bool { return r.owns(b.User) }) || h.Waiting != nil &&
			slices.ContainsFunc(h.Waiting.People, func(p WaitingPerson) bool { return r.owns(p.User) }) {
			f.Hosts[i] = hideHost(h, r.owns)
		}
	}
	for i := range all.Findings {
		if r.owns(all.Findings[i].User) {
			f.Findings[i] = all.Findings[i]
		}
	}
	f.Users = selected(all.Users, func(u *FleetUser) bool { return r.owns(u.Name) })
	f.HeldUsers = selected(all.HeldUsers, func(h *safety.Held) bool { return r.owns(h.User) })
	f.Exemptions = selected(all.Exemptions, func(e *policy.Exemption) bool { return r.owns(e.User) })
	for i := range f.Exemptions {
		f.Exemptions[i].By = hiddenText
	}
	return &f
}

// Source is a Feed, or what a viewer may see of it (Feed.For).
type Source interface {
	Fleet() *FleetState
	Events(after uint64) []FleetEvent
	Position() Position
	Watch() (changes <-chan struct{}, stop func())
	IdleSince(host snapshot.Hostname, gpu snapshot.DeviceIndex) time.Time
}

// For is the feed for a user who must not see the names of others, or any names if user is empty. It leaves out what
// may contain a name: texts, environments, commands, containers, process ids, labels, and the errors and warnings of
// hosts. It keeps the names of hosts and models, states and numbers.
func (f *Feed) For(user snapshot.Username) Source { return &restricted{f, user} }

// Public is the feed with all names, but without command lines that /proc hides on their hosts.
func (f *Feed) Public() Source { return public{f} }

type public struct{ *Feed }

// Fleet implements Source.
func (p public) Fleet() *FleetState {
	f := *p.Feed.Fleet()
	f.Hosts, f.Findings = slices.Clone(f.Hosts), slices.Clone(f.Findings)
	for i := range f.Hosts {
		f.Hosts[i].GPUs = publicGPUs(f.Hosts[i].GPUs)
	}
	for i := range f.Findings {
		f.Findings[i].PrivateCommand = ""
	}
	return &f
}

func publicGPUs(list []gpus.GPU) []gpus.GPU {
	private := func(p gpus.Process) bool { return p.PrivateCommand != "" }
	if !slices.ContainsFunc(list, func(g gpus.GPU) bool { return slices.ContainsFunc(g.Processes, private) }) {
		return list
	}
	list = slices.Clone(list)
	for i := range list {
		list[i].Processes = slices.Clone(list[i].Processes)
		for j := range list[i].Processes {
			list[i].Processes[j].PrivateCommand = ""
		}
	}
	return list
}

type restricted struct {
	*Feed
	user snapshot.Username // empty for none
}

// Fleet implements Source.
func (r *restricted) Fleet() *FleetState {
	f := r.Feed.Fleet()
	hidden := r.hidden(f)
	if r.user == "" {
		return hidden
	}
	return r.reveal(hidden, f)
}

// Events implements Source.
func (r *restricted) Events(after uint64) []FleetEvent {
	events := r.Feed.Events(after)
	for i := range events {
		if e := &events[i]; !r.owns(e.User) {
			hideEvent(e)
		}
	}
	return events
}

func (r *restricted) owns(user snapshot.Username) bool { return user != "" && user == r.user }
