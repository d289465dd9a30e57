package mail

import (
	"bytes"
	"errors"
	netmail "net/mail"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// mimeMessage is a mail as it is sent.
type mimeMessage struct {
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

// bytes is the message by RFC 5322, with CRLF at the end of each line. Nothing in it can add a header: what isn't ASCII
// or plain is encoded.
func (m *mimeMessage) bytes() ([]byte, error) {
	_, domain, _ := strings.Cut(m.from.Address, "@")
	msg := gomail.NewMsg(gomail.WithCharset("utf-8"), gomail.WithEncoding(gomail.EncodingQP),
		gomail.WithNoDefaultUserAgent())
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

// write writes a letter as a message, and returns its text for the record.
func write(settings *policy.Mail, j *job, to string, now time.Time) (data []byte, body string, err error) {
	subject, body := Compose(j.letter, settings)
	if j.letter.Test {
		subject = "[test] " + subject
	}
	m := mimeMessage{
		from: settings.Sender, to: to, replyTo: settings.ReplyTo, subject: subject, body: body, id: j.id, date: now,
	}
	data, err = m.bytes()
	return data, subject + "\n" + body, finally(err)
}

// errNoAddress is why a user gets no mail.
var errNoAddress = errors.New("no mail address is known for this user")

// addressOf is where mail to a user goes. An error is final.
func addressOf(settings *policy.Mail, user snapshot.Username) (string, error) {
	switch address, known := settings.Address(user); {
	case known:
		return address, nil
	case settings.AddressTemplate != nil:
		address, err := settings.TemplatedAddress(user)
		return address, finally(err)
	}
	return "", finally(errNoAddress)
}
