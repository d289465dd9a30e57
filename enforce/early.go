package enforce

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// JudgeEarly judges hosts that were asked since the last full cycle, of which it is given the memory, by the
// rules that are early. The plan and the events are about these hosts alone. Hosts that memory doesn't know as
// answering must not be among them.
//
// What is known of other hosts and by other rules stays as it is: not new, not over, not due. No
// finding advances a cycle, and none gets older by a look between two cycles: one that has
// to be there for some cycles, or a time, counts from the full cycle that sees it first.
func JudgeEarly(policy Policy, asked snapshot.Cluster, memory Memory, now time.Time) (Plan, Memory, []Event) {
	hosts := make(map[snapshot.Hostname]bool, len(asked.Hosts))
	for i := range asked.Hosts {
		hosts[asked.Hosts[i].Name] = true
	}
	concerns := func(id string, known KnownFinding) bool { return hosts[known.Host] && RuleOf(id).early() }
	before := memory
	before.Observer, before.Resumed = true, false // it advances nothing
	before.Findings = only(memory.Findings, concerns)
	before.Notes = nil
	plan, after, events := newJudgement(policy, asked, before, now).judge(asked, true)

	next := memory
	next.Findings = only(memory.Findings, func(id string, known KnownFinding) bool { return !concerns(id, known) })
	maps.Copy(next.Findings, after.Findings)
	next.Released = merged(memory.Released, after.Released, func(k snapshot.AttachmentKey) bool { return hosts[k.Host] })
	next.Stuck = merged(memory.Stuck, after.Stuck, func(k snapshot.ProcessKey) bool { return hosts[k.Host] })
	next.LeftAlone = merged(memory.LeftAlone, after.LeftAlone, func(k snapshot.ProcessKey) bool { return hosts[k.Host] })
	plan.Notes = nil // they are for full cycles, as are their events
	events = slices.DeleteFunc(events, func(e Event) bool { return e.Kind == EventNote })
	return plan, next, events
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

// With is the plan of all hosts, in which the findings of JudgeEarly replace the earlier ones
// about the hosts that were asked, as far as they are judged early. Its orders are those of
// JudgeEarly alone.
func (plan Plan) With(judged Plan, asked func(snapshot.Hostname) bool) Plan {
	whole := plan
	whole.Findings = slices.DeleteFunc(slices.Clone(plan.Findings), func(f Finding) bool { return asked(f.Host) && f.Rule.early() })
	whole.Findings = append(whole.Findings, judged.Findings...)
	whole.Orders = judged.Orders
	return whole
}

// Round is what came of judging the hosts that were asked.
type Round struct {
	Plan   Plan
	Memory Memory
	Events []Event
	// Judged are the hosts that were judged. The others are left to the next full cycle, since
	// what would follow is more than the safety limits allow.
	Judged map[snapshot.Hostname]bool
}

// JudgeAsked judges hosts that were asked early: together, or if that is more than the limits allow, one by
// one.
func JudgeAsked(policy Policy, asked []snapshot.Host, memory Memory, spent *safety.Spent, now time.Time) Round {
	limits := policy.Fleet().Limits
	all := Round{Memory: memory, Judged: make(map[snapshot.Hostname]bool)}
	try := func(hosts []snapshot.Host) bool {
		plan, memory, events := JudgeEarly(policy, snapshot.Cluster{Hosts: hosts}, all.Memory, now)
		if plan.Held() || !spent.Allow(limits, plan.Actions(), eventsByHost(events)) {
			return false
		}
		all.Memory, all.Events = memory, append(all.Events, events...)
		all.Plan.Findings, all.Plan.Orders = append(all.Plan.Findings, plan.Findings...), append(all.Plan.Orders, plan.Orders...)
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

func eventsByHost(events []Event) map[snapshot.Hostname]int {
	byHost := make(map[snapshot.Hostname]int)
	for i := range events {
		byHost[events[i].Host]++
	}
	return byHost
}
