package sshclient

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sshCommand is the command line of ssh for a host.
type sshCommand struct {
	program string // the path of ssh
	// arguments are the configuration file and the destination, the last one after "--".
	arguments      []string
	connectTimeout time.Duration // 0: that of ssh_config
	keepAlive      time.Duration // 0: that of ssh_config
}

// sshAlways is what no ssh_config overrides: what comes first on the command line wins.
var sshAlways = []string{
	"-T", "-a", "-x", "-oBatchMode=yes", "-oStrictHostKeyChecking=yes", "-oControlMaster=no",
	"-oClearAllForwardings=yes",
	"-oPermitLocalCommand=no", "-oLogLevel=ERROR",
}

// running is the command line that runs another one on the host.
func (c sshCommand) running(line string) []string {
	words := append([]string{c.program}, sshAlways...)
	if c.connectTimeout > 0 {
		words = append(words, "-oConnectTimeout="+wholeSeconds(c.connectTimeout))
	}
	if c.keepAlive > 0 {
		words = append(words, "-oServerAliveInterval="+wholeSeconds(c.keepAlive))
	}
	return append(append(words, c.arguments...), line)
}

// wholeSeconds rounds up: 0 would mean that there is no limit.
func wholeSeconds(d time.Duration) string {
	return strconv.Itoa(int((d + time.Second - 1) / time.Second))
}

// sshEnvironment is that of this program, with the messages of sudo and shells in English on
// hosts that take variables (SendEnv).
func sshEnvironment() []string {
	localized := func(variable string) bool {
		return strings.HasPrefix(variable, "LC_") || strings.HasPrefix(variable, "LANG")
	}
	return append(slices.DeleteFunc(os.Environ(), localized), "LC_ALL=C")
}

const sshGrace = 500 * time.Millisecond

// sshFailedStatus is the exit status of ssh if it could not run the command, or lost the
// connection. A command that ends with it can't be told apart.
const sshFailedStatus = 255

// errSSH is returned by Wait for the exit status 255: ssh's last words on stderr say why.
var errSSH = errors.New("ssh failed")

// errEnded is returned by Start after end: the connection was closed meanwhile.
var errEnded = errors.New("the session has ended")

type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// ExitStatus and Signal make it an exited. ssh does not say which signal ended a command.
func (e statusError) ExitStatus() int { return int(e) }
func (statusError) Signal() string    { return "" }

// sshProcess is an ssh that runs one command: a channel.
type sshProcess struct {
	login *sshLogin
	ssh   *exec.Cmd
	pipes [3]pipe       // stdin, stdout, stderr
	ended chan struct{} // closed when ssh has ended; nil if it was not started
	err   error         // of ssh, valid after ended

	mu     sync.Mutex
	ending bool // end was called
	gone   bool // ssh has ended: its PID may belong to another process
}

// pipe has one end for us and one for ssh.
type pipe struct{ ours, theirs *os.File }

func (l *sshLogin) newProcess() (*sshProcess, error) {
	s := &sshProcess{login: l}
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

func (s *sshProcess) closePipes() {
	for _, p := range s.pipes {
		_, _ = p.ours.Close(), p.theirs.Close() // they may be closed already, or not be there
	}
}

// These are the ends of pipes that we have.
func (s *sshProcess) StdinPipe() (io.WriteCloser, error) { return s.pipes[0].ours, nil }
func (s *sshProcess) StdoutPipe() (io.Reader, error)     { return s.pipes[1].ours, nil }
func (s *sshProcess) StderrPipe() (io.Reader, error)     { return s.pipes[2].ours, nil }

// Start starts ssh, in a process group of its own. Whether the host has accepted the
// command is not known before it writes something.
func (s *sshProcess) Start(commandLine string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return errEnded
	}
	words := s.login.running(commandLine)
	s.ssh = exec.Command(words[0], words[1:]...)
	s.ssh.Env = sshEnvironment()
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
func (s *sshProcess) reap() {
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

func (s *sshProcess) signal(signal unix.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone {
		_ = unix.Kill(-s.ssh.Process.Pid, signal) // it may have ended already
	}
}

// Wait returns when ssh has ended: nil for a command that succeeded, a statusError for one
// that failed, errSSH, or another error if the status of the command is not known.
func (s *sshProcess) Wait() error {
	<-s.ended
	exit, ok := errors.AsType[*exec.ExitError](s.err)
	switch {
	case s.err == nil:
		return nil
	case !ok || !exit.Exited():
		return fmt.Errorf("ssh was ended: %w", s.err)
	case exit.ExitCode() == sshFailedStatus:
		return errSSH
	}
	return statusError(exit.ExitCode())
}

// end ends ssh and its children, without waiting. What was not started yet can't be started any more.
func (s *sshProcess) end() {
	s.mu.Lock()
	s.ending = true
	started := s.ended != nil
	s.mu.Unlock()
	if started {
		s.signal(unix.SIGTERM)
		time.AfterFunc(sshGrace, func() { s.signal(unix.SIGKILL) })
	}
}

// Close ends ssh and its children, and returns when they have ended.
func (s *sshProcess) Close() error {
	s.login.mu.Lock()
	delete(s.login.open, s)
	s.login.mu.Unlock()
	s.end()
	if s.ended != nil {
		<-s.ended
	}
	s.closePipes()
	return nil
}
