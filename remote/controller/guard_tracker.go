package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// trackedGuard is the guard of a host as the controller knows it: what it was ordered to do, and what it does.
type trackedGuard struct {
	sent     guard.Mode // in the last order
	underWay bool       // a request was sent and not answered yet
	said     string     // the text of the last event about it
	heard    string     // the state in the last answer, as text
	deadline time.Time  // when the last order that arrived ends
	denied   uint64     // opens that were denied, by the last answer
}

// plan is what to say before a host is asked; empty for nothing new.
func (g *trackedGuard) plan(m guard.Mode, about *agent.About, o *Options) string {
	switch {
	case m == guard.Off && g.sent == guard.Off:
		return ""
	case m == guard.Off:
		return "turning the kernel guard off"
	case !about.Can.Guard && about.Via == agent.ViaStream:
		return fmt.Sprintf("the policy asks for guard: %s, but the genv on this host is an older one without a kernel guard: upgrade it. The host is polled as before", m)
	case !about.Can.Guard:
		return fmt.Sprintf("the policy asks for guard: %s, but there is no kernel guard without our genv on the host. It is polled as before", m)
	case o.Standby: // what is done is what the leader does
		return ""
	case o.DryRun:
		return fmt.Sprintf("would set the kernel guard to %s (dry run)", m)
	case g.sent != m:
		return fmt.Sprintf("setting the kernel guard to %s", m)
	}
	return ""
}

// say is an event about a text, unless it is empty or was the last one.
func (g *trackedGuard) say(host snapshot.Hostname, text string) []enforce.Event {
	if text == "" || text == g.said {
		return nil
	}
	g.said = text
	return []enforce.Event{{Kind: enforce.EventGuard, Host: host, Text: text}}
}

// learn takes note of an answer, and returns what is new about the guard.
func (g *trackedGuard) learn(a *guardAsk, err error) []enforce.Event {
	g.underWay = false
	switch {
	case err == nil:
		g.deadline = a.begun.Add(a.request.Order.Lease)
		return append(g.say(a.name, g.state(a)), g.denials(a)...)
	case a.request.Order.Mode == guard.Off:
		g.sent = guard.Watch // so that it is asked again
	}
	if g.deadline.IsZero() {
		return g.say(a.name, fmt.Sprintf("the kernel guard can't be set: %v", err))
	}
	until := g.deadline.Local().Format(time.TimeOnly)
	return g.say(a.name, fmt.Sprintf("the kernel guard can't be renewed: %v. Everything opens at %s at the latest", err, until))
}

// guardModes are the modes as people read them.
var guardModes = [...]string{guard.Off: "off", guard.Watch: "watching", guard.Enforce: "enforcing"}

// state is what to say about the guard's state. An order takes a moment to be carried out,
// so what differs from it has to be so for two answers.
func (g *trackedGuard) state(a *guardAsk) string {
	want, is := a.request.Order.Mode, a.answer.State
	said := "the kernel guard is " + guardModes[is.Mode]
	if is.Mode == want {
		g.heard = said
		return said
	}
	why := slices.DeleteFunc(append([]string{is.Reason}, is.Problems...), func(s string) bool { return s == "" })
	said += fmt.Sprintf(", although the policy says %s: %s", want, strings.Join(why, "; "))
	before := g.heard
	g.heard = said
	if before != said || len(why) == 0 {
		return ""
	}
	return said
}

// denials is an event if users begin to open GPUs that are not attached to them.
func (g *trackedGuard) denials(a *guardAsk) []enforce.Event {
	before := g.denied
	if g.denied = a.answer.State.Denied; g.denied == 0 || before > 0 {
		return nil
	}
	text := fmt.Sprintf("users opened GPUs that are not attached to them, %d times in the last hour: "+
		"`sudo genv guard status` on the host shows who", g.denied)
	return []enforce.Event{{Kind: enforce.EventGuard, Host: a.name, Text: text}}
}

// guardRecord is the record of an event about a guard.
func guardRecord(e *enforce.Event) audit.Record {
	return audit.Record{Kind: audit.KindGuard, Host: e.Host, Text: e.Text}
}
