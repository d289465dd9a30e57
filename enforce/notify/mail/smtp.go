package mail

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"

	gomail "github.com/wneessen/go-mail"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// An error is final from code 500 on (RFC 5321), and once the server has the whole mail.
func send(ctx context.Context, settings *policy.Mail, to string, msg *gomail.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, settings.Timeout)
	defer cancel()
	if settings.Sendmail != "" {
		return sendmail(ctx, settings, to, msg)
	}
	client, err := newClient(ctx, settings)
	if err == nil {
		err = client.DialWithContext(ctx)
	}
	if err == nil {
		defer client.Close()
		err = client.Send(msg)
	}
	if err == nil || msg.IsDelivered() {
		return nil
	}
	at, _ := errors.AsType[*gomail.SendError](err) // nil before the connection is ready
	if ctx.Err() != nil {                          // which closed the connection
		err = context.Cause(ctx)
	}
	said, _, _ := strings.Cut(text.Late(err, settings.Timeout).Error(), ", affected ") // which mail it was is known
	err = fmt.Errorf("%s: %s", settings.SMTP, text.Shorten(text.OneLine(said), maxSaid))
	switch code := at.ErrorCode(); {
	case code > 0:
		return failure{err, code >= 500, false}
	case at != nil && at.Reason == gomail.ErrSMTPDataClose:
		return failure{fmt.Errorf("the connection was lost at the end of the mail, which may have arrived and is not "+
			"sent again: %w", err), true, false}
	}
	return failure{err, false, true}
}

// newClient encrypts the connection as the policy demands, and then logs in, if the policy names a user. Whatever
// go-mail waits for, its connection ends with ctx.
func newClient(ctx context.Context, settings *policy.Mail) (*gomail.Client, error) {
	host, _, err := net.SplitHostPort(settings.SMTP)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if settings.CAFile != "" { // else those of the system
		if config.RootCAs, err = folder.ReadAuthorities(settings.CAFile); err != nil {
			return nil, err
		}
	}
	encrypt, dial := gomail.NoTLS, new(net.Dialer).DialContext
	switch settings.TLS {
	case policy.StartTLS:
		encrypt = gomail.TLSMandatory
	case policy.Implicit:
		dial = (&tls.Dialer{Config: config}).DialContext
	}
	options := []gomail.Option{
		gomail.WithTimeout(settings.Timeout), gomail.WithTLSConfig(config), gomail.WithTLSPolicy(encrypt),
		gomail.WithDialContextFunc(func(_ context.Context, network, _ string) (net.Conn, error) {
			conn, err := dial(ctx, network, settings.SMTP)
			if err == nil {
				context.AfterFunc(ctx, func() { _ = conn.Close() })
			}
			return conn, err
		}),
	}
	if settings.User != "" {
		password, err := folder.ReadPassword(settings.PasswordFile)
		if err != nil {
			return nil, err
		}
		options = append(options, gomail.WithUsername(settings.User), gomail.WithPassword(password),
			gomail.WithOpportunisticSMTPAuth(gomail.SMTPAuthPlain, gomail.SMTPAuthLogin))
	}
	return gomail.NewClient(host, options...)
}

func sendmail(ctx context.Context, settings *policy.Mail, to string, msg *gomail.Msg) error {
	var data bytes.Buffer
	if _, err := msg.WriteTo(&data); err != nil {
		return err
	}
	// Such programs expect this system's line ends, and convert them.
	lines := bytes.ReplaceAll(data.Bytes(), []byte("\r\n"), []byte("\n"))
	err := notify.RunProgram(ctx, []string{settings.Sendmail, "-i", "-f", settings.Sender.Address, to}, lines)
	temporary := []int{71, 75} // exit codes of sendmail(8): EX_OSERR, as without memory, and EX_TEMPFAIL
	switch exit, ended := errors.AsType[*exec.ExitError](err); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return failure{fmt.Errorf("%s: it did not end in time and was killed; it may have sent the mail, which is "+
			"not sent again", settings.Sendmail), true, false}
	default:
		final := ended && !slices.Contains(temporary, exit.ExitCode())
		return failure{fmt.Errorf("%s: %w", settings.Sendmail, err), final, false}
	}
}

const maxSaid = 300 // characters of what a server answers
