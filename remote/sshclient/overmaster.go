package sshclient

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/remote/sshclient/controlmaster"
)

// masterTimeout is for the answer of a ControlMaster, which runs on this machine.
const masterTimeout = 2 * time.Second

// noLogin reports whether the host refused the login, or ssh_config forbids one with a
// key: the user may have logged in with ssh in another way, such as a second factor.
func noLogin(err error) bool {
	var e *config.Error
	return remote.ClassOf(err) == remote.Auth || errors.As(err, &e) && e.NoKeys()
}

// overMaster connects over the ssh that runs as ControlMaster, for a host that refused
// our login, for example because it wants a second factor. Without such an ssh it returns
// the refusal, with the command that starts one.
func (p *sharedConn) overMaster(refusal error) (*connection, error) {
	c := p.client
	ctx, cancel := context.WithTimeout(c.lifetime, defaultConnectTimeout)
	defer cancel()
	path, err := c.resolver.ControlPath(ctx, p.endpoint.Query)
	if err != nil || path == "" {
		return nil, refusal
	}
	before := stampOf(path)
	l, err := p.dialMaster(path, p.refusing(ctx, refusal))
	if err == nil {
		c.options.Log.Info().Str("host", p.endpoint.Host).Str("path", path).AnErr("because", refusal).
			Msg("the login was refused: commands run over the ssh that is the ControlMaster")
		return l, nil
	}
	host := remote.Quote(p.endpoint.Host)
	return nil, &remote.Error{
		Class: remote.ClassOf(refusal),
		Err: &withoutMaster{
			error:    fmt.Errorf("%w; no ssh runs as ControlMaster: %w", refusal, err),
			outdated: func() bool { return stampOf(path) != before },
		},
		Next: "log in by hand and leave it running: ssh -fN -o ControlMaster=auto " + host +
			"; or check that a key of yours is accepted: ssh -v " + host + " true",
	}
}

// redialMaster connects over the master that the last connection used. It returns an error
// if that master has ended, or if the last connection used none; the caller then tries our
// own login.
func (p *sharedConn) redialMaster() (*connection, error) {
	p.mu.Lock()
	last := p.conn
	p.mu.Unlock()
	if last == nil {
		return nil, errors.New("there was no connection")
	}
	l, ok := last.link.(masterLogin)
	if !ok {
		return nil, errors.New("the last connection was a login of our own")
	}
	return p.dialMaster(l.path, last.peer)
}

// refusing is the machine that refused our login. If ssh_config does not allow one, it is
// that of which known_hosts has a key, as the master has checked. Without the key, a host
// could say that it is another one of the fleet, and take its place.
func (p *sharedConn) refusing(ctx context.Context, refusal error) remote.Peer {
	var shown *shownKey
	if errors.As(refusal, &shown) {
		return shown.peer
	}
	settings, _ := p.client.resolve(p.endpoint)
	t := target{endpoint: p.endpoint, HostConfig: settings}
	check, err := p.client.hostKeyCheck(ctx, t)
	if err != nil {
		return remote.Peer{}
	}
	return expectedPeer(t, check.host.Expected(check.algorithms))
}

func (p *sharedConn) dialMaster(path string, peer remote.Peer) (*connection, error) {
	ctx, cancel := context.WithTimeout(p.client.lifetime, masterTimeout)
	defer cancel()
	settings, _ := p.client.resolve(p.endpoint) // it may forbid logins with a key: then the defaults serve
	master, err := controlmaster.Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	l, err := p.client.newConnection(settings, masterLogin{master, path})
	if err == nil {
		l.peer = peer
	}
	return l, err
}

// withoutMaster is a refused login without a ControlMaster. It is outdated as soon as the
// socket at the ControlPath has changed.
type withoutMaster struct {
	error
	outdated func() bool
}

func (e *withoutMaster) Unwrap() error { return e.error }

// Outdated is for remote.Outdated.
func (e *withoutMaster) Outdated() bool { return e.outdated() }

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
