package sshclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/auth"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func stopped(ctx context.Context, where string) *remote.Error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return remote.Errorf(remote.Timeout, "%s: %w", where, cause)
	}
	return remote.Errorf(remote.Cancelled, "%s: stopped: %w", where, cause)
}

// dropped wraps a connection's end before the handshake, as when too many logins run.
func dropped(cause error) error {
	return text.Worded("the connection was closed before the handshake (too many logins at once? MaxStartups): "+
		cause.Error(), cause, remote.ErrBusy)
}

func handshakeError(ctx context.Context, t resolvedEndpoint, check *hostKeyCheck, login *auth.Login, said string,
	err error,
) error {
	err = printableError(err)
	negotiation, disagrees := errors.AsType[*ssh.AlgorithmNegotiationError](err)
	switch {
	case check.refused != nil:
		return check.refused
	case ctx.Err() != nil:
		return stopped(ctx, "connected to "+t.address()+", but it did not finish the login")
	case check.seen && said != "":
		return remote.Errorf(remote.Auth, "%s refuses user %s: %s (%w; %w)", t.address(), t.User, said,
			remote.ErrSaidWhy, err).
			WithNext("the host says why itself: wait until that is over, or ask its administrator")
	case check.seen && endedByKeys(login, err):
		return remote.Errorf(remote.Auth, "%s refuses user %s: after %d keys it accepts no more (%w): name the right "+
			"key with IdentityFile and set IdentitiesOnly yes; %s",
			t.address(), t.User, login.Offered(), err, login.Tried())
	case errors.Is(err, auth.ErrNoMoreKeys):
		refused := remote.Errorf(remote.Auth, "%s refuses user %s: %w; %s", t.address(), t.User, err, login.Tried())
		if expired := login.Expired(time.Now()); expired != "" {
			refused.Err = fmt.Errorf("the certificate %s; %w", expired, refused.Err)
			refused.Next = "renew the certificate: genv notices the new file at once"
		} else if login.NeedsOpenSSH() {
			refused.Next = openSSHStep
		}
		return refused
	case !check.seen && disagrees:
		return negotiationError(t, negotiation)
	case check.seen:
		return remote.Errorf(remote.Unreachable, "%s ended the login: %w", t.address(), err)
	case t.ProxyCommand != "":
		return remote.Errorf(remote.Unreachable, "no connection to %s through its ProxyCommand: %w", t.Host, err)
	case isDrop(err):
		return remote.Errorf(remote.Unreachable, "%s: %w", t.address(), dropped(err))
	}
	return remote.Errorf(remote.Unreachable, "what answers at %s does not speak our SSH: %w", t.address(), err)
}

const manyKeys = 6 // default of sshd (sshd_config(5), MaxAuthTries)

// endedByKeys: the server ended the login for too many keys. sshd says "Too many authentication failures", others that
// no method is left (reason 14 in RFC 4253), or nothing.
func endedByKeys(login *auth.Login, err error) bool {
	said := strings.ToLower(err.Error())
	return strings.Contains(said, "too many authentication") || strings.Contains(said, "disconnect, reason 14:") ||
		login.Offered() >= manyKeys && isDrop(err)
}

func isDrop(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}

// printableError makes the text safe for a terminal: servers contribute to it.
func printableError(err error) error {
	said := err.Error()
	if safe := text.Printable(said); safe != said {
		return text.Worded(safe, err)
	}
	return err
}

// exitOf returns a command's exit status, and its signal, which ssh(1) doesn't report.
func exitOf(err error) (status int, signal string, exited bool) {
	if e, ok := errors.AsType[*ssh.ExitError](err); ok {
		return e.ExitStatus(), e.Signal(), true
	}
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.Exited() {
		return e.ExitCode(), "", true
	}
	return 0, "", false
}

func (s *Session) verdict(captures ...*capture) error {
	for _, c := range append(captures, s.stderr) {
		if c.overflowed() {
			return remote.Errorf(remote.InvalidOutput, "%s: the command wrote more than %d bytes to %s and was given "+
				"up", s.host, c.limit, c.name)
		}
	}
	status, signal, exited := exitOf(s.failed)
	over, _ := s.conn.link.(*sshLogin)
	switch {
	case s.failed == nil:
		return nil
	case errors.Is(s.failed, errSSH) && s.conn.alive():
		return s.sshFailed(over)
	case exited:
		var stdout []byte
		for _, c := range captures {
			stdout = c.bytes()
		}
		return exitError(s.host, status, signal, s.Stderr(), stdout)
	case s.conn.endsSoon():
		return remote.Errorf(remote.OutcomeUnknown, "%s: cut off while the command ran: %w", s.host, s.conn.reason())
	}
	return remote.Errorf(remote.OutcomeUnknown, "%s: the command ended without a status: %w", s.host,
		printableError(s.failed))
}

// Messages in the C locale that remote.SudoSays lacks: exit statuses are ambiguous.
var (
	sudoMissing = text.Pattern(`(?m)(^|[ :])sudo: (command )?not found|[Uu]nknown command: '?sudo`)
	notFound    = text.Pattern(`(?m)^sudo(?:-rs)?: (\S+): command not found`)
	crash       = text.Pattern(`(?m)^(panic|fatal error): .*$`)
)

const statusCrashed = 2

const maxSaid = 4096 // bytes of stdout that are searched for a reason

// exitError classifies a command's failure. Without stderr, stdout's last line is the reason, as from nologin(8) and
// nvidia-smi.
func exitError(host string, status int, signal string, stderr, stdout []byte) *remote.Error {
	said := string(stderr)
	last := cmp.Or(text.LastLine(said), text.LastLine(string(stdout[max(0, len(stdout)-maxSaid):])))
	detail := ""
	if last != "" {
		detail = ": " + last
	}
	e := func(class remote.Class, format string, args ...any) *remote.Error {
		return &remote.Error{Class: class, Err: fmt.Errorf("%s: %s", host, fmt.Sprintf(format, args...)), Stderr: said}
	}
	sudo := remote.SudoSays(said)
	switch {
	case sudo == remote.Sudo:
		return e(remote.Sudo, "sudo wants a password: %s", last)
	case sudo == remote.SudoRefused:
		return e(remote.SudoRefused, "sudo does not allow it: %s", last)
	case status == 127 && sudoMissing().MatchString(said):
		return e(remote.Sudo, "there is no sudo: %s", last).
			WithNext("install sudo on the host, or log in as root with `sudo: false` for it in hosts.yaml")
	case notFound().MatchString(said), status == 127:
		return e(remote.GenvMissing, "the program is not there: %s", cmp.Or(last, "exit status 127"))
	case status == statusCrashed && crash().MatchString(said):
		return e(remote.CommandFailed, "genv crashed there: %s", text.LastLine(crash().FindString(said)))
	case signal != "":
		return e(remote.CommandFailed, "the command was ended by signal %s%s", text.Printable(signal), detail)
	}
	return e(remote.CommandFailed, "exit status %d%s", status, detail)
}

func negotiationError(t resolvedEndpoint, e *ssh.AlgorithmNegotiationError) *remote.Error {
	keyword := "Compression"
	switch {
	case e.What == "key exchange":
		keyword = "KexAlgorithms"
	case e.What == "host key":
		keyword = "HostKeyAlgorithms"
	case strings.HasSuffix(e.What, "cipher"):
		keyword = "Ciphers"
	case strings.HasSuffix(e.What, "MAC"):
		keyword = "MACs"
	}
	host := slices.DeleteFunc(slices.Clone(e.RequestedAlgorithms), func(name string) bool {
		// protocol extensions
		return strings.HasPrefix(name, "kex-strict-") || strings.HasPrefix(name, "ext-info-")
	})
	has := text.Printable(text.Cut(strings.Join(host, ","), 500))
	if !slices.ContainsFunc(host, func(name string) bool { return config.Implements(keyword, name) }) {
		return remote.Errorf(remote.Configuration, "%s: no common algorithm for %s: the host has %s alone, which "+
			"genv's own SSH lacks", t.address(), e.What, has).WithNext(openSSHStep)
	}
	return remote.Errorf(remote.Configuration, "%s: no common algorithm for %s: the host has %s, which %s in "+
		"ssh_config does not allow", t.address(), e.What, has, keyword).
		WithNext("allow one for this host in ssh_config (`" + keyword + " +NAME`), or " + openSSHStep +
			"; better, update the host's sshd")
}
