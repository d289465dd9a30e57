package mail

import (
	"bytes"
	"fmt"
	"mime"
	"mime/quotedprintable"
	netmail "net/mail"
	"strings"
	"time"

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
	var b bytes.Buffer
	header := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	header("From", m.from.String())
	header("To", (&netmail.Address{Address: m.to}).String())
	if m.replyTo != "" {
		header("Reply-To", (&netmail.Address{Address: m.replyTo}).String())
	}
	header("Subject", encodeSubject(m.subject))
	header("Date", m.date.Format(time.RFC1123Z))
	header("Message-ID", "<"+m.id+"@"+domain+">")
	header("Auto-Submitted", "auto-generated")
	header("X-Auto-Response-Suppress", "All") // as Exchange calls it
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	header("Content-Transfer-Encoding", "quoted-printable")
	b.WriteString("\r\n")
	body := quotedprintable.NewWriter(&b)
	lines := strings.TrimRight(text.PrintableLines(strings.ReplaceAll(m.body, "\r\n", "\n")), "\n") + "\n"
	if _, err := body.Write([]byte(strings.ReplaceAll(lines, "\n", "\r\n"))); err != nil {
		return nil, err
	}
	if err := body.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// encodeSubject is a subject as a header has it: by RFC 2047 if it isn't ASCII, with each
// encoded word on a line of its own. It makes sure that a subject doesn't look encoded.
func encodeSubject(subject string) string {
	subject = text.Shorten(strings.ReplaceAll(text.OneLine(subject), "=?", "= ?"), maxSubject)
	return strings.ReplaceAll(mime.QEncoding.Encode("utf-8", subject), "?= =?", "?=\r\n =?")
}
