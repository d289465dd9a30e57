package sshclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
)

const closeGrace = time.Second // for a host to end a session before its connection is closed

const maxStderr = 256 << 10 // bytes per command

// Session is a running command. Stdin and Stdout are for one goroutine each.
type Session struct {
	Stdin  io.WriteCloser // the command's input
	Stdout io.Reader      // the command's output: read it to the end or close the session

	client  *Client
	host    string
	conn    *connection
	channel channel
	stderr  *capture
	ended   chan struct{} // closed once the command ended and stderr is read
	failed  error         // from the SSH library, valid after ended
	begun   bool          // ended will be closed
	once    sync.Once
}

// Start starts a command, and returns once the host accepted it. The caller closes the session.
func (c *Client) Start(ctx context.Context, h remote.Host, command remote.Command) (*Session, error) {
	s, err := c.open(ctx, h)
	if err != nil {
		return nil, err
	}
	limited, cancel := atMost(ctx, c.options.LoginTimeout)
	defer cancel()
	if err := s.start(limited, command.ShellLine()); err != nil {
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

// open opens a session. It replaces a broken connection once, as no command was sent.
func (c *Client) open(ctx context.Context, h remote.Host) (*Session, error) {
	p, err := c.shared(c.endpointOf(h))
	if err != nil {
		return nil, err
	}
	for fresh := false; ; fresh = true {
		l, err := p.connected(ctx, nil)
		if err != nil {
			return nil, err
		}
		if s, err := c.openOn(ctx, l, h.Name); err == nil || fresh || l.alive() || ctx.Err() != nil {
			return s, err
		}
	}
}

func atMost(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, notWithin(d))
}

// openOn opens a session. The first one belongs to the login: PAM modules may take their time.
func (c *Client) openOn(ctx context.Context, l *connection, host string) (*Session, error) {
	timeout, began := c.options.CommandTimeout, time.Now()
	if !l.opened.Load() {
		timeout = max(timeout, c.options.LoginTimeout)
	}
	ctx, cancel := atMost(ctx, timeout)
	defer cancel()
	select {
	case l.sessions <- struct{}{}:
	case <-l.done:
		return nil, remote.Errorf(remote.Unreachable, "%s: %w", host, l.reason())
	case <-ctx.Done():
		return nil, stopped(ctx, host+": while waiting for other commands on it")
	}
	session, err := c.channel(ctx, l, host)
	if err != nil {
		l.leave()
		return nil, err
	}
	l.hasOpened(time.Since(began))
	return &Session{client: c, host: host, conn: l, channel: session, ended: make(chan struct{})}, nil
}

// channel retries while the host has too many.
func (c *Client) channel(ctx context.Context, l *connection, host string) (channel, error) {
	session, err := remote.UntilAdmitted(ctx, func() (channel, error) { return within(ctx, l, l.link.newSession) },
		refusedForNow)
	switch {
	case err == nil:
		return session, nil
	case refusedForNow(err):
		return nil, remote.Errorf(remote.Timeout, "%s refuses another session (MaxSessions): %w", host,
			printableError(err))
	case ctx.Err() != nil:
		return nil, stopped(ctx, host+": while a session was opened")
	}
	l.close(err) // it can't open sessions any more
	return nil, remote.Errorf(remote.Unreachable, "%s: %w", host, l.reason())
}

// within adds a deadline to a call of the SSH library, by closing the connection. That doesn't stop a NewSession that
// just began (the library notifies channels before it registers the new one). So after closeGrace its goroutine is
// abandoned, and Close must not wait for it.
func within[T any](ctx context.Context, l *connection, call func() (T, error)) (T, error) {
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
			l.close(fmt.Errorf("the host did not answer: %w", context.Cause(ctx)))
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

// start runs a command line. If the connection ends without an answer, the outcome is unknown.
func (s *Session) start(ctx context.Context, commandLine string) error {
	if ctx.Err() != nil {
		return stopped(ctx, s.host+": before the command was started")
	}
	if err := remote.MayBegin(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.host, err)
	}
	stdin, err1 := s.channel.StdinPipe()
	stdout, err2 := s.channel.StdoutPipe()
	stderr, err3 := s.channel.StderrPipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return remote.Errorf(remote.Unreachable, "%s: %w", s.host, err)
	}
	s.Stdin, s.Stdout = stdin, stdout
	s.stderr = &capture{name: "stderr", limit: maxStderr, onOverflow: s.abort}
	_, err := within(ctx, s.conn, func() (struct{}, error) { return struct{}{}, s.channel.Start(commandLine) })
	switch {
	case err == nil:
	case errors.Is(err, errClosed): // nothing was sent
		return &remote.Error{Class: remote.Cancelled, Err: errClosed}
	case !s.conn.alive() || errors.Is(err, io.EOF):
		return remote.Errorf(remote.OutcomeUnknown, "%s: cut off as the command was started: %w", s.host,
			s.conn.reason())
	default:
		return remote.Errorf(remote.CommandFailed, "%s refuses to run a command: %w", s.host, printableError(err))
	}
	s.begun = s.client.spawn(func() {
		drain(stderr, s.stderr) // it ends with the channel or earlier
		s.failed = s.channel.Wait()
		close(s.ended)
	})
	if !s.begun {
		return remote.Errorf(remote.OutcomeUnknown, "%s: cut off as the command was started: %w", s.host, errClosed)
	}
	return nil
}

// abort doesn't wait, as readers call it.
func (s *Session) abort() { s.client.spawn(func() { _ = s.channel.Close() }) }

// Stderr is what the command wrote to stderr so far. More than maxStderr ends the session.
func (s *Session) Stderr() []byte {
	if s.stderr == nil {
		return nil
	}
	return s.stderr.bytes()
}

// Wait waits for the command: nil for exit status 0, else a *remote.Error. First read Stdout to its end or close the
// session.
func (s *Session) Wait() error {
	<-s.ended
	return s.verdict()
}

// Read reads from Stdout, Write writes to Stdin.
func (s *Session) Read(p []byte) (int, error)  { return s.Stdout.Read(p) }
func (s *Session) Write(p []byte) (int, error) { return s.Stdin.Write(p) }

// Close ends the session and the command's stdin, and after a second the connection. It may be called twice.
func (s *Session) Close() {
	s.once.Do(func() {
		defer s.conn.leave()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_ = s.channel.Close() // may be closed already
			if s.begun {
				<-s.ended
			}
		}()
		select {
		case <-closed:
			return
		case <-s.conn.done:
		case <-time.After(closeGrace):
			s.conn.close(errors.New("the host did not end a session"))
		}
		<-closed
	})
}

// Run runs a command until it, its timeout or ctx ends, and returns the output. After Timeout, Cancelled or
// OutcomeUnknown the command may have run.
func (c *Client) Run(ctx context.Context, h remote.Host, command remote.Command) (remote.Output, error) {
	s, err := c.open(ctx, h)
	if err != nil {
		return remote.Output{}, err
	}
	defer s.Close()
	ctx, cancel := atMost(ctx, cmp.Or(command.Timeout, c.options.CommandTimeout))
	defer cancel()
	if err := s.start(ctx, command.ShellLine()); err != nil {
		return remote.Output{}, err
	}
	stdout := &capture{name: "stdout", limit: c.options.MaxStdout, onOverflow: s.abort}
	ended := s.transfer(command, stdout)
	select {
	case <-ended:
		err = s.verdict(stdout)
	case <-ctx.Done():
		err = stopped(ctx, h.Name+": while the command ran")
		s.Close()
		<-ended
	}
	out := remote.Output{Stdout: stdout.bytes(), Stderr: s.Stderr()}
	if e, ok := errors.AsType[*remote.Error](err); ok {
		e.Stderr = string(out.Stderr)
	}
	return out, err
}

func (s *Session) transfer(command remote.Command, stdout *capture) <-chan struct{} {
	ended := make(chan struct{})
	var copying sync.WaitGroup
	copying.Go(func() { drain(s.Stdout, stdout) })
	copying.Go(func() {
		_, err := s.Stdin.Write(command.Stdin) // a command may end without reading its input
		if err == nil && command.Upload != nil {
			_, _ = io.Copy(s.Stdin, command.Upload)
		}
		_ = s.Stdin.Close()
	})
	go func() {
		<-s.ended
		copying.Wait()
		close(ended)
	}()
	return ended
}
