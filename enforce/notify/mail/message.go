package mail

import (
	"bytes"
	netmail "net/mail"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// message is a mail as it is sent.
type message struct {
	from    netmail.Address
	to      string // an address that ParseAddress accepted
	replyTo string // the same; empty for none
	subject string
	body    string
	id      string // of the Message-ID, without the domain
	date    time.Time
}

// maxSubject is how many characters a subject has at most.
const maxSubject = 200

// bytes is the message by RFC 5322, with CRLF at the end of each line. Nothing in it
// can add a header: what isn't ASCII or plain is encoded.
func (m *message) bytes() ([]byte, error) {
	_, domain, _ := strings.Cut(m.from.Address, "@")
	msg := gomail.NewMsg(gomail.WithCharset("utf-8"), gomail.WithEncoding(gomail.EncodingQP), gomail.WithNoDefaultUserAgent())
	msg.FromMailAddress(&m.from)
	msg.ToMailAddress(&netmail.Address{Address: m.to})
	if m.replyTo != "" {
		msg.ReplyToMailAddress(&netmail.Address{Address: m.replyTo})
	}
	// A subject must not look encoded.
	msg.Subject(text.Shorten(strings.ReplaceAll(text.OneLine(m.subject), "=?", "= ?"), maxSubject))
	msg.SetDateWithValue(m.date)
	msg.SetMessageIDWithValue(m.id + "@" + domain)
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetGenHeader("X-Auto-Response-Suppress", "All") // as Exchange calls it
	lines := text.PrintableLines(strings.ReplaceAll(m.body, "\r\n", "\n"))
	msg.SetBodyString(gomail.TypeTextPlain, strings.TrimRight(lines, "\n")+"\n")
	var b bytes.Buffer
	_, err := msg.WriteTo(&b)
	return b.Bytes(), err
}
