// Package hooks sends a controller's events to a policy's hooks without delaying it: as JSON to programs and web
// addresses, as text to chats.
//
//	queue := hooks.NewQueue(file.Hooks, func(p hooks.Post) { … })
//	c.Sinks = append(c.Sinks, hooks.Sink{Queue: queue, Now: time.Now})
//	…
//	queue.Close(5 * time.Second)
//
// Each hook has a short queue and gets one event at a time, with a deadline and retries. Events that don't fit are
// dropped and reported.
package hooks

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Notice is what hooks get, as JSON; docs/json.md describes it.
type Notice struct {
	Schema   string           `json:"schema"` // genv.hook/1
	Event    policy.HookEvent `json:"event"`
	Time     time.Time        `json:"time"`
	Run      string           `json:"run"`
	Cycle    int              `json:"cycle"`
	Findings []NoticedFinding `json:"findings"`
	Outcomes []audit.Record   `json:"outcomes"` // lines of the kinds told and outcome
	// HeldUsers: safety limits kept back actions against them.
	HeldUsers []safety.Held    `json:"held_users,omitempty"`
	HeldHosts []safety.Held    `json:"held_hosts,omitempty"`
	Test      bool             `json:"test,omitempty"`     // `genv policy test-notify` sent it
	Messages  []NoticedMessage `json:"messages,omitempty"` // from operators to users
}

// NoticedMessage is what an operator wrote to a user.
type NoticedMessage struct {
	ID   string            `json:"id"`
	Host snapshot.Hostname `json:"host"`
	Text string            `json:"text"`
}

// NoticedFinding is a finding with its text for people.
type NoticedFinding struct {
	enforce.Finding
	Line   string `json:"line"`
	Advice string `json:"advice"` // what its user should do
}

// Sink sends new findings, actions, and what limits held back, to hooks.
type Sink struct {
	Queue interface{ Send(Post) } // a *Queue; must not block
	Now   func() time.Time
	// Leads, if set, says whether the controller may act, right before each event, except those of its own actions: the
	// leading controller sends the others.
	Leads func() bool
}

// Consume implements controller.Sink.
func (s Sink) Consume(round *controller.Round, events []enforce.Event) {
	if round.DryRun && !round.Standby || len(events) == 0 {
		return
	}
	warned, acted := Notice{Event: policy.OnWarn}, Notice{Event: policy.OnAct}
	find := notify.NewRecipients(round.Cluster).Environment
	held := Notice{Event: policy.OnLimit} // in every cycle, as the administrator has to decide
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == enforce.EventNew && e.Finding.Pending && !e.Resumed:
			warned.Findings = append(warned.Findings, noticed(e.Finding, find))
		case e.Kind == controller.EventOperator && e.ID != "":
			warned.Messages = append(warned.Messages, NoticedMessage{e.ID, e.Host, e.Text})
		case e.Kind == enforce.EventOutcome:
			for j := range e.Findings {
				acted.Findings = append(acted.Findings, noticed(&e.Findings[j], find))
			}
			acted.Outcomes = round.Records
		case e.Kind == enforce.EventHeld && e.Held.User != "":
			held.HeldUsers = append(held.HeldUsers, *e.Held)
		case e.Kind == enforce.EventHeld:
			held.HeldHosts = append(held.HeldHosts, *e.Held)
		}
	}
	if len(warned.Findings)+len(warned.Messages) > 0 && s.leads() {
		s.send(round, warned)
	}
	if len(acted.Outcomes) > 0 {
		s.send(round, acted)
	}
	if len(held.HeldUsers)+len(held.HeldHosts) > 0 && s.leads() {
		s.send(round, held)
	}
}

func (s Sink) leads() bool { return s.Leads == nil || s.Leads() }

func noticed(f *enforce.Finding, find func(snapshot.Hostname, snapshot.EnvID) *snapshot.Environment) NoticedFinding {
	public := *f
	public.PrivateCommand = "" // it is unknown who reads a hook's output
	return NoticedFinding{public, f.Line(), f.Advice(find)}
}

func (s Sink) send(round *controller.Round, n Notice) {
	n.Run, n.Cycle = round.Run, round.Number
	if p, err := n.at(s.Now()); err == nil { // never fails for these types
		s.Queue.Send(p)
	}
}

// at returns the post of a notice sent at this time.
func (n Notice) at(now time.Time) (Post, error) {
	n.Schema, n.Time = "genv.hook/1", now.UTC()
	n.Findings, n.Outcomes = append([]NoticedFinding{}, n.Findings...), append([]audit.Record{}, n.Outcomes...)
	body, err := json.Marshal(n)
	if err != nil {
		return Post{}, err
	}
	chat, err := json.Marshal(map[string]string{"text": n.chat()})
	return Post{Event: n.Event, JSON: body, Chat: chat, IDs: n.ids()}, err
}

func (n *Notice) ids() []string {
	var ids []string
	for i := range n.Findings[:min(len(n.Findings), maxIDs)] {
		ids = append(ids, n.Findings[i].ID)
	}
	for i := range n.Messages[:min(len(n.Messages), maxIDs)] {
		ids = append(ids, n.Messages[i].ID)
	}
	return ids
}

const (
	maxIDs       = 100 // findings in an event's record
	maxChatLines = 20
	maxChatText  = 400 // bytes of texts from users
)

// chat formats the notice in Slack's markup, which Mattermost understands.
func (n *Notice) chat() string {
	var lines []string
	for i := range n.Findings {
		switch f := &n.Findings[i]; {
		case n.Test:
			lines = append(lines, ":information_source: "+escaped(f.Line))
		case n.Event == policy.OnWarn:
			m := notify.Summary(&f.Finding, n.Time)
			lines = append(lines, fmt.Sprintf(":warning: *Warning* for %s, rule %s: %s %s",
				about(string(m.User), string(m.Host)), f.Rule, quoted(m.Line), escaped(m.Outcome())))
		}
	}
	for i := range n.Messages {
		host, said := string(n.Messages[i].Host), n.Messages[i].Text
		lines = append(lines, fmt.Sprintf(":speech_balloon: *Message* on %s: %s", quoted(host), quoted(said)))
	}
	for i := range n.Outcomes {
		if r := &n.Outcomes[i]; r.Kind == audit.KindOutcome {
			lines = append(lines, ":octagonal_sign: "+done(r))
		}
	}
	for _, held := range slices.Concat(n.HeldUsers, n.HeldHosts) {
		lines = append(lines, ":raised_hand: *Kept back:* "+quoted(held.String()))
	}
	if more := len(lines) - maxChatLines; more > 0 {
		lines = append(lines[:maxChatLines], fmt.Sprintf("And %d more.", more))
	}
	return strings.Join(lines, "\n")
}

func done(r *audit.Record) string {
	what := fmt.Sprintf("process %d", r.PID)
	if r.Device != nil {
		what = "GPU " + r.Device.String()
	}
	line := fmt.Sprintf("*%s:* %s of %s", escaped(string(cmp.Or(r.Status, "outcome unknown"))), what,
		about(string(r.User), string(r.Host)))
	if r.Reason != "" {
		line += ", " + quoted(r.Reason)
	}
	if len(r.Why) > 0 {
		line += ", because of " + quoted(strings.Join(r.Why, "; "))
	}
	return line
}

func about(user, host string) string {
	if user == "" {
		user = "unknown user"
	}
	if host == "" {
		return quoted(user)
	}
	return quoted(user) + " on " + quoted(host)
}

var chatEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "`", "'", "@", "@\u200b")

// escaped prevents mentions of persons and channels.
func escaped(s string) string { return chatEscaper.Replace(text.OneLine(s)) }

// quoted also prevents markup and links.
func quoted(s string) string { return "`" + escaped(text.Cut(strings.TrimSpace(s), maxChatText)) + "`" }
