package policy

import (
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
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

// Mail says how users get mail.
type Mail struct {
	// Sendmail is a program such as /usr/sbin/sendmail, SMTP a server as host:port. One of
	// the two is set.
	Sendmail string
	SMTP     string
	TLS      TLS
	// CAFile has the certificates of the authorities that the server's may come from;
	// empty for those of the system.
	CAFile string
	// User logs in with the password in PasswordFile; empty for no login.
	User, PasswordFile string

	Sender  netmail.Address
	ReplyTo string // an address; empty for none
	Contact string // who to ask, as a mail says it

	accounts Aliases
	// Where mail to a user goes: Addresses first, then AddressTemplate.
	Addresses       map[snapshot.Username]string
	AddressTemplate *template.Template // nil for none
	// OptOut are users who get no mail.
	OptOut []string
	// CopyTo are addresses that get a copy of each mail that a user was sent.
	CopyTo []string

	PerUser int           // mails in a digest's time; what is beyond waits for its end
	InAll   int           // mails an hour
	Digest  time.Duration // for how long what is beyond is collected
	Timeout time.Duration // for each try

	From Source
}

// OptedOut says whether a user gets no mail.
func (m *Mail) OptedOut(user snapshot.Username) bool {
	return slices.Contains(m.OptOut, string(m.accounts.Name(user)))
}

// Address is the address of a user that the policy names.
func (m *Mail) Address(user snapshot.Username) (address string, known bool) {
	address, known = m.Addresses[m.accounts.Name(user)]
	return address, known
}

// ParseAddress checks that a text is one mail address and nothing else, such as
// alice@example.org, which can be given to a program and written into a header.
func ParseAddress(s string) (string, error) {
	parsed, err := netmail.ParseAddress(s)
	switch {
	case err != nil || parsed.Address != s || parsed.Name != "":
		return "", fmt.Errorf("%s is not a mail address such as alice@example.org", text.Quoted(s, maxShownAddress))
	case len(s) > maxAddress:
		return "", fmt.Errorf("the mail address %s is longer than %d characters", text.Quoted(s, maxShownAddress),
			maxAddress)
	case s[0] == '-' || !text.IsMadeOf(s, "@.!#$%&'*+-/=?^_`{|}~"):
		return "", fmt.Errorf("the mail address %s has characters that genv does not send mail to",
			text.Quoted(s, maxShownAddress))
	}
	return s, nil
}

const (
	maxAddress      = 254 // RFC 5321
	maxShownAddress = 80
)

// ErrUserName says that no address is made of a name.
var ErrUserName = errors.New("the name of the user is not one that a mail address is made of")

// TemplatedAddress is the address of a user by the template. A name that isn't a plain
// account name is refused: hosts report names, and a host may be hostile.
func (m *Mail) TemplatedAddress(user snapshot.Username) (string, error) {
	if !PlainName(user) {
		return "", fmt.Errorf("%w: %s", ErrUserName, text.Quoted(string(user), maxShownAddress))
	}
	return addressFrom(m.AddressTemplate, user)
}

// PlainName says whether a name is that of an ordinary account: letters, digits and
// . _ -, at most 64, and no dash or dot at its beginning.
func PlainName(user snapshot.Username) bool {
	const longest = 64
	return user != "" && len(user) <= longest && text.IsMadeOf(string(user), "._-") && user[0] != '-' && user[0] != '.'
}

func addressFrom(t *template.Template, user snapshot.Username) (string, error) {
	var b strings.Builder
	if err := t.Execute(&b, struct{ User string }{string(user)}); err != nil {
		return "", err
	}
	return ParseAddress(b.String())
}

// isLoopback says whether a host is this machine, whatever a name server says.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
