package openssh

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// grace is how long ssh has to end after SIGTERM.
const grace = 500 * time.Millisecond

// statusFailed is the exit status of ssh if it could not run the command, or lost the
// connection. A command that ends with it can't be told apart.
const statusFailed = 255

// ErrFailed is returned by Wait for the exit status 255: ssh's last words on stderr say why.
var ErrFailed = errors.New("ssh failed")

// errEnded is returned by Start after End: the connection was closed meanwhile.
var errEnded = errors.New("the session has ended")

// StatusError is a command that failed.
type StatusError struct{ status int }

func (e *StatusError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// ExitStatus is the exit status of the command.
func (e *StatusError) ExitStatus() int { return e.status }

// Signal is empty: ssh does not say which signal ended a command.
func (*StatusError) Signal() string { return "" }

// Session is an ssh that runs one command. Its methods are those of an ssh.Session.
type Session struct {
	login Login
	ssh   *exec.Cmd
	pipes [3]pipe       // stdin, stdout, stderr
	ended chan struct{} // closed when ssh has ended; nil if it was not started
	err   error         // of ssh, valid after ended

	mu     sync.Mutex
	ending bool // End was called
	gone   bool // ssh has ended: its PID may belong to another process
}

// pipe has one end for us and one for ssh.
type pipe struct{ ours, theirs *os.File }

// NewSession prepares a session; Close ends it.
func (l Login) NewSession() (*Session, error) {
	s := &Session{login: l}
	for i := range s.pipes {
		reader, writer, err := os.Pipe()
		if err != nil {
			s.closePipes()
			return nil, err
		}
		if s.pipes[i] = (pipe{reader, writer}); i == 0 {
			s.pipes[i] = pipe{writer, reader}
		}
	}
	return s, nil
}

func (s *Session) closePipes() {
	for _, p := range s.pipes {
		_, _ = p.ours.Close(), p.theirs.Close() // they may be closed already, or not be there
	}
}

// StdinPipe is what the command reads.
func (s *Session) StdinPipe() (io.WriteCloser, error) { return s.pipes[0].ours, nil }

// StdoutPipe is what the command writes.
func (s *Session) StdoutPipe() (io.Reader, error) { return s.pipes[1].ours, nil }

// StderrPipe is what the command and ssh write to stderr.
func (s *Session) StderrPipe() (io.Reader, error) { return s.pipes[2].ours, nil }

// Start starts ssh, in a process group of its own. Whether the host has accepted the
// command is not known before it writes something.
func (s *Session) Start(commandLine string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return errEnded
	}
	words := s.login.command(commandLine)
	s.ssh = exec.Command(words[0], words[1:]...)
	s.ssh.Env = environment()
	s.ssh.Stdin, s.ssh.Stdout, s.ssh.Stderr = s.pipes[0].theirs, s.pipes[1].theirs, s.pipes[2].theirs
	s.ssh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.ssh.Start(); err != nil {
		return fmt.Errorf("start ssh: %w", err)
	}
	for _, p := range s.pipes {
		_ = p.theirs.Close() // ssh has it
	}
	s.ended = make(chan struct{})
	go s.reap()
	return nil
}

// reap waits for ssh, and ends the children that it left behind, such as a ProxyCommand: they
// would keep the pipes open.
func (s *Session) reap() {
	for unix.Waitid(unix.P_PID, s.ssh.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	s.signal(unix.SIGKILL)
	s.mu.Lock()
	s.gone = true
	ending := s.ending
	s.mu.Unlock()
	s.err = s.ssh.Wait()
	if ending {
		s.closePipes() // a ControlMaster has the other ends too, and may be frozen
	}
	close(s.ended)
}

// signal signals ssh and its children.
func (s *Session) signal(signal unix.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone {
		_ = unix.Kill(-s.ssh.Process.Pid, signal) // it may have ended already
	}
}

// Wait returns when ssh has ended: nil for a command that succeeded, a *StatusError for one
// that failed, ErrFailed, or another error if the status of the command is not known.
func (s *Session) Wait() error {
	<-s.ended
	var exit *exec.ExitError
	switch {
	case s.err == nil:
		return nil
	case !errors.As(s.err, &exit) || !exit.Exited():
		return fmt.Errorf("ssh was ended: %w", s.err)
	case exit.ExitCode() == statusFailed:
		return ErrFailed
	}
	return &StatusError{exit.ExitCode()}
}

// End ends ssh and its children, without waiting. What was not started yet can't be started any more.
func (s *Session) End() {
	s.mu.Lock()
	s.ending = true
	started := s.ended != nil
	s.mu.Unlock()
	if started {
		s.signal(unix.SIGTERM)
		time.AfterFunc(grace, func() { s.signal(unix.SIGKILL) })
	}
}

// Close ends ssh and its children, and returns when they have ended.
func (s *Session) Close() error {
	s.End()
	if s.ended != nil {
		<-s.ended
	}
	s.closePipes()
	return nil
}
