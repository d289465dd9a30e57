package sshclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// masterTimeout is for the answer of a ControlMaster, which runs on this machine.
const masterTimeout = 2 * time.Second

// sshLogin is a host that is reached by running ssh(1) for each command.
type sshLogin struct {
	sshCommand
	client   *Client
	host     string
	path     string // the ControlPath; empty for none
	mastered bool   // only used while a ControlMaster is at the path

	closed chan struct{}
	mu     sync.Mutex
	open   map[*sshProcess]bool // nil once it is closed
}

// masterAlive returns an error if the ControlMaster that the login depends on has ended.
func (l *sshLogin) masterAlive() error {
	if !l.mastered {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.client.lifetime, masterTimeout)
	defer cancel()
	return checkMaster(ctx, l.path)
}

func (l *sshLogin) newSession() (channel, error) {
	if err := l.masterAlive(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		return nil, errDisconnected
	}
	s, err := l.newProcess()
	if err != nil {
		return nil, err
	}
	l.open[s] = true
	return s, nil
}

// ping and heard find a ControlMaster that does not answer any more. ssh itself finds a host
// that doesn't.
func (l *sshLogin) ping() error { return l.masterAlive() }
func (l *sshLogin) heard() bool { return !l.mastered }

func (l *sshLogin) wait() error {
	<-l.closed
	return errDisconnected
}

func (l *sshLogin) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		return
	}
	for s := range l.open {
		s.end()
	}
	l.open = nil
	close(l.closed)
}

func (l *sshLogin) dial(_ context.Context, host string, port int) (net.Conn, error) {
	words := l.forward(net.JoinHostPort(host, strconv.Itoa(port)))
	for i, word := range words {
		words[i] = remote.Quote(word)
	}
	return l.client.proxyCommand(strings.Join(words, " "))
}

// overSSH makes the connection of a host that ssh(1) reaches. Whether it does is only known
// when a command runs.
func (p *sharedConn) overSSH(path string, mastered bool, peer remote.Peer) (*connection, error) {
	c := p.client
	switch program := c.resolver.Program(); {
	case c.options.InsecureHostKeys:
		return nil, remote.Errorf(remote.Configuration, "%s: ssh(1) connects to no host with an unknown key: leave --insecure-ignore-host-keys out", p.endpoint.Host)
	case program == "":
		return nil, remote.Errorf(remote.Configuration, "%s: there is no ssh in PATH: install the OpenSSH client", p.endpoint.Host)
	default:
		settings, _ := c.resolve(p.endpoint) // what our own login can't do with it doesn't matter
		command := sshCommand{
			program: program, arguments: c.resolver.Destination(p.endpoint.Lookup),
			connectTimeout: positive(positive(c.options.ConnectTimeout, settings.ConnectTimeout), defaultConnectTimeout),
			keepAlive:      positive(settings.ServerAliveInterval, c.options.KeepAlive),
		}
		l, err := c.newConnection(settings, &sshLogin{
			sshCommand: command, client: c, host: p.endpoint.Host, path: path, mastered: mastered,
			closed: make(chan struct{}), open: map[*sshProcess]bool{},
		})
		if err == nil {
			l.peer = peer
		}
		return l, err
	}
}

// byChoice is overSSH for a host of which the administrator says that ssh is to be run.
func (p *sharedConn) byChoice() (*connection, error) {
	ctx, cancel := context.WithTimeout(p.client.lifetime, defaultConnectTimeout)
	defer cancel()
	path, err := p.client.resolver.ControlPath(ctx, p.endpoint.Lookup)
	if err != nil {
		return nil, remote.Errorf(remote.Configuration, "%s: %w", p.endpoint.Host, err)
	}
	return p.overSSH(path, false, p.expected(ctx))
}

// noLogin reports whether the host refused the login, or ssh_config forbids one with a
// key: the user may have logged in with ssh in another way, such as a second factor.
func noLogin(err error) bool {
	var e *config.Error
	return remote.ClassOf(err) == remote.Auth || errors.As(err, &e) && e.NoKeys()
}

// overMaster runs ssh for a host that refused our login, if an ssh runs as its ControlMaster.
// Without one it returns the refusal, with the command that starts one.
func (p *sharedConn) overMaster(refusal error) (*connection, error) {
	c := p.client
	ctx, cancel := context.WithTimeout(c.lifetime, defaultConnectTimeout)
	defer cancel()
	path, err := c.resolver.ControlPath(ctx, p.endpoint.Lookup)
	if err != nil || path == "" || c.options.InsecureHostKeys {
		return nil, refusal
	}
	before := stampOf(path)
	checking, cancel := context.WithTimeout(ctx, masterTimeout)
	defer cancel()
	if err = checkMaster(checking, path); err == nil {
		c.options.Log.Info().Str("host", p.endpoint.Host).Str("path", path).AnErr("because", refusal).
			Msg("the login was refused: commands run over ssh, which is logged in as ControlMaster")
		return p.overSSH(path, true, p.refusing(ctx, refusal))
	}
	otherwise := "check that a key of yours is accepted: ssh -v " + remote.Quote(p.endpoint.Host) + " true"
	if remote.NextStepOf(refusal) == openSSHStep {
		otherwise = openSSHStep
	}
	return nil, &remote.Error{
		Class: remote.ClassOf(refusal),
		Err:   &withoutMaster{fmt.Errorf("%w; no ssh runs as ControlMaster: %w", refusal, err), path, before},
		Next:  masterStep(p.endpoint.Host) + "; or " + otherwise,
	}
}

// openSSHStep is the next step where ssh(1) can do what our own login can't.
const openSSHStep = "use --ssh openssh, or `ssh: openssh` for the host in hosts.yaml"

// masterStep is the next step where a login needs its user.
func masterStep(host string) string {
	return "log in by hand and leave it running: ssh -fN -o ControlMaster=auto " + remote.Quote(host)
}

// redialMaster connects over the ControlMaster that the last connection used. It returns an
// error if that has ended, or if the last connection used none; the caller then tries our own
// login.
func (p *sharedConn) redialMaster() (*connection, error) {
	p.mu.Lock()
	last := p.conn
	p.mu.Unlock()
	if last == nil {
		return nil, errors.New("there was no connection")
	}
	l, ok := last.link.(*sshLogin)
	if !ok || !l.mastered {
		return nil, errors.New("the last connection was a login of our own")
	}
	if err := l.masterAlive(); err != nil {
		return nil, err
	}
	return p.overSSH(l.path, true, last.peer)
}

// refusing is the machine that refused our login, or that is expected if ssh_config does not
// allow one. Without the key, a host could say that it is another one of the fleet, and take
// its place.
func (p *sharedConn) refusing(ctx context.Context, refusal error) remote.Peer {
	var shown *shownKey
	if errors.As(refusal, &shown) {
		return shown.peer
	}
	return p.expected(ctx)
}

// expected is the machine of which known_hosts has a key, which ssh checks.
func (p *sharedConn) expected(ctx context.Context) remote.Peer {
	settings, _ := p.client.resolve(p.endpoint)
	t := resolvedEndpoint{endpoint: p.endpoint, HostConfig: settings}
	check, err := p.client.hostKeyCheck(ctx, t)
	if err != nil {
		return remote.Peer{}
	}
	return expectedPeer(t, check.host.Expected(check.algorithms))
}

// sshFailed is the error of a command for which ssh failed.
func (s *Session) sshFailed(l *sshLogin) *remote.Error {
	said := string(s.Stderr())
	err := errors.New(cmp.Or(lastLine(said), "exit status 255"))
	e := &remote.Error{Class: remote.OpenSSH, Err: fmt.Errorf("%s: ssh: %w", s.host, err), Stderr: said}
	if proxyDropped().MatchString(said) {
		e.Err = fmt.Errorf("%s: ssh: %w", s.host, &droppedError{err})
	}
	if l.path != "" {
		e.Err, e.Next = &withoutMaster{e.Err, l.path, stampOf(l.path)}, masterStep(l.host)
	}
	return e
}

// withoutMaster is a failed login without a ControlMaster. It is outdated as soon as the
// socket at the ControlPath has changed.
type withoutMaster struct {
	error
	path, stamp string
}

func (e *withoutMaster) Unwrap() error { return e.error }

// Outdated is for remote.Outdated.
func (e *withoutMaster) Outdated() bool { return stampOf(e.path) != e.stamp }

// stampOf is different after this user has made or removed a socket. What others make
// there, in a folder for all, must not cause a login that is refused each time.
func stampOf(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return ""
	}
	return info.ModTime().String()
}

// checkMaster returns an error that says why no ssh runs as ControlMaster at a path: one that
// answers, and of this user alone. A master speaks first.
func checkMaster(ctx context.Context, path string) error {
	if err := checkOwner(path); err != nil {
		return err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err = checkPeer(conn.(*net.UnixConn)); err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	if err != nil {
		return fmt.Errorf("%s: the ssh there does not answer: %w", path, errors.Join(err, context.Cause(ctx)))
	}
	return nil
}

// checkOwner refuses what ssh would not have made.
func checkOwner(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is not a socket", path)
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", path)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s can be used by others: chmod 600 it", path)
	}
	return nil
}

// checkPeer refuses a server that another user runs, whatever the path leads to.
func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, failed); err == nil && int(peer.Uid) != os.Geteuid() {
		err = fmt.Errorf("the program there belongs to uid %d", peer.Uid)
	}
	return err
}
