package companions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// Guards sends the policy to the kernel guards of hosts once a round, which renews their orders. It has no lasting
// memory.
type Guards struct {
	ID, By   string        // the controller's id for guards, or its run if empty; and its name for people
	Interval time.Duration // between two rounds

	hosts map[snapshot.Hostname]*trackedGuard
}

type trackedGuard struct {
	round    int        // of the last order
	sent     guard.Mode // in the last order
	underWay bool       // request has no answer yet
	said     string     // the text of the last event about it
	heard    string     // the state in the last answer, as text
	deadline time.Time  // of the last order that arrived
	denied   uint64     // the denied opens in the last answer

	request agent.GuardRequest // the last one
	begun   time.Time          // when it was planned
	answer  agent.GuardAnswer  // to it; set while it is underWay
}

// Plan implements controller.Companion. It considers hosts with a new snapshot.
func (g *Guards) Plan(
	round *controller.Round, _ []enforce.Event,
) (requests []*controller.Delivery, said controller.Effects) {
	if g.hosts == nil {
		g.hosts = make(map[snapshot.Hostname]*trackedGuard)
	}
	for i := range round.Cluster.Hosts {
		h := &round.Cluster.Hosts[i]
		if h.Snapshot == nil || !h.IsNew {
			continue
		}
		setting := WantedGuard(round.Policy, h, round.Now)
		one, tracked := g.hosts[h.Name]
		if !tracked && setting.Mode == guard.Off {
			continue
		}
		if !tracked {
			one = &trackedGuard{}
			g.hosts[h.Name] = one
		}
		about := round.About(h.Name)
		one.say(&said, h.Name, one.plan(setting.Mode, &about, round.DryRun))
		renews := one.round != h.Round || one.sent != setting.Mode
		if may := !round.DryRun && !one.underWay && about.Can(agent.RequestGuard); may && renews &&
			(setting.Mode != guard.Off || one.sent != guard.Off) {
			one.sent, one.underWay, one.round = setting.Mode, true, h.Round
			requests = append(requests, g.ask(one, round, h, setting))
		}
	}
	return requests, said
}

func (g *Guards) ask(
	one *trackedGuard, round *controller.Round, h *snapshot.Host, setting guard.PolicySetting,
) *controller.Delivery {
	one.begun, one.answer = round.Now, agent.GuardAnswer{}
	one.request = agent.GuardRequest{
		ID: agent.GuardPrefix + cmp.Or(g.ID, round.Run), Order: g.order(round.Plan.ExemptDevices[h.Name], h, setting),
	}
	send := func(ctx context.Context, link controller.Link, host remote.Host) (err error) {
		if err = ctx.Err(); err == nil {
			one.answer, err = link.Guard(ctx, host, one.request)
		}
		return err
	}
	return &controller.Delivery{Host: h.Name, Send: send}
}

// Learn implements controller.Companion.
func (g *Guards) Learn(_ *controller.Round, d *controller.Delivery) (said controller.Effects) {
	if one, known := g.hosts[d.Host]; known {
		one.learn(&said, d.Host, d.Err)
	}
	return said
}

// WantedGuard is the policy's setting for a host's guard; off for an exempt host.
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

func (g *Guards) order(exempt []snapshot.DeviceIndex, h *snapshot.Host, s guard.PolicySetting) guard.Order {
	wanted := guard.Order{
		Mode: s.Mode, ExemptUsers: s.ExemptUsers, ExemptUIDs: s.ExemptUIDs,
		By: cmp.Or(g.By, "genv remote enforce"),
	}
	if s.Mode == guard.Off {
		return wanted
	}
	wanted.LeaseMS = guardLease(g.Interval).Milliseconds()
	for i := range h.Snapshot.Devices {
		d := &h.Snapshot.Devices[i]
		if !slices.Contains(exempt, d.Index) {
			continue
		}
		wanted.ExemptDevices = append(wanted.ExemptDevices, d.Index)
		if d.UUID != "" {
			wanted.ExemptUUIDs = append(wanted.ExemptUUIDs, d.UUID)
		}
	}
	return wanted
}

// guardLease is how long an order holds without a renewal. The guard's format calls it a lease.
func guardLease(interval time.Duration) time.Duration {
	return min(max(time.Minute, 3*interval), guard.MaxLease)
}

// plan is the text for an event before a request; empty for nothing new.
func (g *trackedGuard) plan(m guard.Mode, about *agent.About, dryRun bool) string {
	switch {
	case m == guard.Off && g.sent == guard.Off:
		return ""
	case m == guard.Off:
		return "turning the kernel guard off"
	case !about.Can(agent.RequestGuard) && about.Via == agent.ViaStream:
		return fmt.Sprintf("the policy asks for guard: %s, but the genv on this host is an older one without a "+
			"kernel guard: upgrade it. The host is polled as before", m)
	case !about.Can(agent.RequestGuard):
		return fmt.Sprintf("the policy asks for guard: %s, but there is no kernel guard without our genv on the "+
			"host. It is polled as before", m)
	case dryRun:
		return fmt.Sprintf("would set the kernel guard to %s (dry run)", m)
	case g.sent != m:
		return fmt.Sprintf("setting the kernel guard to %s", m)
	}
	return ""
}

// say adds an event with a text, and its record, unless the text is empty or the same as last time.
func (g *trackedGuard) say(said *controller.Effects, host snapshot.Hostname, text string) {
	if text == "" || text == g.said {
		return
	}
	g.said = text
	say(said, host, text)
}

func say(said *controller.Effects, host snapshot.Hostname, text string) {
	said.Events = append(said.Events, enforce.Event{Kind: enforce.EventGuard, Host: host, Text: text})
	said.Records = append(said.Records, audit.Record{Kind: audit.KindGuard, Host: host, Text: text})
}

func (g *trackedGuard) learn(said *controller.Effects, host snapshot.Hostname, err error) {
	g.underWay = false
	switch {
	case err == nil:
		g.deadline = g.begun.Add(g.request.Order.Lease())
		g.say(said, host, g.state())
		g.denials(said, host)
		return
	case g.request.Order.Mode == guard.Off:
		g.sent = guard.Watch // so that it is asked again
	}
	if g.deadline.IsZero() {
		g.say(said, host, fmt.Sprintf("the kernel guard can't be set: %v", err))
		return
	}
	g.say(said, host, fmt.Sprintf("the kernel guard can't be renewed: %v. Everything opens at %s at the latest", err,
		g.deadline.Local().Format(time.TimeOnly)))
}

// guardModes are the modes as people read them.
var guardModes = [...]string{guard.Off: "off", guard.Watch: "watching", guard.Enforce: "enforcing"}

// state is the text for an event about the guard's state. An order takes some time, so a difference counts from the
// second answer on.
func (g *trackedGuard) state() string {
	want, is := g.request.Order.Mode, g.answer.State
	said := "the kernel guard is " + guardModes[is.Mode]
	if is.Mode == want {
		g.heard = said
		return said
	}
	why := slices.DeleteFunc(append([]string{is.Reason}, is.Problems...), func(s string) bool { return s == "" })
	said += fmt.Sprintf(", although the policy says %s: %s", want, strings.Join(why, "; "))
	if g.heard != said || len(why) == 0 {
		g.heard = said
		return ""
	}
	return said
}

// denials adds an event when users begin to open GPUs that are not attached to them.
func (g *trackedGuard) denials(said *controller.Effects, host snapshot.Hostname) {
	before := g.denied
	if g.denied = g.answer.State.Denied; before == 0 && g.denied > 0 {
		say(said, host, fmt.Sprintf("users opened GPUs that are not attached to them, %d times in the last hour: "+
			"`sudo genv guard status` on the host shows who", g.denied))
	}
}
