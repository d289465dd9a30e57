package sshclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/auth"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
	"golang.org/x/crypto/ssh"
)

// sshLogin is a host that is reached by running ssh(1) for each command.
type sshLogin struct {
	sshCommand
	host string
	path string   // the ControlPath; empty for none
	keys []string // the files from which keys and certificates come

	closed chan struct{}
	mu     sync.Mutex
	open   map[*sshProcess]bool // nil once it is closed
}

func (l *sshLogin) newSession() (channel, error) {
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

// ssh itself finds a host that does not answer any more.
func (l *sshLogin) ping() error { return nil }
func (l *sshLogin) heard() bool { return true }

// A jump host has a login of our own.
func (l *sshLogin) dial(context.Context, string, int) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

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

// overSSH makes the connection of a host that ssh(1) reaches. Whether it does is only known when a command runs.
func (p *sharedConn) overSSH() (*connection, error) {
	c := p.client
	switch {
	case c.options.InsecureHostKeys:
		return nil, remote.Errorf(remote.Configuration, "%s: ssh(1) connects to no host with an unknown key: leave "+
			"--insecure-ignore-host-keys out", p.endpoint.Host)
	case c.resolver.Program() == "":
		return nil, remote.Errorf(remote.Configuration, "%s: there is no ssh in PATH: install the OpenSSH client",
			p.endpoint.Host)
	}
	path, err := c.resolver.ControlPath(c.lifetime, p.endpoint.Lookup)
	if err != nil {
		return nil, remote.Errorf(remote.Configuration, "%s: %w", p.endpoint.Host, err)
	}
	settings, _ := c.resolve(c.lifetime, p.endpoint) // what our own login can't do with it doesn't matter
	command := sshCommand{
		program: c.resolver.Program(),
		arguments: slices.Concat(
			knownHostsOptions(settings.GlobalKnownHosts), c.resolver.Destination(p.endpoint.Lookup)),
		connectTimeout: c.connectTimeout(settings),
		keepAlive:      positive(settings.ServerAliveInterval, c.options.KeepAlive),
	}
	l, err := c.newConnection(settings, &sshLogin{
		sshCommand: command, host: p.endpoint.Host, path: path, keys: auth.Files(settings), closed: make(chan struct{}),
		open: map[*sshProcess]bool{},
	})
	if err == nil {
		ctx, cancel := c.atMost(c.lifetime, defaultConnectTimeout)
		defer cancel()
		l.peer = p.expected(ctx, settings)
	}
	return l, err
}

// openSSHStep is the next step where ssh(1) can do what our own login can't.
const openSSHStep = "use --ssh openssh, or `ssh: openssh` for the host in hosts.yaml"

// expected is the machine of which known_hosts has a key, which ssh checks.
func (p *sharedConn) expected(ctx context.Context, settings config.HostConfig) remote.Peer {
	t := resolvedEndpoint{endpoint: p.endpoint, HostConfig: settings}
	check, err := p.client.hostKeyCheck(ctx, t)
	if err != nil {
		return remote.Peer{}
	}
	key := check.host.Expected(check.algorithms)
	if key == nil {
		return remote.Peer{}
	}
	return remote.Peer{Address: strings.ToLower(t.address()), Through: "ssh", HostKey: ssh.FingerprintSHA256(key)}
}

func (s *Session) sshFailed(l *sshLogin) *remote.Error {
	said := string(s.Stderr())
	err := errors.New(cmp.Or(text.LastLine(said), "exit status 255"))
	e := &remote.Error{Class: remote.OpenSSH, Err: fmt.Errorf("%s: ssh: %w", s.host, err), Stderr: said}
	if proxyDropped().MatchString(said) {
		e.Err = fmt.Errorf("%s: ssh: %w", s.host, dropped(err))
	}
	stamp := l.stamp()
	e.Err = &outdatedError{e.Err, func() bool { return l.stamp() != stamp }}
	if l.path != "" {
		e.Next = "log in by hand and leave it running: ssh -fN -o ControlMaster=auto " + remote.Quote(l.host)
	}
	return e
}

func (l *sshLogin) stamp() string { return stampOf(l.path) + folder.Stamp(l.keys...) }

// stampOf is different after this user has made or removed a socket. One that others make in a folder for all must not
// cause logins.
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
