package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"strings"
	"syscall"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
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
	conn, err := s.dial(ctx)
	if err != nil {
		return &serverError{fmt.Errorf("%s: %w", s.settings.SMTP, s.plain(err))}
	}
	defer conn.Close()
	client, err := s.greet(ctx, conn)
	if err != nil {
		return &serverError{fmt.Errorf("%s: %w", s.settings.SMTP, s.plain(err))}
	}
	if err := s.transfer(client, to, data); err != nil {
		return err
	}
	_ = client.Quit() // the server has the mail
	return nil
}

// dial connects. What is read and written later ends with ctx, too.
func (s server) dial(ctx context.Context) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.settings.SMTP)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return &brief{conn, maxAnswers, stop}, nil
}

// maxAnswers is how much is read from a server for one mail, in bytes: its certificates and
// some lines.
const maxAnswers = 256 << 10

// brief is a connection to a server that may only say so much: the reader would keep a line
// of any length. Its deadline is that of the whole conversation.
type brief struct {
	net.Conn
	left int
	stop func() bool
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

// SetDeadline does nothing: the deadline doesn't move with each step.
func (b *brief) SetDeadline(time.Time) error { return nil }

func (b *brief) Close() error {
	b.stop()
	return b.Conn.Close()
}

// greet says hello, has the connection encrypted as the policy wants it, and logs in if the
// policy names a user.
func (s server) greet(ctx context.Context, conn net.Conn) (*smtp.Client, error) {
	host, _, err := net.SplitHostPort(s.settings.SMTP)
	if err != nil {
		return nil, err
	}
	config, err := s.tls(host)
	if err != nil {
		return nil, err
	}
	encrypt := gomail.NoTLS
	switch s.settings.TLS {
	case policy.StartTLS:
		encrypt = gomail.TLSMandatory
	case policy.Implicit:
		conn = tls.Client(conn, config)
	case policy.NoTLS:
	}
	options := []gomail.Option{
		gomail.WithHELO(s.hello), gomail.WithTLSPolicy(encrypt), gomail.WithTLSConfig(config),
		gomail.WithDialContextFunc(func(context.Context, string, string) (net.Conn, error) { return conn, nil }),
	}
	if s.settings.User != "" {
		password, err := ReadPassword(s.settings.PasswordFile)
		if err != nil {
			return nil, err
		}
		options = append(options, gomail.WithUsername(s.settings.User), gomail.WithPassword(password),
			gomail.WithOpportunisticSMTPAuth(gomail.SMTPAuthPlain, gomail.SMTPAuthLogin))
	}
	client, err := gomail.NewClient(host, options...)
	if err != nil {
		return nil, err
	}
	return client.DialToSMTPClientWithContext(ctx)
}

// maxCAFile is more than the authorities of a system take, in bytes.
const maxCAFile = 4 << 20

func (s server) tls(host string) (*tls.Config, error) {
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if s.settings.CAFile == "" {
		return config, nil
	}
	data, err := folder.ReadRegular(s.settings.CAFile, maxCAFile)
	if err != nil {
		return nil, err
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s holds no certificate", s.settings.CAFile)
	}
	return config, nil
}

// transfer sends the message. Once the server has all of it, an error is final: the mail
// may have been delivered.
func (s server) transfer(client *smtp.Client, to string, data []byte) error {
	if err := client.Mail("<" + s.settings.Sender.Address + ">"); err != nil {
		return s.answered(err)
	}
	if err := client.Rcpt("<" + to + ">"); err != nil {
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
	return finally(fmt.Errorf("%s: the connection was lost at the end of the mail, which may have arrived and is not sent again: %w", s.settings.SMTP, s.plain(err)))
}

// answered says whether an answer of the server is final, as those from 500 are
// (RFC 5321), or a later try may succeed.
func (s server) answered(err error) error {
	var answer *textproto.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &answer):
		return &serverError{fmt.Errorf("%s: %w", s.settings.SMTP, s.plain(err))}
	case answer.Code >= 500:
		return finally(fmt.Errorf("%s: %w", s.settings.SMTP, s.plain(err)))
	}
	return fmt.Errorf("%s: %w", s.settings.SMTP, s.plain(err))
}

// plain is the error of a server, safe to show: it may have any text.
func (s server) plain(err error) error {
	var answer *textproto.Error
	if errors.As(err, &answer) {
		return fmt.Errorf("it answered %d: %s", answer.Code, text.Quoted(answer.Msg, 200))
	}
	return errors.New(text.Printable(text.Late(err, s.settings.Timeout).Error()))
}

// maxPassword is how long a password may be.
const maxPassword = 1024 // bytes

// ReadPassword reads a password: the first line of a file that belongs to root or to the
// account of this program, and that other users can't read and the group can't change.
func ReadPassword(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: it is not a regular file", path)
	case !ok || owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		return "", fmt.Errorf("%s: it belongs to another user; chown it to root or to the account that runs this", path)
	case info.Mode().Perm()&0o027 != 0:
		return "", fmt.Errorf("%s: its mode is %#o, so that others may read or change it; chmod it to 0600 or 0640", path, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxPassword+1))
	if err != nil {
		return "", err
	}
	password, rest, _ := strings.Cut(string(data), "\n")
	password = strings.TrimSuffix(password, "\r")
	switch {
	case len(data) > maxPassword:
		return "", fmt.Errorf("%s: it is longer than %d bytes", path, maxPassword)
	case strings.TrimSpace(rest) != "":
		return "", fmt.Errorf("%s: it has more than one line", path)
	case password == "":
		return "", fmt.Errorf("%s: %w", path, errNoPassword)
	}
	return password, nil
}

var errNoPassword = errors.New("it holds no password")
