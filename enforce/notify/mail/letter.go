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

// maxSubject is how many characters a subject has at most.
const maxSubject = 200

// format is a mail to an address by RFC 5322, with CRLF at the end of each line. id is that of the Message-ID, without
// the domain. Nothing in it can add a header: what isn't ASCII or plain is encoded.
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

// write writes the letter as a message.
func (l *Letter) write(settings *policy.Mail, now time.Time) (err error) {
	subject, body := Compose(*l, settings)
	if l.Test {
		subject = "[test] " + subject
	}
	l.Text = subject + "\n" + body
	l.data, err = format(settings, l.To, l.id, subject, body, now)
	return err
}

// Compose is the subject and the text of a letter. Both are safe to show: what users chose is quoted and escaped.
func Compose(l Letter, settings *policy.Mail) (subject, body string) {
	return l.subject(), l.body(cmp.Or(settings.Contact, settings.ReplyTo))
}

func (l *Letter) subject() string {
	where := l.hosts()
	if where != "" {
		where = " on " + where
	}
	switch count := len(l.Items) + l.More; {
	case l.Digest || count > 1:
		return fmt.Sprintf("[genv] %d notices about your GPU use%s", count, where)
	case count == 1 && l.Items[0].Rule == "":
		return fmt.Sprintf("[genv] A message about your GPU use%s", where)
	case count == 1 && l.Items[0].Pending:
		return fmt.Sprintf("[genv] Action needed: your GPU use%s", where)
	}
	return fmt.Sprintf("[genv] Your GPU use%s", where)
}

// hosts are those of the items, each once, in their order.
func (l *Letter) hosts() string {
	var hosts []string
	for i := range l.Items {
		if h := text.OneLine(string(l.Items[i].Host)); h != "" && !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	const most = 3
	if len(hosts) > most {
		return fmt.Sprintf("%s and %d more hosts", strings.Join(hosts[:most], ", "), len(hosts)-most)
	}
	return strings.Join(hosts, ", ")
}

// body is the text, which names who to ask; empty for none.
func (l *Letter) body(contact string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Hello %s,\n\n", text.Shown(string(l.User)))
	if l.Digest {
		b.WriteString("this is what genv noticed about your GPU use since the last mail:\n")
	} else {
		b.WriteString("genv noticed this about your GPU use:\n")
	}
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

// writeItem writes a message, line by line.
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
