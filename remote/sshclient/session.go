package sshclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
)

// closeGrace is how long a host has to agree to a session's end before its
// connection is given up.
const closeGrace = time.Second

// Session is a command that runs on a host, as a stream. Its Stdin and Stdout
// are used by one goroutine each.
type Session struct {
	// Stdin is what the command reads; closing it is its end of file.
	Stdin io.WriteCloser
	// Stdout is what it writes there. Whoever starts a session reads it to the
	// end or closes the session: nothing is kept here.
	Stdout io.Reader

	client *Client
	host   string
	line   *link
	ssh    *ssh.Session
	stderr *capture
	waited chan struct{} // closed when the command's end is known
	failed error         // the library's word on it; read after waited
	drains sync.WaitGroup
	begun  bool // the command was asked for: waited will be closed
	leave  func()
	once   sync.Once
}

// Start begins a command and returns when the host has accepted it. ctx bounds
// the connecting and the start alone. Whoever starts a session closes it.
func (c *Client) Start(ctx context.Context, h remote.Host, command remote.Command) (*Session, error) {
	s, err := c.open(ctx, h)
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx, c, command.ShellLine()); err != nil {
		s.Close()
		return nil, err
	}
	if len(command.Stdin) > 0 {
		if _, err := s.Stdin.Write(command.Stdin); err != nil {
			s.Close()
			return nil, remote.Errorf(remote.OutcomeUnknown, "%s: cannot send the command its input: %w", h.Name, err)
		}
	}
	return s, nil
}

// open gets a session on the host's connection. A connection that turns out to
// be dead is replaced once: nothing has been asked of the host yet.
func (c *Client) open(ctx context.Context, h remote.Host) (*Session, error) {
	p, err := c.peer(c.endpointOf(h))
	if err != nil {
		return nil, err
	}
	for fresh := false; ; fresh = true {
		l, err := p.connected(ctx, nil)
		if err != nil {
			return nil, err
		}
		s, err := c.openOn(ctx, l, h.Name)
		if err == nil || fresh || l.alive() || ctx.Err() != nil {
			return s, err
		}
	}
}

// commandContext has a command's deadline, counted from now.
func (c *Client) commandContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.options.CommandTimeout, errTooLate{c.options.CommandTimeout})
}

func (c *Client) openOn(ctx context.Context, l *link, host string) (*Session, error) {
	ctx, cancel := c.commandContext(ctx)
	defer cancel()
	select {
	case l.sessions <- struct{}{}:
	case <-l.done:
		return nil, remote.Errorf(remote.Unreachable, "%s: %w", host, l.reason())
	case <-ctx.Done():
		return nil, stopped(ctx, host+": while waiting for its other commands")
	}
	session, err := c.channel(ctx, l, host)
	if err != nil {
		<-l.sessions
		return nil, err
	}
	return &Session{client: c, host: host, line: l, ssh: session, waited: make(chan struct{}), leave: func() { <-l.sessions }}, nil
}

// channel opens a channel for a command. A host that refuses one has too many:
// it is asked again on the same connection until ctx ends.
func (c *Client) channel(ctx context.Context, l *link, host string) (*ssh.Session, error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		session, err := within(ctx, l, l.ssh.NewSession)
		var refused *ssh.OpenChannelError
		switch {
		case err == nil:
			return session, nil
		case ctx.Err() != nil:
			return nil, stopped(ctx, host+": while it was asked for a session")
		case !errors.As(err, &refused):
			l.close(err) // whatever it is, this connection opens no more sessions
			return nil, remote.Errorf(remote.Unreachable, "%s: %w", host, l.reason())
		}
		select {
		case <-time.After(jitter(pause)):
		case <-ctx.Done():
			return nil, remote.Errorf(remote.Timeout, "%s refuses another session (MaxSessions): %w", host, printableError(refused))
		}
	}
}

// within waits for a call of the SSH library, which heeds no context: until ctx
// ends, and then the connection is closed, which is what frees the call. Even
// that does not free a NewSession that began while the connection was just
// ending (the library enters the channel after it has told all channels of the
// end), so once the connection is over, a call has closeGrace to return. Then
// its goroutine is left behind, which is why Close must not wait for it.
func within[T any](ctx context.Context, l *link, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := call()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-l.done:
	case <-ctx.Done():
		select {
		case r := <-done:
			return r.value, r.err
		case <-time.After(closeGrace):
			l.close(fmt.Errorf("the host did not react: %w", context.Cause(ctx)))
		}
	}
	select {
	case r := <-done:
		return r.value, errors.Join(r.err, context.Cause(ctx))
	case <-time.After(closeGrace):
		var none T
		return none, errors.Join(l.reason(), context.Cause(ctx))
	}
}

// start asks the host to run the line. From the request on the command may run,
// so that a connection which ends without an answer leaves the outcome unknown.
func (s *Session) start(ctx context.Context, c *Client, line string) error {
	if ctx.Err() != nil {
		return stopped(ctx, s.host+": before the command was started")
	}
	stdin, err := s.ssh.StdinPipe()
	if err != nil {
		return remote.Errorf(remote.Unreachable, "%s: %w", s.host, err)
	}
	stdout, err := s.ssh.StdoutPipe()
	if err != nil {
		return remote.Errorf(remote.Unreachable, "%s: %w", s.host, err)
	}
	stderr, err := s.ssh.StderrPipe()
	if err != nil {
		return remote.Errorf(remote.Unreachable, "%s: %w", s.host, err)
	}
	s.Stdin, s.Stdout = stdin, stdout
	s.stderr = &capture{limit: c.options.MaxStderr, beyond: s.abort}
	_, err = within(ctx, s.line, func() (struct{}, error) { return struct{}{}, s.ssh.Start(line) })
	switch {
	case err == nil:
	case errors.Is(err, errClosed): // before anything was sent
		return &remote.Error{Class: remote.Cancelled, Err: errClosed}
	case !s.line.alive() || errors.Is(err, io.EOF):
		return remote.Errorf(remote.OutcomeUnknown, "%s: cut off as the command was started: %w", s.host, s.line.reason())
	default:
		return remote.Errorf(remote.CommandFailed, "%s refuses to run a command: %w", s.host, printableError(err))
	}
	s.drains.Add(1)
	if !c.spawn(func() { defer s.drains.Done(); drain(stderr, s.stderr) }) {
		s.drains.Done()
		return remote.Errorf(remote.OutcomeUnknown, "%s: cut off as the command was started: %w", s.host, errClosed)
	}
	if s.begun = c.spawn(s.wait); !s.begun {
		return remote.Errorf(remote.OutcomeUnknown, "%s: cut off as the command was started: %w", s.host, errClosed)
	}
	return nil
}

func (s *Session) wait() {
	s.failed = s.ssh.Wait()
	close(s.waited)
}

// abort ends the session without waiting for anything, from within a reader.
func (s *Session) abort() { s.client.spawn(func() { _ = s.ssh.Close() }) }

// Stderr is what the command has written there so far, up to the cap.
func (s *Session) Stderr() []byte {
	if s.stderr == nil {
		return nil
	}
	return s.stderr.bytes()
}

// Wait returns when the command has ended: nil for exit status 0, else an
// *remote.Error. Stdout must have been read to its end, or the session closed.
func (s *Session) Wait() error {
	<-s.waited
	s.drains.Wait()
	return s.verdict()
}

// Read reads from Stdout, and Write writes to Stdin.
func (s *Session) Read(p []byte) (int, error)  { return s.Stdout.Read(p) }
func (s *Session) Write(p []byte) (int, error) { return s.Stdin.Write(p) }

// Close ends the session; the command sees the end of its stdin. A host that
// does not agree within a second loses its connection. It is safe to call twice.
func (s *Session) Close() {
	s.once.Do(func() {
		defer s.leave()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_ = s.ssh.Close() // the host may have closed it already
			s.drains.Wait()
			if s.begun {
				<-s.waited
			}
		}()
		select {
		case <-closed:
			return
		case <-s.line.done:
		case <-time.After(closeGrace):
			s.line.close(errors.New("the host did not end a session"))
		}
		<-closed
	})
}
