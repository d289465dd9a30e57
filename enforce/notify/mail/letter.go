package mail

import (
	"bytes"
	"cmp"
	"fmt"
	netmail "net/mail"
	"slices"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	maxSubject = 200 // characters
	maxHosts   = 3   // in a subject
)

// format is a mail to an address by RFC 5322, with CRLF at the end of each line; id is the Message-ID without the
// domain. Nothing can add a header: what isn't plain ASCII is encoded.
func format(settings *policy.Mail, to, id, subject, body string, now time.Time) ([]byte, error) {
	_, domain, _ := strings.Cut(settings.Sender.Address, "@")
	msg := gomail.NewMsg(gomail.WithCharset("utf-8"), gomail.WithEncoding(gomail.EncodingQP),
		gomail.WithNoDefaultUserAgent())
	msg.FromMailAddress(&settings.Sender)
	msg.ToMailAddress(&netmail.Address{Address: to})
	if settings.ReplyTo != "" {
		msg.ReplyToMailAddress(&netmail.Address{Address: settings.ReplyTo})
	}
	// A subject must not look encoded.
	msg.Subject(text.Shorten(strings.ReplaceAll(text.OneLine(subject), "=?", "= ?"), maxSubject))
	msg.SetDateWithValue(now)
	msg.SetMessageIDWithValue(id + "@" + domain)
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetGenHeader("X-Auto-Response-Suppress", "All") // as Exchange calls it
	lines := text.PrintableLines(strings.ReplaceAll(body, "\r\n", "\n"))
	msg.SetBodyString(gomail.TypeTextPlain, strings.TrimRight(lines, "\n")+"\n")
	var b bytes.Buffer
	_, err := msg.WriteTo(&b)
	return b.Bytes(), err
}

// Compose is the subject and the text of a letter. Both are safe to show: what users chose is quoted and escaped.
func Compose(l Letter, settings *policy.Mail) (subject, body string) {
	subject, body = l.subject(), l.body(cmp.Or(settings.Contact, settings.ReplyTo))
	if l.Test {
		subject = "[test] " + subject
	}
	return subject, body
}

func (l *Letter) subject() string {
	subject := "[genv] Your GPU use"
	switch count := len(l.Items) + l.More; {
	case l.Digest || count > 1:
		subject = fmt.Sprintf("[genv] %d notices about your GPU use", count)
	case count == 1 && l.Items[0].Rule == "":
		subject = "[genv] A message about your GPU use"
	case count == 1 && l.Items[0].Pending:
		subject = "[genv] Action needed: your GPU use"
	}
	var hosts []string
	for i := range l.Items {
		if h := text.OneLine(string(l.Items[i].Host)); h != "" && !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	switch n := len(hosts) - maxHosts; {
	case n > 0:
		return fmt.Sprintf("%s on %s and %d more hosts", subject, strings.Join(hosts[:maxHosts], ", "), n)
	case len(hosts) > 0:
		return subject + " on " + strings.Join(hosts, ", ")
	}
	return subject
}

// body is the text; contact is whom to ask, empty for none.
func (l *Letter) body(contact string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Hello %s,\n\n", text.Shown(string(l.User)))
	title := "genv noticed this about your GPU use:"
	if l.Digest {
		title = "this is what genv noticed about your GPU use since the last mail:"
	}
	b.WriteString(title + "\n")
	for i := range l.Items {
		writeItem(&b, &l.Items[i])
	}
	if l.More > 0 {
		fmt.Fprintf(&b, "\nAnd there are %d more, which are left out here.\n", l.More)
	}
	b.WriteString("\n`genv history` on the host shows what was done to your processes and GPUs.\n")
	if slices.ContainsFunc(l.Items, func(m notify.UserMessage) bool { return len(m.Decisions) > 0 }) {
		b.WriteString("`genv why DECISION` shows all of a decision.\n")
	}
	if slices.ContainsFunc(l.Items, func(m notify.UserMessage) bool { return m.Rule != "" }) {
		b.WriteString(notify.Decided(contact) + "\n")
	} else if contact != "" {
		fmt.Fprintf(&b, "Questions: %s\n", contact)
	}
	return b.String()
}

func writeItem(b *strings.Builder, m *notify.UserMessage) {
	title := text.OneLine(m.Line)
	if m.Host != "" {
		title = text.OneLine(string(m.Host)) + ": " + title
	}
	fmt.Fprintf(b, "\n* %s\n", title)
	add := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "  %-11s %s\n", name, value)
		}
	}
	if !m.Since.IsZero() {
		add("Seen since", notify.Clock(m.Since))
	} else {
		add("Time", notify.Clock(m.At))
	}
	add("Command", m.Command)
	add("Outcome", m.Outcome())
	add("What to do", m.Advice)
	add("Decision", strings.Join(m.Decisions, ", "))
	for i, line := range m.Record {
		if i == 0 {
			b.WriteString("  Recorded:\n")
		}
		fmt.Fprintf(b, "    %s\n", line)
	}
}
