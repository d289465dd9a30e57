package hooks

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	maxChatLines = 20
	maxChatText  = 400 // bytes of what somebody chose
)

// chat is the notice in the markup of Slack, which Mattermost understands.
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
		m := &n.Messages[i]
		lines = append(lines, fmt.Sprintf(":speech_balloon: *Message* on %s: %s", quoted(string(m.Host)), quoted(m.Text)))
	}
	for i := range n.Outcomes {
		if r := &n.Outcomes[i]; r.Kind == audit.KindOutcome {
			lines = append(lines, ":octagonal_sign: "+done(r))
		}
	}
	for _, held := range [][]string{texts(n.HeldUsers), texts(n.HeldHosts)} {
		for _, line := range held {
			lines = append(lines, ":raised_hand: *Kept back:* "+quoted(line))
		}
	}
	if more := len(lines) - maxChatLines; more > 0 {
		lines = append(lines[:maxChatLines], fmt.Sprintf("And %d more.", more))
	}
	return strings.Join(lines, "\n")
}

func texts[T fmt.Stringer](list []T) (lines []string) {
	for _, each := range list {
		lines = append(lines, each.String())
	}
	return lines
}

// done is what became of an item of an order.
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

// about names a person and a host, as far as they are known.
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

// escaped mentions no person and no channel.
func escaped(s string) string { return chatEscaper.Replace(text.OneLine(s)) }

// quoted also keeps what somebody chose from being markup or a link.
func quoted(s string) string { return "`" + escaped(text.Cut(strings.TrimSpace(s), maxChatText)) + "`" }
