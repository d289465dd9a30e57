// Package early judges single hosts between two full cycles, as soon as something happened
// there. It is pure.
//
//	plan, memory, events := early.Judge(policy, asked, memory, now)
//	if spent.Allow(limits, &plan, events) { … }
//
// It decides only what the snapshot of a host alone shows: the rules about processes
// (non-env-processes, env-devices, env-memory, unreadable-processes). Caps, which count what users have on all
// hosts, idle times and leases are for full cycles, and so are hosts that were lost. What is
// known of other hosts and by other rules stays as it is: not new, not over, not due. No
// finding advances a cycle, and none gets older by a look between two cycles: one that has
// to be there for some cycles, or a time, counts from the full cycle that sees it first.
package early

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// rules are those that are judged early.
var rules = []enforce.Rule{enforce.RuleNonEnvProcesses, enforce.RuleEnvDevices, enforce.RuleEnvMemory, enforce.RuleUnreadable}

// Judged reports whether a rule is judged early.
func Judged(rule enforce.Rule) bool { return slices.Contains(rules, rule) }

// Judge judges hosts that were asked since the last full cycle, whose memory it is given. The
// plan and the events are about these hosts alone. Hosts that memory doesn't know as
// answering must not be among them.
func Judge(policy enforce.Policy, asked snapshot.Cluster, memory enforce.Memory, now time.Time) (enforce.Plan, enforce.Memory, []enforce.Event) {
	hosts := make(map[snapshot.Hostname]bool, len(asked.Hosts))
	for i := range asked.Hosts {
		hosts[asked.Hosts[i].Name] = true
	}
	concerns := func(id string, known enforce.KnownFinding) bool { return hosts[known.Host] && Judged(ruleOf(id)) }
	before := memory
	before.Observer, before.Resumed = true, false // it advances nothing
	before.Findings = only(memory.Findings, concerns)
	before.Notes = nil
	plan, after, events := enforce.Judge(processRules{policy}, asked, before, now)

	next := memory
	next.Findings = maps.Clone(memory.Findings)
	maps.DeleteFunc(next.Findings, concerns)
	if next.Findings == nil {
		next.Findings = make(map[string]enforce.KnownFinding)
	}
	maps.Copy(next.Findings, after.Findings)
	next.Released = merged(memory.Released, after.Released, func(k snapshot.AttachmentKey) bool { return hosts[k.Host] })
	next.Stuck = merged(memory.Stuck, after.Stuck, func(k snapshot.ProcessKey) bool { return hosts[k.Host] })
	next.LeftAlone = merged(memory.LeftAlone, after.LeftAlone, func(k snapshot.ProcessKey) bool { return hosts[k.Host] })
	plan.Notes = nil // they are for full cycles, as are their events
	events = slices.DeleteFunc(events, func(e enforce.Event) bool { return e.Kind == enforce.EventNote })
	return plan, next, events
}

// ruleOf is the rule of a finding, with which its ID begins.
func ruleOf(id string) enforce.Rule {
	rule, _, _ := strings.Cut(id, "/")
	return enforce.Rule(rule)
}

func only[K comparable, V any](m map[K]V, keep func(K, V) bool) map[K]V {
	kept := make(map[K]V)
	for k, v := range m {
		if keep(k, v) {
			kept[k] = v
		}
	}
	return kept
}

// merged takes what is about the hosts that were asked from after, and the rest from before.
func merged[K comparable, V any](before, after map[K]V, asked func(K) bool) map[K]V {
	m := only(before, func(k K, _ V) bool { return !asked(k) })
	maps.Copy(m, only(after, func(k K, _ V) bool { return asked(k) }))
	return m
}

// processRules is a policy with nothing but the rules that are judged early.
type processRules struct{ enforce.Policy }

// Settings implements enforce.Policy.
func (p processRules) Settings(q enforce.Query) *enforce.Settings {
	s := *p.Policy.Settings(q)
	s.MaxDevices, s.MaxMemory, s.MaxEnvs = nil, nil, nil
	s.Idle, s.MaxDuration = nil, 0
	return &s
}

// Plan is the last plan of all hosts, in which the findings of Judge replace the earlier ones
// about the hosts that were asked, as far as they are judged early. Its reports are those of
// Judge alone.
func Plan(last, judged enforce.Plan, asked func(snapshot.Hostname) bool) enforce.Plan {
	whole := last
	whole.Findings = slices.DeleteFunc(slices.Clone(last.Findings), func(f enforce.Finding) bool { return asked(f.Host) && Judged(f.Rule) })
	whole.Findings = append(whole.Findings, judged.Findings...)
	whole.Reports = judged.Reports
	return whole
}

// Round is what came of judging the hosts that were asked.
type Round struct {
	Plan   enforce.Plan
	Memory enforce.Memory
	Events []enforce.Event
	// Judged are the hosts that were judged. The others are left to the next full cycle, since
	// what would follow is more than the safety limits allow.
	Judged map[snapshot.Hostname]bool
	// Untyped are those that have to be asked for the types of processes first.
	Untyped map[snapshot.Hostname]bool
}

// All judges hosts that were asked: together, or if that is more than the limits allow, one by
// one.
func All(policy enforce.Policy, asked []snapshot.Host, memory enforce.Memory, spent *Spent, now time.Time) Round {
	limits := policy.Fleet().Limits
	all := Round{Memory: memory, Judged: make(map[snapshot.Hostname]bool), Untyped: make(map[snapshot.Hostname]bool)}
	try := func(hosts []snapshot.Host) bool {
		plan, memory, events := Judge(policy, snapshot.Cluster{Hosts: hosts}, all.Memory, now)
		for _, name := range plan.Untyped {
			all.Untyped[name] = true
		}
		if len(plan.Untyped) > 0 || !spent.Allow(limits, &plan, events) {
			return false
		}
		all.Memory, all.Events = memory, append(all.Events, events...)
		all.Plan.Findings, all.Plan.Reports = append(all.Plan.Findings, plan.Findings...), append(all.Plan.Reports, plan.Reports...)
		for i := range hosts {
			all.Judged[hosts[i].Name] = true
		}
		return true
	}
	if len(asked) == 0 || try(asked) || len(asked) == 1 {
		return all
	}
	for i := range asked {
		try(asked[i : i+1])
	}
	return all
}
