package mail

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"os/exec"
	"strings"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// send sends one message.
func send(ctx context.Context, settings *policy.Mail, to string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, settings.Timeout)
	defer cancel()
	if settings.Sendmail != "" {
		return sendmail(ctx, settings, to, data)
	}
	client, err := dial(ctx, settings)
	if err != nil {
		return failure{plain(ctx, settings, err), false, true}
	}
	defer client.Close()
	if err = transfer(ctx, client, settings, to, data); err == nil {
		_ = client.Quit() // the server has the mail
	}
	return err
}

// dial connects and, once the connection is encrypted as the policy says, logs in if the policy names a user.
func dial(ctx context.Context, settings *policy.Mail) (*smtp.Client, error) {
	host, _, err := net.SplitHostPort(settings.SMTP)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if settings.CAFile != "" { // else those of the system
		if config.RootCAs, err = Authorities(settings.CAFile); err != nil {
			return nil, err
		}
	}
	encrypt := gomail.NoTLS
	if settings.TLS == policy.StartTLS {
		encrypt = gomail.TLSMandatory
	}
	options := []gomail.Option{
		gomail.WithTimeout(settings.Timeout), gomail.WithTLSConfig(config), gomail.WithTLSPolicy(encrypt),
		gomail.WithDialContextFunc(func(_ context.Context, _, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", settings.SMTP)
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() }) // whatever go-mail waits for
			if settings.TLS == policy.Implicit {
				return tls.Client(conn, config), nil
			}
			return conn, nil
		}),
	}
	if settings.User != "" {
		password, err := ReadPassword(settings.PasswordFile)
		if err != nil {
			return nil, err
		}
		options = append(options, gomail.WithUsername(settings.User), gomail.WithPassword(password),
			gomail.WithOpportunisticSMTPAuth(gomail.SMTPAuthPlain, gomail.SMTPAuthLogin))
	}
	client, err := gomail.NewClient(host, options...)
	if err != nil {
		return nil, err
	}
	return client.DialToSMTPClientWithContext(ctx)
}

const (
	maxCAFile   = 4 << 20 // bytes: more than the authorities of a system take
	maxPassword = 1024    // bytes

	// The exit codes of sendmail(8) that say that another try may succeed (sysexits.h).
	exitOSError     = 71 // EX_OSERR: no memory, no process
	exitTemporarily = 75 // EX_TEMPFAIL
)

// Authorities are those in a file with certificates (PEM).
func Authorities(file string) (*x509.CertPool, error) {
	data, err := folder.ReadRegular(file, maxCAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s has no certificate (PEM)", file)
	}
	return pool, nil
}

// transfer sends the message. An error is final from 500 on (RFC 5321), and once the server has all of the mail.
func transfer(ctx context.Context, client *smtp.Client, settings *policy.Mail, to string, data []byte) error {
	err := client.Mail("<" + settings.Sender.Address + ">")
	if err == nil {
		err = client.Rcpt("<" + to + ">")
	}
	var w io.WriteCloser
	if err == nil {
		w, err = client.Data()
	}
	if err == nil {
		_, err = w.Write(data)
	}
	sent := err == nil
	if sent {
		err = w.Close() // sends the end, and reads the answer
	}
	var answer *textproto.Error
	switch errors.As(err, &answer); {
	case err == nil:
		return nil
	case answer != nil:
		return failure{plain(ctx, settings, err), answer.Code >= 500, false}
	case sent:
		return failure{fmt.Errorf("the connection was lost at the end of the mail, which may have arrived and is not "+
			"sent again: %w", plain(ctx, settings, err)), true, false}
	}
	return failure{plain(ctx, settings, err), false, true}
}

// plain is the error of a server, safe to show.
func plain(ctx context.Context, settings *policy.Mail, err error) error {
	var answer *textproto.Error
	if errors.As(err, &answer) {
		return fmt.Errorf("%s: it answered %d: %s", settings.SMTP, answer.Code, text.Quoted(answer.Msg, 200))
	}
	if errors.Is(err, net.ErrClosed) && ctx.Err() != nil { // its time was over
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s: %s", settings.SMTP, text.Printable(text.Late(err, settings.Timeout).Error()))
}

// sendmail gives a message to a program such as /usr/sbin/sendmail.
func sendmail(ctx context.Context, settings *policy.Mail, to string, data []byte) error {
	// Programs of this kind expect the lines of this system, and make the others of them.
	lines := bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	err := notify.RunProgram(ctx, []string{settings.Sendmail, "-i", "-f", settings.Sender.Address, to}, lines)
	switch exit, ended := errors.AsType[*exec.ExitError](err); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return failure{fmt.Errorf("%s: it did not end in time and was killed; it may have sent the mail, which is "+
			"not sent again", settings.Sendmail), true, false}
	default:
		final := ended && exit.ExitCode() != exitTemporarily && exit.ExitCode() != exitOSError
		return failure{fmt.Errorf("%s: %w", settings.Sendmail, err), final, false}
	}
}

// ReadPassword reads the first line of a file of root or this account. Others must not read it, nor its group change
// it.
func ReadPassword(path string) (string, error) {
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	data, err := folder.ReadRegular(path, maxPassword)
	if err != nil {
		return "", err
	}
	password, rest, _ := strings.Cut(string(data), "\n")
	password = strings.TrimSuffix(password, "\r")
	switch mode := file.Mode & 0o777; {
	case file.Uid != 0 && int(file.Uid) != os.Geteuid():
		err = errors.New("it belongs to another user; chown it to root or to the account that runs this")
	case mode&0o027 != 0:
		err = fmt.Errorf("its mode is %#o, so that others may read or change it; chmod it to 0600 or 0640", mode)
	case strings.TrimSpace(rest) != "":
		err = errors.New("it has more than one line")
	case password == "":
		err = errors.New("it has no password")
	default:
		return password, nil
	}
	return "", fmt.Errorf("%s: %w", path, err)
}
