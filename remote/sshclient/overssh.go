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
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/auth"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
	"golang.org/x/crypto/ssh"
)

// sshLogin is a host reached by running ssh(1) for each command.
type sshLogin struct {
	program        string        // path of ssh
	arguments      []string      // configuration file and destination, the last one after "--"
	connectTimeout time.Duration // 0: from ssh_config
	keepAlive      time.Duration // 0: from ssh_config
	host           string
	path           string   // ControlPath; empty for none
	keys           []string // files of keys and certificates

	closed chan struct{}
	mu     sync.Mutex
	open   map[*sshProcess]bool // nil once closed
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

// ssh detects dead hosts itself.
func (l *sshLogin) ping() error { return nil }
func (l *sshLogin) heard() bool { return true }

// Jump hosts use our own login.
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

// overSSH connects by ssh(1). Only a command shows whether the host is reachable.
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
	settings, _ := c.resolve(c.lifetime, p.endpoint) // ssh may support what our own login doesn't
	l, err := c.newConnection(settings, &sshLogin{
		program: c.resolver.Program(),
		arguments: slices.Concat(
			knownHostsOptions(settings.GlobalKnownHosts), c.resolver.Destination(p.endpoint.Lookup)),
		connectTimeout: c.connectTimeout(settings),
		keepAlive:      positive(settings.ServerAliveInterval, c.options.KeepAlive),
		host:           p.endpoint.Host, path: path, keys: auth.Files(settings),
		closed: make(chan struct{}), open: map[*sshProcess]bool{},
	})
	if err == nil {
		ctx, cancel := atMost(c.lifetime, defaultConnectTimeout)
		defer cancel()
		l.peer = p.expected(ctx, settings)
	}
	return l, err
}

const openSSHStep = "use --ssh openssh, or `ssh: openssh` for the host in hosts.yaml"

// expected is the machine with the known key, which ssh checks.
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
	e.Err = &loginError{error: e.Err, outdated: func() bool { return l.stamp() != stamp }}
	if l.path != "" {
		e.Next = "log in by hand and leave it running: ssh -fN -o ControlMaster=auto " + remote.Quote(l.host)
	}
	return e
}

func (l *sshLogin) stamp() string { return stampOf(l.path) + folder.Stamp(l.keys...) }

// stampOf changes with this user's socket. Others' sockets in a shared folder must not cause logins.
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
