package controller

import (
	"context"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller/wake"
	"github.com/seed-3119e985/genv/snapshot"
)

// longestTypes is for how long a loop waits for the types of processes: three calls of nvidia-smi, each of which
// takes up to 1 or 2 s. Any user may be able to make it hang at this question, and meanwhile nothing is enforced on
// any host. Operators and early cycles aren't served instead: they change what is just being judged.
const longestTypes = 5 * time.Second

// judgeTyped judges the cluster of a cycle, and again as long as that shows hosts that have to be asked
// for the types of processes first. In a loop, the next cycle asks again where that takes too long.
func (c *Controller) judgeTyped(ctx context.Context, cycle *Cycle, policy enforce.Policy, now time.Time) (enforce.Plan, enforce.Memory, []enforce.Event) {
	if c.interval > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longestTypes)
		defer cancel()
	}
	for {
		plan, next, events := enforce.Judge(policy, cycle.Cluster, c.Memory.Rules, now)
		if len(plan.Untyped) == 0 {
			return plan, next, events
		}
		c.askTypes(ctx, cycle, plan.Untyped)
	}
}

// askTypes asks hosts for the types of processes. Where a host fails, its types become pending.
func (c *Controller) askTypes(ctx context.Context, cycle *Cycle, names []snapshot.Hostname) {
	hosts := make([]remote.Host, len(names))
	for i, name := range names {
		hosts[i] = cycle.answered[name]
	}
	cycle.Cluster.Hosts = slices.Clone(cycle.Cluster.Hosts)
	begun := time.Now()
	for i, r := range remote.Each(ctx, hosts, c.Fanout, func(ctx context.Context, h remote.Host) (*snapshot.Snapshot, error) {
		return wake.Typed(ctx, c.Link, h)
	}) {
		at := slices.IndexFunc(cycle.Cluster.Hosts, func(h snapshot.Host) bool { return h.Name == names[i] })
		h := &cycle.Cluster.Hosts[at]
		if r.Err != nil || !sameMachine(r.Value, h.Snapshot) {
			h.Snapshot = withPendingTypes(h.Snapshot)
			continue
		}
		for _, w := range h.Snapshot.Warnings { // a host may say it once
			if !slices.Contains(r.Value.Warnings, w) {
				r.Value.Warnings = append(slices.Clip(r.Value.Warnings), w)
			}
		}
		h.Snapshot, cycle.askedAt[r.Host.Name] = r.Value, begun
	}
}

func sameMachine(a, b *snapshot.Snapshot) bool {
	return a.BootID == b.BootID && a.StateFolder == b.StateFolder
}

// withPendingTypes is a copy of a snapshot in which each type that is empty is TypePending.
func withPendingTypes(s *snapshot.Snapshot) *snapshot.Snapshot {
	pending := *s
	pending.TypesAsked, pending.Processes = true, slices.Clone(s.Processes)
	for i := range pending.Processes {
		p := &pending.Processes[i]
		p.Usage = slices.Clone(p.Usage)
		for j := range p.Usage {
			if p.Usage[j].Type == "" {
				p.Usage[j].Type = snapshot.TypePending
			}
		}
	}
	return &pending
}
