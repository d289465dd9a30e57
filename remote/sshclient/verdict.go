package sshclient

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// verdict is the error of a command that has ended. Output of captures, and of
// stderr, that exceeded its limit is an error too.
func (s *Session) verdict(captures ...*capture) error {
	for _, c := range append(captures, s.stderr) {
		if c.overflowed() {
			return remote.Errorf(remote.InvalidOutput, "%s: the command wrote more than %d bytes to %s and was given up", s.host, c.limit, c.name)
		}
	}
	var exit *ssh.ExitError
	switch {
	case s.failed == nil:
		return nil
	case errors.As(s.failed, &exit):
		return exitError(s.host, exit.ExitStatus(), exit.Signal(), s.Stderr())
	case s.conn.endsSoon():
		return remote.Errorf(remote.OutcomeUnknown, "%s: cut off while the command ran: %w", s.host, s.conn.reason())
	}
	return remote.Errorf(remote.OutcomeUnknown, "%s: the command ended without a status: %w", s.host, printableError(s.failed))
}

// Messages of sudo and shells, in the C locale; these have the same exit status.
var (
	sudoPassword = lazily(`(?m)^sudo: (a password is required|a terminal is required|no tty present|sorry, you must have a tty)`)
	sudoRefused  = lazily(`(?m)(is not in the sudoers file|^Sorry, user \S+ (is not allowed|may not run sudo)|^sudo: .*(not allowed|unknown user))`)
	sudoMissing  = lazily(`(?m)(^|[ :])sudo: (command )?not found|[Uu]nknown command: '?sudo`)
	notFound     = lazily(`(?m)^sudo: (\S+): command not found`)
	// crash is how the Go runtime begins when a program of ours crashes, which
	// then exits with statusCrashed.
	crash = lazily(`(?m)^(panic|fatal error): .*$`)
)

const statusCrashed = 2

// exitError classifies the failure of a command.
func exitError(host string, status int, signal string, stderr []byte) *remote.Error {
	said := string(stderr)
	last := lastLine(said)
	detail := ""
	if last != "" {
		detail = ": " + last
	}
	e := func(class remote.Class, format string, args ...any) *remote.Error {
		return &remote.Error{Class: class, Err: fmt.Errorf("%s: %s", host, fmt.Sprintf(format, args...)), Stderr: said}
	}
	switch {
	case sudoPassword().MatchString(said):
		return e(remote.Sudo, "sudo wants a password: %s", last)
	case sudoRefused().MatchString(said):
		return e(remote.SudoRefused, "sudo does not allow it: %s", last)
	case status == 127 && sudoMissing().MatchString(said):
		err := e(remote.Sudo, "there is no sudo: %s", last)
		err.Next = "install sudo on the host, or log in as root with `sudo: false` for it in hosts.yaml"
		return err
	case notFound().MatchString(said), status == 127:
		return e(remote.GenvMissing, "the program is not there: %s", cmp.Or(last, "exit status 127"))
	case status == statusCrashed && crash().MatchString(said):
		return e(remote.CommandFailed, "genv crashed there: %s", lastLine(crash().FindString(said)))
	case signal != "":
		return e(remote.CommandFailed, "the command was ended by signal %s%s", text.Printable(signal), detail)
	}
	return e(remote.CommandFailed, "exit status %d%s", status, detail)
}

// lazily compiles a pattern when it is first used: every start of genv would pay
// for it otherwise.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
