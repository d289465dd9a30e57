package controller

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// guardLink carries orders to hosts; *agent.Pool is one. Other links reach no guard.
type guardLink interface {
	Guard(ctx context.Context, host remote.Host, request agent.GuardRequest) (agent.GuardAnswer, error)
}

// guardFleet is the hosts of a cycle.
type guardFleet struct {
	Cluster  snapshot.Cluster
	Answered map[snapshot.Hostname]remote.Host // under which name each host answered
	About    func(remote.Host) agent.About
}

// guardedHost is a host of the fleet that answered.
type guardedHost struct {
	*snapshot.Host
	remote remote.Host // under the name that answered
	about  agent.About
}

func (f *guardFleet) host(h *snapshot.Host) *guardedHost {
	answered := f.Answered[h.Name]
	return &guardedHost{h, answered, f.About(answered)}
}

// guardOptions are what a cycle's orders have in common.
type guardOptions struct {
	ID       string // of the controller
	By       string // where it runs and who started it, for people
	Interval time.Duration
	DryRun   bool
	Now      time.Time
}

// guardAsk is a request to a host, and its answer.
type guardAsk struct {
	name    snapshot.Hostname
	host    remote.Host
	request agent.GuardRequest
	begun   time.Time
	answer  agent.GuardAnswer
	err     error
}

// Host is the host's name in the cluster, and how it is reached.
func (a *guardAsk) Host() (snapshot.Hostname, remote.Host) { return a.name, a.host }

// Send asks the host, unless a is nil or ctx has ended.
func (a *guardAsk) Send(ctx context.Context, link any) {
	if a == nil {
		return
	}
	if a.err = ctx.Err(); a.err != nil {
		return
	}
	carrier, ok := link.(guardLink)
	if !ok {
		a.err = agent.ErrCannotGuard
		return
	}
	a.answer, a.err = carrier.Guard(ctx, a.host, a.request)
}

// Unsent says why the guard is not asked. A nil guardAsk asks nothing.
func (a *guardAsk) Unsent(why error) {
	if a != nil {
		a.err = why
	}
}

// WantedGuard is the guard that the policy wants; off for a host that is exempt.
func WantedGuard(policy enforce.Policy, h *snapshot.Host, now time.Time) guard.PolicySetting {
	s := policy.Settings(enforce.Query{Host: h.Name, Labels: h.Labels, At: now}).Guard
	if s.Mode == guard.Off {
		return guard.PolicySetting{}
	}
	if _, exempt := policy.Exempt(enforce.Subject{Host: h.Name}); exempt {
		return guard.PolicySetting{}
	}
	return s
}

// guardOrder is the order for a host.
func guardOrder(policy enforce.Policy, h *guardedHost, s guard.PolicySetting, o guardOptions) guard.Order {
	wanted := guard.Order{Mode: s.Mode, ExemptUsers: s.ExemptUsers, ExemptUIDs: s.ExemptUIDs, By: o.By}
	if s.Mode == guard.Off {
		return wanted
	}
	wanted.Lease = guardLease(o.Interval)
	for i := range h.Snapshot.Devices {
		d := &h.Snapshot.Devices[i]
		if _, exempt := policy.Exempt(enforce.Subject{Host: h.Name, Device: d}); !exempt {
			continue
		}
		wanted.ExemptDevices = append(wanted.ExemptDevices, d.Index)
		if d.UUID != "" {
			wanted.ExemptUUIDs = append(wanted.ExemptUUIDs, d.UUID)
		}
	}
	return wanted
}

// guardLease is for how long each cycle renews the guard: 60 s, or three intervals if that is
// longer, within what an order may have.
func guardLease(interval time.Duration) time.Duration {
	return min(max(time.Minute, 3*interval), guard.MaxLease)
}

// planGuards decides what the kernel guards are asked. The latest event of each
// host waits in pendingEvents.
func (c *Controller) planGuards(cycle *Cycle) {
	now := c.Now()
	fleet := guardFleet{Cluster: cycle.Cluster, Answered: cycle.answered, About: c.Link.About}
	options := guardOptions{
		ID: cmp.Or(c.ID, c.run), By: cmp.Or(c.By, "genv remote enforce"), Interval: c.interval, DryRun: c.DryRun, Now: now,
	}
	asks, events := c.guards.Plan(c.Memory.Operator.Policy(c.Policy, now), fleet, c.Memory.Guards, options)
	newer := make(map[snapshot.Hostname]bool, len(events))
	for i := range events {
		newer[events[i].Host] = true
	}
	c.pendingEvents = slices.DeleteFunc(c.pendingEvents, func(e enforce.Event) bool { return newer[e.Host] })
	cycle.guards, c.pendingEvents = asks, append(c.pendingEvents, events...)
}
