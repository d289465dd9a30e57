package controlmaster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

// Session is a command on the host, with the methods of the SSH library's Session.
type Session struct {
	master       *Master
	ours, theirs [3]*os.File // stdin, stdout and stderr

	mu     sync.Mutex
	conn   *net.UnixConn
	closed bool
}

// NewSession opens a connection to the master. The caller closes the session.
func (m *Master) NewSession() (*Session, error) {
	conn, err := dial(m.lifetime, m.path)
	if err != nil {
		return nil, err
	}
	s := &Session{master: m, conn: conn}
	for i := range s.ours {
		read, write, failed := os.Pipe()
		err = errors.Join(err, failed)
		s.ours[i], s.theirs[i] = read, write
	}
	s.ours[0], s.theirs[0] = s.theirs[0], s.ours[0]
	if err == nil && !m.keep(s) {
		err = m.ended
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// StdinPipe is what the command reads.
func (s *Session) StdinPipe() (io.WriteCloser, error) { return s.ours[0], nil }

// StdoutPipe is what the command writes.
func (s *Session) StdoutPipe() (io.Reader, error) { return s.ours[1], nil }

// StderrPipe is what the command writes to stderr.
func (s *Session) StderrPipe() (io.Reader, error) { return s.ours[2], nil }

// Start has the host run a command line, and returns when it has accepted it. After
// an error that wraps ErrRefused it may be called again.
func (s *Session) Start(commandLine string) error {
	// No terminal, no X11, no agent, no subsystem, no escape character.
	p := message(msgNewSession, uint32(0), "", uint32(0), uint32(0), uint32(0), uint32(0), ^uint32(0), "", commandLine)
	err := request(s.conn, p, s.theirs[:]...)
	switch {
	case errors.Is(err, ErrRefused):
		return errors.Join(err, s.redial()) // the master closes a connection that it refused
	case err != nil:
		return err
	}
	for _, f := range s.theirs {
		_ = f.Close() // the master has its own
	}
	return nil
}

func (s *Session) redial() error {
	conn, err := dial(s.master.lifetime, s.master.path)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.conn.Close()
	if s.conn = conn; s.closed {
		_ = conn.Close()
		return errClosed
	}
	return nil
}

// StatusError is a command that failed.
type StatusError struct{ status int }

func (e *StatusError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// ExitStatus is the command's own.
func (e *StatusError) ExitStatus() int { return e.status }

// Signal is empty: the protocol doesn't carry it.
func (e *StatusError) Signal() string { return "" }

// Wait returns when the command has ended and its output is in the pipes: nil for exit
// status 0, an *StatusError for others, or an error that wraps ErrNoStatus.
func (s *Session) Wait() error {
	status, known := uint32(0), false
	for {
		kind, p, err := receive(s.conn)
		switch {
		case err != nil && !known:
			return fmt.Errorf("%w: %w", ErrNoStatus, err)
		case err != nil && status != 0:
			return &StatusError{int(status)}
		case err != nil:
			return nil
		case kind == msgExit:
			_, _ = p.number() // the session's id
			status, known = p.number()
		}
	}
}

// Close ends the session; the command sees the end of its stdin.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.master.forget(s)
	_ = s.conn.Close()
	for i := range s.ours {
		_, _ = s.ours[i].Close(), s.theirs[i].Close()
	}
	return nil
}
