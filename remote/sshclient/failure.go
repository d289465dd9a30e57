package sshclient

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/auth"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// stopped is the error of something that ctx ended.
func stopped(ctx context.Context, where string) *remote.Error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return remote.Errorf(remote.Timeout, "%s: %w", where, cause)
	}
	return remote.Errorf(remote.Cancelled, "%s: stopped: %w", where, cause)
}

// droppedError is a connection that ended before the handshake: what a server
// does that has too many logins under way.
type droppedError struct{ cause error }

func (e *droppedError) Error() string {
	return "the connection was closed before the handshake (too many logins at once? MaxStartups): " + e.cause.Error()
}
func (e *droppedError) Unwrap() []error { return []error{e.cause, remote.ErrBusy} }

// handshakeError classifies an error of the SSH library by how far the login came.
func handshakeError(ctx context.Context, t target, check *hostKeyCheck, keys auth.Keys, err error) error {
	err = printableError(err)
	text := err.Error()
	switch {
	case check.refused != nil:
		return check.refused
	case ctx.Err() != nil:
		return stopped(ctx, "connected to "+t.address()+", but it did not finish the login")
	case errors.Is(err, errNoMoreKeys), check.seen && strings.Contains(text, "Too many authentication failures"):
		return remote.Errorf(remote.Auth, "%s refuses user %s: %w; %s", t.address(), t.User, err, keys.Tried())
	case check.seen:
		return remote.Errorf(remote.Unreachable, "%s ended the login: %w", t.address(), err)
	case t.ProxyCommand != "": // what it does at once it does every time
		return remote.Errorf(remote.Unreachable, "no connection to %s through its ProxyCommand: %w", t.Host, err)
	case isDrop(err):
		return remote.Errorf(remote.Unreachable, "%s: %w", t.address(), &droppedError{err})
	}
	return remote.Errorf(remote.Unreachable, "what answers at %s does not speak our SSH: %w", t.address(), err)
}

func isDrop(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}

// printableError is err with its text made safe for a terminal: servers have a
// say in it.
func printableError(err error) error {
	if s := err.Error(); text.Printable(s) != s {
		return &escapedError{err}
	}
	return err
}

type escapedError struct{ error }

func (e *escapedError) Error() string { return text.Printable(e.error.Error()) }
func (e *escapedError) Unwrap() error { return e.error }

// lastLine is the last line with text in it, printable and not too long.
func lastLine(output string) string {
	lines := strings.FieldsFunc(output, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := len(lines) - 1; i >= 0; i-- {
		if line := strings.TrimSpace(lines[i]); line != "" {
			return text.Printable(text.Cut(line, 300))
		}
	}
	return ""
}
