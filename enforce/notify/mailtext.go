package notify

import (
	"fmt"
	"slices"
	"strings"
)

// Subject is the subject of a mail.
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

// Body is the text of a mail.
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
	if slices.ContainsFunc(n.Findings, func(f NoticeItem) bool { return len(f.Decisions) > 0 }) {
		b.WriteString("`genv why DECISION` shows all of a decision.\n")
	}
	if n.Contact != "" {
		fmt.Fprintf(&b, "Questions: %s\n", n.Contact)
	}
	return b.String()
}

// write writes a finding, line by line.
func (f *NoticeItem) write(b *strings.Builder) {
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
