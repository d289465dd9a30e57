package texts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Subject is the built-in subject of a mail.
func Subject(n Notice) string {
	where := n.Hosts()
	if where != "" {
		where = " on " + where
	}
	switch count := len(n.Findings) + n.More; {
	case n.Digest || count > 1:
		return fmt.Sprintf("[genv] %d notices about your GPU use%s", count, where)
	case count == 1 && n.Findings[0].Rule == "":
		return fmt.Sprintf("[genv] A message about your GPU use%s", where)
	case count == 1 && n.Findings[0].Pending:
		return fmt.Sprintf("[genv] Action needed: your GPU use%s", where)
	}
	return fmt.Sprintf("[genv] Your GPU use%s", where)
}

// Body is the built-in text of a mail.
func Body(n Notice) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Hello %s,\n\n", n.User)
	if n.Digest {
		b.WriteString("this is what genv noticed about your GPU use since the last mail:\n")
	} else {
		b.WriteString("genv noticed this about your GPU use:\n")
	}
	for i := range n.Findings {
		n.Findings[i].write(&b)
	}
	if n.More > 0 {
		fmt.Fprintf(&b, "\nAnd there are %d more, which are left out here.\n", n.More)
	}
	b.WriteString("\n`genv history` on the host shows what was done to your processes and devices.\n")
	if slices.ContainsFunc(n.Findings, func(f Finding) bool { return len(f.Decisions) > 0 }) {
		b.WriteString("`genv why DECISION` shows all of a decision.\n")
	}
	if n.Contact != "" {
		fmt.Fprintf(&b, "Questions: %s\n", n.Contact)
	}
	return b.String()
}

// write writes a finding, line by line.
func (f *Finding) write(b *strings.Builder) {
	title := f.Text
	if f.Host != "" {
		title = f.Host + ": " + title
	}
	fmt.Fprintf(b, "\n* %s\n", title)
	add := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "  %-11s %s\n", name, value)
		}
	}
	if !f.Since.IsZero() {
		add("Seen since", Clock(f.Since))
	} else {
		add("Time", Clock(f.At))
	}
	add("Command", f.Command)
	add("Outcome", f.Outcome())
	add("What to do", f.Advice)
	add("Decision", strings.Join(f.Decisions, ", "))
	for i, line := range f.Record {
		if i == 0 {
			b.WriteString("  Recorded:\n")
		}
		fmt.Fprintf(b, "    %s\n", line)
	}
}

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
