package controller

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// guardAsk is a request to the guard of a host, and its answer.
type guardAsk struct {
	name    snapshot.Hostname
	request agent.GuardRequest
	begun   time.Time
	answer  agent.GuardAnswer
}

// planGuards decides what the guards of the hosts that answered are asked, and says what is new about them. A dry run asks
// none.
func (c *Controller) planGuards(cycle *Cycle, policy enforce.Policy, next *FleetMemory, now time.Time) (asks []errand, events []enforce.Event) {
	known := make(map[snapshot.Hostname]trackedGuard, len(c.Memory.guards))
	maps.Copy(known, c.Memory.guards)
	for i := range cycle.Cluster.Hosts {
		h := &cycle.Cluster.Hosts[i]
		if h.Err != nil || h.Snapshot == nil {
			continue
		}
		setting := WantedGuard(policy, h, now)
		g, tracked := known[h.Name]
		if !tracked && setting.Mode == guard.Off {
			continue
		}
		about := c.Link.About(cycle.answered[h.Name])
		events = append(events, g.say(h.Name, g.plan(setting.Mode, &about, &c.Options))...)
		if ask := !c.DryRun && !g.underWay && about.Can.Guard; ask && (setting.Mode != guard.Off || g.sent != guard.Off) {
			g.sent, g.underWay = setting.Mode, true
			asks = append(asks, &guardAsk{name: h.Name, begun: now, request: agent.GuardRequest{
				ID: agent.GuardPrefix + cmp.Or(c.ID, c.run), Order: c.guardOrder(policy, h, setting),
			}})
		}
		known[h.Name] = g
	}
	next.guards = known
	return asks, events
}

func (a *guardAsk) to() snapshot.Hostname { return a.name }

func (a *guardAsk) send(ctx context.Context, link Link, host remote.Host) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	a.answer, err = link.Guard(ctx, host, a.request)
	return err
}

// learn takes note of an answer, and says what is new.
func (a *guardAsk) learn(c *Controller, _ *Cycle, err error) (l learned) {
	g, known := c.Memory.guards[a.name]
	if !known { // another role has begun since
		return l
	}
	l.events = g.learn(a, err)
	c.Memory.guards[a.name] = g
	for i := range l.events {
		l.records = append(l.records, guardRecord(&l.events[i]))
	}
	return l
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
func (c *Controller) guardOrder(policy enforce.Policy, h *snapshot.Host, s guard.PolicySetting) guard.Order {
	wanted := guard.Order{Mode: s.Mode, ExemptUsers: s.ExemptUsers, ExemptUIDs: s.ExemptUIDs, By: cmp.Or(c.By, "genv remote enforce")}
	if s.Mode == guard.Off {
		return wanted
	}
	wanted.Lease = guardLease(c.interval)
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
