package mail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// bytes is the message by RFC 5322, with CRLF at the end of each line. Nothing in it
// can add a header: what isn't ASCII or plain is encoded.
func (m *mimeMessage) bytes() ([]byte, error) {
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

// ErrOptedOut is why a user gets no mail.
var ErrOptedOut = errors.New("not sent: the policy lists the user under `opt-out`")

// errNoAddress is why a user gets no mail.
var errNoAddress = errors.New("no mail address is known for this user")

// addressWithin is how long a command may take to find an address.
const addressWithin = 10 * time.Second

// addressOf is where mail to a user goes. An error that isn't final may be over soon.
func addressOf(ctx context.Context, settings *policy.Mail, user snapshot.Username) (string, error) {
	switch address, known := settings.Address(user); {
	case known:
		return address, nil
	case settings.AddressTemplate != nil:
		address, err := settings.TemplatedAddress(user)
		return address, finally(err)
	case len(settings.AddressCommand) > 0:
		return askAddress(ctx, settings.AddressCommand, user)
	}
	return "", finally(errNoAddress)
}

// askAddress asks a program for the address of a user: the name is its last argument.
func askAddress(ctx context.Context, command []string, user snapshot.Username) (string, error) {
	if text.CheckUsername(string(user)) != nil || strings.ContainsAny(string(user), "'`\"$;&<>|(){}") { // it may be a script
		return "", finally(fmt.Errorf("%w: %s", policy.ErrUserName, text.Quoted(string(user), 80)))
	}
	out, err := runProgram(ctx, addressWithin, nil, append(command[:len(command):len(command)], string(user))...)
	if err != nil {
		return "", fmt.Errorf("%s: %w", command[0], err)
	}
	answer := strings.TrimSuffix(strings.TrimSuffix(out, "\n"), "\r")
	if answer == "" {
		return "", finally(errNoAddress)
	}
	address, err := policy.ParseAddress(answer)
	if err != nil {
		return "", finally(fmt.Errorf("%s: %w", command[0], err))
	}
	return address, nil
}
