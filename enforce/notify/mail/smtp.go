package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/smtp"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// server is a mail server.
type server struct {
	settings *policy.Mail
	hello    string // the name of this machine
}

// send sends one message over a connection of its own. Before the connection is
// encrypted as the policy wants it, neither a password nor the mail leaves.
func (s server) send(ctx context.Context, to string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	client, err := s.connect(ctx)
	if err != nil {
		return &serverError{fmt.Errorf("%s: %w", s.settings.SMTP, plain(err))}
	}
	defer client.Close()
	if err := s.login(client); err != nil {
		return &serverError{fmt.Errorf("%s: %w", s.settings.SMTP, plain(err))}
	}
	if err := s.transfer(client, to, data); err != nil {
		return err
	}
	_ = client.Quit() // the server has the mail
	return nil
}

// connect connects, and encrypts.
func (s server) connect(ctx context.Context) (*smtp.Client, error) {
	host, _, err := net.SplitHostPort(s.settings.SMTP)
	if err != nil {
		return nil, err
	}
	config, err := s.tls(host)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.settings.SMTP)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
	}
	conn = &brief{conn, maxAnswers}
	raw := conn
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	if s.settings.TLS == policy.Implicit {
		conn = tls.Client(conn, config)
	}
	var client *smtp.Client
	if err == nil {
		client, err = smtp.NewClient(conn, host)
	}
	if err == nil {
		err = s.greet(client, config)
	}
	if err != nil {
		stop()
		_ = conn.Close() // the first error says more
		return nil, err
	}
	return client, nil
}

// maxAnswers is how much is read from a server for one mail, in bytes: its certificates and
// some lines.
const maxAnswers = 256 << 10

// brief is a connection to a server that may only say so much: net/smtp would keep a line
// of any length.
type brief struct {
	net.Conn
	left int
}

var errTooMuch = errors.New("the mail server says more than a mail server should")

func (b *brief) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errTooMuch
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// greet says hello, and has the connection encrypted if it isn't.
func (s server) greet(client *smtp.Client, config *tls.Config) error {
	if err := client.Hello(s.hello); err != nil {
		return err
	}
	if s.settings.TLS != policy.StartTLS {
		return nil
	}
	if offered, _ := client.Extension("STARTTLS"); !offered {
		return errors.New("it doesn't offer STARTTLS, and nothing is sent in the clear")
	}
	return client.StartTLS(config)
}

func (s server) tls(host string) (*tls.Config, error) {
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if s.settings.CAFile == "" {
		return config, nil
	}
	data, err := os.ReadFile(s.settings.CAFile)
	if err != nil {
		return nil, err
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s holds no certificate", s.settings.CAFile)
	}
	return config, nil
}

// login logs in, if the policy names a user.
func (s server) login(client *smtp.Client) error {
	if s.settings.User == "" {
		return nil
	}
	password, err := ReadPassword(s.settings.PasswordFile)
	if err != nil {
		return err
	}
	offered, methods := client.Extension("AUTH")
	host, _, _ := net.SplitHostPort(s.settings.SMTP)
	known := strings.Fields(strings.ToUpper(methods))
	switch {
	case !offered:
		return errors.New("it takes no login")
	case slices.Contains(known, "PLAIN"):
		return client.Auth(smtp.PlainAuth("", s.settings.User, password, host))
	case slices.Contains(known, "LOGIN"):
		return client.Auth(&loginAuth{user: s.settings.User, password: password})
	}
	return fmt.Errorf("it offers none of the logins PLAIN and LOGIN, but %s", text.Quoted(methods, 80))
}

// transfer sends the message. Once the server has all of it, an error is final: the mail
// may have been delivered.
func (s server) transfer(client *smtp.Client, to string, data []byte) error {
	if err := client.Mail(s.settings.Sender.Address); err != nil {
		return s.answered(err)
	}
	if err := client.Rcpt(to); err != nil {
		return s.answered(err)
	}
	w, err := client.Data()
	if err != nil {
		return s.answered(err)
	}
	if _, err := w.Write(data); err != nil {
		return s.answered(err)
	}
	err = w.Close() // sends the end, and reads the answer
	var answer *textproto.Error
	if err == nil || errors.As(err, &answer) {
		return s.answered(err)
	}
	return finally(fmt.Errorf("%s: the connection was lost at the end of the mail, which may have arrived and is not sent again: %w", s.settings.SMTP, plain(err)))
}

// answered says whether an answer of the server is final, as those from 500 are
// (RFC 5321), or a later try may succeed.
func (s server) answered(err error) error {
	var answer *textproto.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &answer):
		return &serverError{fmt.Errorf("%s: %w", s.settings.SMTP, plain(err))}
	case answer.Code >= 500:
		return finally(fmt.Errorf("%s: %w", s.settings.SMTP, plain(err)))
	}
	return fmt.Errorf("%s: %w", s.settings.SMTP, plain(err))
}

// plain is the error of a server, safe to show: it may have any text.
func plain(err error) error {
	var answer *textproto.Error
	if errors.As(err, &answer) {
		return fmt.Errorf("it answered %d: %s", answer.Code, text.Quoted(answer.Msg, 200))
	}
	return err
}

// loginAuth is the login method that Exchange offers instead of PLAIN.
type loginAuth struct{ user, password string }

// Start implements smtp.Auth. It refuses to send a password in the clear, except to
// this machine.
func (a *loginAuth) Start(to *smtp.ServerInfo) (string, []byte, error) {
	if ip := net.ParseIP(to.Name); !to.TLS && to.Name != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", nil, errors.New("the connection is not encrypted")
	}
	return "LOGIN", nil, nil
}

// Next implements smtp.Auth: the server asks for the name, then for the password.
func (a *loginAuth) Next(prompt []byte, more bool) ([]byte, error) {
	if !more {
		return nil, nil
	}
	if strings.HasPrefix(strings.ToLower(string(prompt)), "user") {
		return []byte(a.user), nil
	}
	return []byte(a.password), nil
}
