package texts

import (
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// maxSlack is how many characters a message to a chat has at most: Slack wants fewer than
// 4,000.
const maxSlack = 3900

// slackEscape makes a text harmless for Slack and for Mattermost: it can't mention
// people, begin a link, or end the code that it is shown in.
var slackEscape = strings.NewReplacer(
	"&", "&amp;", "<", "&lt;", ">", "&gt;", "`", "'", "@", "@\u200b", "://", ":\u200b//",
)

// ForSlack is a notice with texts that can be written into a message to a chat.
func ForSlack(n Notice) Notice {
	escaped := func(s string) string { return slackEscape.Replace(text.OneLine(s)) }
	n.User, n.Contact = escaped(n.User), escaped(n.Contact)
	findings := make([]Finding, len(n.Findings))
	for i, f := range n.Findings {
		f.ID, f.Host, f.Rule, f.Text = escaped(f.ID), escaped(f.Host), escaped(f.Rule), escaped(f.Text)
		f.Command, f.Follows, f.Advice = escaped(f.Command), escaped(f.Follows), escaped(f.Advice)
		f.Decisions, f.Record = nil, nil // they are for the user
		findings[i] = f
	}
	n.Findings = findings
	return n
}

// slackTitles are what the events of hooks are called.
var slackTitles = map[string]string{
	"warn": "New findings", "act": "Actions", "hold": "Held back by safety limits",
}

// SlackText is the message to a chat about an event: by the template of the policy, or
// built in.
func (s Set) SlackText(n Notice, failed func(error)) string {
	return text.Shorten(s.Text(Slack, ForSlack(n), slackBuiltIn, failed), maxSlack)
}

// slackBuiltIn shows each finding as code, in which a chat looks for no links and no
// names.
func slackBuiltIn(n Notice) string {
	var b strings.Builder
	title := slackTitles[n.Event]
	if title == "" {
		title = "genv"
	}
	fmt.Fprintf(&b, "*%s* (%d)\n", title, len(n.Findings)+n.More)
	for i := range n.Findings {
		f := &n.Findings[i]
		line := f.Text
		if f.Host != "" {
			line = f.Host + ": " + line
		}
		if outcome := f.Outcome(); outcome != "" {
			line += " " + outcome
		}
		fmt.Fprintf(&b, "• `%s`\n", text.Shorten(line, maxSlackLine))
	}
	if n.More > 0 {
		fmt.Fprintf(&b, "… and %d more\n", n.More)
	}
	return b.String()
}

// maxSlackLine is how many characters of a finding are shown.
const maxSlackLine = 300
