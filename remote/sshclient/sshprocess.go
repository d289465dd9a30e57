package sshclient

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// sshAlways comes first, so that no ssh_config overrides it.
var sshAlways = []string{
	"-T", "-a", "-x", "-oBatchMode=yes", "-oStrictHostKeyChecking=yes", "-oControlMaster=no",
	"-oClearAllForwardings=yes",
	"-oPermitLocalCommand=no", "-oLogLevel=ERROR",
}

func (l *sshLogin) running(line string) []string {
	words := append([]string{l.program}, sshAlways...)
	if l.connectTimeout > 0 {
		words = append(words, "-oConnectTimeout="+wholeSeconds(l.connectTimeout))
	}
	if l.keepAlive > 0 {
		words = append(words, "-oServerAliveInterval="+wholeSeconds(l.keepAlive))
	}
	return append(append(words, l.arguments...), line)
}

// wholeSeconds rounds up, as 0 would mean no limit.
func wholeSeconds(d time.Duration) string {
	return strconv.Itoa(int((d + time.Second - 1) / time.Second))
}

// sshEnvironment makes sudo and shells speak English on hosts that accept variables (SendEnv).
func sshEnvironment() []string {
	localized := func(variable string) bool {
		return strings.HasPrefix(variable, "LC_") || strings.HasPrefix(variable, "LANG")
	}
	return append(slices.DeleteFunc(os.Environ(), localized), "LC_ALL=C")
}

const sshGrace = 500 * time.Millisecond

// sshFailedStatus means that ssh ran no command or lost the connection, unless the command exits with it.
const sshFailedStatus = 255

// errSSH is Wait's error for sshFailedStatus; stderr says why.
var errSSH = errors.New("ssh failed")

var errEnded = errors.New("the session has ended")

type processGroup struct {
	command *exec.Cmd
	ended   chan struct{} // closed once the command has ended
	err     error         // of the command, valid after ended

	mu   sync.Mutex
	gone bool // the PID may have been reused
}

func startGroup(command *exec.Cmd) (*processGroup, error) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return &processGroup{command: command, ended: make(chan struct{})}, command.Start()
}

// reap waits for the command, and kills its children if asked. Otherwise it also waits for those that hold its stderr,
// and signals reach them.
func (g *processGroup) reap(children bool) {
	if children {
		for unix.Waitid(unix.P_PID, g.command.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		g.signal(unix.SIGKILL)
		g.forget()
	}
	g.err = g.command.Wait()
	g.forget()
	close(g.ended)
}

// forget stops signals, as the PID may be reused.
func (g *processGroup) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone = true
}

func (g *processGroup) signal(signal unix.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.gone {
		_ = unix.Kill(-g.command.Process.Pid, signal) // may have ended already
	}
}

func (g *processGroup) end(signal unix.Signal, within time.Duration) {
	g.signal(signal)
	time.AfterFunc(within, func() { g.signal(unix.SIGKILL) })
}

// sshProcess is an ssh(1) with one command: a channel.
type sshProcess struct {
	login *sshLogin
	pipes [3]struct{ ours, theirs *os.File } // ends of stdin, stdout, stderr

	mu     sync.Mutex
	ssh    *processGroup // nil if not started
	ending bool          // end was called
}

func (l *sshLogin) newProcess() (*sshProcess, error) {
	s := &sshProcess{login: l}
	for i := range s.pipes {
		reader, writer, err := os.Pipe()
		if err != nil {
			s.closePipes()
			return nil, err
		}
		if s.pipes[i].ours, s.pipes[i].theirs = reader, writer; i == 0 {
			s.pipes[i].ours, s.pipes[i].theirs = writer, reader
		}
	}
	return s, nil
}

func (s *sshProcess) closePipes() {
	for _, p := range s.pipes {
		_, _ = p.ours.Close(), p.theirs.Close() // may be closed already, or nil
	}
}

func (s *sshProcess) StdinPipe() (io.WriteCloser, error) { return s.pipes[0].ours, nil }
func (s *sshProcess) StdoutPipe() (io.Reader, error)     { return s.pipes[1].ours, nil }
func (s *sshProcess) StderrPipe() (io.Reader, error)     { return s.pipes[2].ours, nil }

// Start starts ssh in its own process group. Only output shows that the host accepted the command.
func (s *sshProcess) Start(commandLine string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return errEnded
	}
	words := s.login.running(commandLine)
	command := exec.Command(words[0], words[1:]...)
	command.Env = sshEnvironment()
	command.Stdin, command.Stdout, command.Stderr = s.pipes[0].theirs, s.pipes[1].theirs, s.pipes[2].theirs
	ssh, err := startGroup(command)
	if err != nil {
		return fmt.Errorf("start ssh: %w", err)
	}
	for _, p := range s.pipes {
		_ = p.theirs.Close() // ssh has it
	}
	s.ssh = ssh
	go func() {
		ssh.reap(true) // a ProxyCommand would keep the pipes open
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ending {
			s.closePipes() // a ControlMaster also has the other ends, and may be frozen
		}
	}()
	return nil
}

// Wait waits for ssh: nil, *exec.ExitError if the command failed, errSSH, or another error if its status is unknown.
func (s *sshProcess) Wait() error {
	<-s.ssh.ended
	exit, ok := errors.AsType[*exec.ExitError](s.ssh.err)
	switch {
	case s.ssh.err == nil:
		return nil
	case !ok || !exit.Exited():
		return fmt.Errorf("ssh was ended: %w", s.ssh.err)
	case exit.ExitCode() == sshFailedStatus:
		return errSSH
	}
	return exit
}

// end ends ssh and its children without waiting, and prevents a start.
func (s *sshProcess) end() *processGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	if s.ssh != nil {
		s.ssh.end(unix.SIGTERM, sshGrace)
	}
	return s.ssh
}

// Close ends ssh and its children, and waits for them.
func (s *sshProcess) Close() error {
	s.login.mu.Lock()
	delete(s.login.open, s)
	s.login.mu.Unlock()
	if ssh := s.end(); ssh != nil {
		<-ssh.ended
	}
	s.closePipes()
	return nil
}

const proxyGrace = 2 * time.Second // for a ProxyCommand to end after SIGHUP

// proxyCommand is like OpenSSH's: a shell that `exec` replaces, with a socket as stdin and stdout. The administrator
// wrote it, and tokens insert nothing that a shell interprets.
func (c *Client) proxyCommand(line string) (net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, remote.Errorf(remote.Unreachable, "ProxyCommand: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "proxy"), os.NewFile(uintptr(pair[1]), "proxy")
	conn, err := net.FileConn(ours)
	_ = ours.Close() // FileConn duplicates it
	if err != nil {
		_ = theirs.Close()
		return nil, remote.Errorf(remote.Unreachable, "ProxyCommand: %w", err)
	}
	command := exec.Command("/bin/sh", "-c", "exec "+line)
	stderr := &text.Tail{Limit: 4 << 10}
	command.Stdin, command.Stdout, command.Stderr = theirs, theirs, stderr
	command.WaitDelay = proxyGrace
	group, err := startGroup(command)
	_ = theirs.Close() // the command has it
	if err != nil {
		_ = conn.Close()
		return nil, remote.Errorf(remote.Unreachable, "ProxyCommand: %w", err)
	}
	if !c.spawn(func() { group.reap(false) }) {
		_ = conn.Close()
		group.reap(false)
		return nil, &remote.Error{Class: remote.Cancelled, Err: errClosed}
	}
	return &proxyConn{Conn: conn, processGroup: group, stderr: stderr}, nil
}

type proxyConn struct {
	net.Conn
	*processGroup
	stderr *text.Tail
	closed sync.Once
}

// Close sends SIGHUP to the command and its children, later SIGKILL.
func (p *proxyConn) Close() error {
	err := p.Conn.Close()
	p.closed.Do(func() { p.end(unix.SIGHUP, proxyGrace) })
	return err
}

// explain adds the command's last line of stderr, waiting for its end.
func (p *proxyConn) explain(err error, greeted bool) error {
	busy := false
	if isDrop(err) && !greeted {
		busy = p.serverIsBusy()
	} else {
		p.endsWithin(proxyGrace / 10)
	}
	if line := text.LastLine(p.stderr.String()); line != "" {
		err = fmt.Errorf("%w (ProxyCommand: %s)", err, line)
	}
	if busy {
		err = dropped(err)
	}
	return err
}

// serverIsBusy: a server dropped the connection, the bastion (as ssh reports) or silently the host. Other failures
// would recur.
func (p *proxyConn) serverIsBusy() bool {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // ends a command that waits for input
	}
	ended := p.endsWithin(proxyGrace)
	said := p.stderr.String()
	return proxyDropped().MatchString(said) || ended && said == "" && p.command.ProcessState.Success()
}

func (p *proxyConn) endsWithin(limit time.Duration) bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(limit):
		return false
	}
}

// proxyDropped is ssh's message when a server drops the connection before its version.
var proxyDropped = text.Pattern(
	`(?m)^(kex|ssh)_exchange_identification: .*([Cc]onnection closed by remote host|Connection reset by ` +
		`peer|Broken pipe)|^Connection (closed|reset) by UNKNOWN port -1`)
