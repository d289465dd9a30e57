package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// TLS is how a connection to a mail server is encrypted.
type TLS string

// The values of TLS.
const (
	StartTLS TLS = "starttls" // begun in the clear, and encrypted before anything is sent
	Implicit TLS = "implicit" // encrypted from the first byte, as on port 465
	NoTLS    TLS = "none"
)

// MailGather is how long the first message to a user waits for others to share its mail.
const MailGather = time.Minute

// Mail is how users get mail.
type Mail struct {
	// Sendmail is a program such as /usr/sbin/sendmail, SMTP a server as host:port. One is set.
	Sendmail, SMTP string
	TLS            TLS
	CAFile         string // certificates of the authorities of the server's; empty for those of the system
	// User logs in with the password in PasswordFile; empty for no login.
	User, PasswordFile string

	Sender  netmail.Address
	ReplyTo string // an address; empty for none
	Contact string // who to ask, as a mail says it

	accounts Aliases
	// Where mail to a user goes: Addresses first, then AddressTemplate.
	Addresses       map[snapshot.Username]string
	AddressTemplate *template.Template // nil for none
	OptOut          []string           // users who get no mail
	CopyTo          []string           // addresses that get a copy of each mail that a user was sent

	PerUser int           // mails in a digest's time; what is beyond waits for its end
	InAll   int           // mails an hour
	Digest  time.Duration // for how long what is beyond is collected
	Timeout time.Duration // for each try
}

// Why a user gets no mail.
var (
	ErrOptedOut  = errors.New("not sent: the policy lists the user under `opt-out`")
	ErrNoAddress = errors.New("no mail address is known for this user")
	errNoName    = errors.New("not sent: the host doesn't report the name of this user")
)

// Address is where mail to a user goes. Templates only get plain account names: hosts may be hostile.
func (m *Mail) Address(user snapshot.Username) (string, error) {
	account := m.accounts.Name(user)
	switch address, known := m.Addresses[account]; {
	case user == "":
		return "", errNoName
	case slices.Contains(m.OptOut, string(account)):
		return "", ErrOptedOut
	case known:
		return address, nil
	case m.AddressTemplate == nil:
		return "", ErrNoAddress
	case !plain().MatchString(string(user)):
		return "", fmt.Errorf("the name of the user is not one that a mail address is made of: %s",
			text.Shown(string(user)))
	}
	return addressFrom(m.AddressTemplate, user)
}

const anAddress = "a mail address such as alice@example.org"

// isAddress accepts a mail address that is safe as a program's argument and in a header.
func isAddress(s string) bool {
	const longest = 254 // RFC 5321
	parsed, err := netmail.ParseAddress(s)
	return err == nil && parsed.Address == s && len(s) <= longest && s[0] != '-' &&
		text.IsMadeOf(s, "@.!#$%&'*+-/=?^_`{|}~")
}

var plain = text.Pattern(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)

func addressFrom(t *template.Template, user snapshot.Username) (string, error) {
	var b strings.Builder
	if err := t.Execute(&b, struct{ User string }{string(user)}); err != nil {
		return "", err
	}
	if !isAddress(b.String()) {
		return "", fmt.Errorf("%s is not %s", text.Quoted(b.String(), 80), anAddress)
	}
	return b.String(), nil
}

// A name server may say anything.
func isLoopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

func (r *reader) readMail(n *strictyaml.Node) {
	m := &Mail{
		TLS: StartTLS, PerUser: 4, InAll: 200, Digest: time.Hour, Timeout: 30 * time.Second,
		accounts: r.file.Accounts, Addresses: make(map[snapshot.Username]string),
	}
	plaintext, before, ignored, tlsAt := false, r.doc.Errors(), len(r.file.Ignored), n
	n.Map(strictyaml.Keys{
		"sendmail": func(n *strictyaml.Node) { m.Sendmail = readPath(n) },
		"smtp": func(n *strictyaml.Node) {
			m.SMTP = readAs(n, "a server with its port; write it as mail.example.org:587", isServer)
		},
		"tls": func(n *strictyaml.Node) {
			m.TLS, tlsAt = TLS(n.OneOf(string(StartTLS), string(Implicit), string(NoTLS))), n
		},
		"allow-plaintext": func(n *strictyaml.Node) { plaintext = n.Bool() },
		"ca-file":         func(n *strictyaml.Node) { m.CAFile = readPath(n) },
		"user":            func(n *strictyaml.Node) { m.User = n.Text() },
		"password-file":   func(n *strictyaml.Node) { m.PasswordFile = readPath(n) },
		"from":            func(n *strictyaml.Node) { m.Sender = readSender(n) },
		"reply-to":        func(n *strictyaml.Node) { m.ReplyTo = readAddress(n) },
		"contact":         func(n *strictyaml.Node) { m.Contact = n.Text() },
		"addresses":       func(n *strictyaml.Node) { r.readAddresses(n, m.Addresses) },
		"template":        func(n *strictyaml.Node) { m.AddressTemplate = readAddressTemplate(n) },
		"opt-out": func(n *strictyaml.Node) {
			n.List(func(n *strictyaml.Node) {
				users, _ := r.readUserOrGroup(n)
				m.OptOut = append(m.OptOut, users...)
			})
		},
		"copy-to": func(n *strictyaml.Node) {
			n.List(func(n *strictyaml.Node) { m.CopyTo = append(m.CopyTo, readAddress(n)) })
		},
		"per-user": func(n *strictyaml.Node) { m.PerUser = n.Int(1, maxLimit) },
		"in-all":   func(n *strictyaml.Node) { m.InAll = n.Int(1, maxLimit) },
		"digest":   func(n *strictyaml.Node) { m.Digest = n.Duration(time.Minute, 7*24*time.Hour) },
		"timeout":  func(n *strictyaml.Node) { m.Timeout = n.Duration(time.Second, 10*time.Minute) },
	}, strictyaml.Keys{"command": r.ignore("command", "use `template:` or `addresses:`")})
	if n.IsMap() && r.doc.Errors() == before {
		m.check(n, tlsAt, plaintext, len(r.file.Ignored) > ignored)
	}
	r.file.Mail = m
}

func (m *Mail) check(n, tlsAt *strictyaml.Node, plaintext, program bool) {
	host, _, _ := net.SplitHostPort(m.SMTP)
	switch {
	case (m.Sendmail == "") == (m.SMTP == ""):
		n.Failf("mail: write one of `sendmail: /usr/sbin/sendmail` and `smtp: mail.example.org:587`")
	case m.Sendmail != "" && (m.User != "" || m.PasswordFile != "" || m.CAFile != "" || tlsAt != n):
		n.Failf("mail: tls, ca-file, user and password-file are for `smtp:`; remove them")
	case m.Sender.Address == "":
		n.Failf("mail: the sender is missing; write `from: genv <genv@example.org>`")
	case (m.User == "") != (m.PasswordFile == ""):
		n.Failf("mail: `user:` and `password-file:` belong together; write both or neither")
	case m.SMTP != "" && m.TLS == NoTLS && !plaintext && !isLoopback(host):
		tlsAt.Failf("tls: none sends mail in the clear; write starttls or implicit, or add `allow-plaintext: true`")
	case m.TLS == NoTLS && m.User != "" && !isLoopback(host):
		tlsAt.Failf("tls: none would send the password in the clear; write starttls or implicit")
	// with the program of earlier versions, no user has an address
	case len(m.Addresses) == 0 && m.AddressTemplate == nil && !program:
		n.Failf("mail: it has no addresses; write `template: \"{{.User}}@example.org\"` or `addresses: {alice: " +
			"alice@example.org}`")
	}
}

// readAs reads a text of some kind; for another one it reports an error and returns "".
func readAs(n *strictyaml.Node, kind string, is func(string) bool) string {
	s := n.Text()
	if s != "" && !is(s) {
		n.Failf("%q is not %s", s, kind)
		return ""
	}
	return s
}

func readPath(n *strictyaml.Node) string {
	return readAs(n, "a full path; write it as /etc/genv/name", filepath.IsAbs)
}

func isServer(s string) bool {
	host, port, err := net.SplitHostPort(s)
	number, notNumber := strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && notNumber == nil && number > 0
}

func readAddress(n *strictyaml.Node) string {
	return readAs(n, anAddress, isAddress)
}

func readSender(n *strictyaml.Node) (sender netmail.Address) {
	readAs(n, "a sender; write it as genv@example.org or genv <genv@example.org>", func(s string) bool {
		parsed, err := netmail.ParseAddress(s)
		if err == nil {
			sender = *parsed
		}
		return err == nil && isAddress(sender.Address)
	})
	return sender
}

func (r *reader) readAddresses(n *strictyaml.Node, addresses map[snapshot.Username]string) {
	n.Each(func(key, value *strictyaml.Node) {
		for _, user := range r.readUser(key) {
			addresses[snapshot.Username(user)] = readAddress(value)
		}
	})
}

func readAddressTemplate(n *strictyaml.Node) *template.Template {
	source := n.Text()
	if source == "" {
		return nil
	}
	t, err := template.New("template").Parse(source)
	if err == nil {
		var one string
		one, err = addressFrom(t, "alice")
		if other, _ := addressFrom(t, "bob"); one == other {
			err = cmp.Or(err, fmt.Errorf("all users have the address %s", one))
		}
	}
	if err != nil {
		n.Failf("template: %s; write it as \"{{.User}}@example.org\"", strings.TrimPrefix(err.Error(), "template: "))
		return nil
	}
	return t
}
