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

// write writes a letter as a message, and returns its text for the record.
func write(settings *policy.Mail, j *job, to string, now time.Time) (data []byte, body string, err error) {
	subject, body := Compose(j.letter, settings)
	if j.letter.Test {
		subject = "[test] " + subject
	}
	data, err = format(settings, to, j.id, subject, body, now)
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
