package sshclient

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/seed-3119e985/genv/remote"
)

// routeAge is for how long Probe uses the same addresses before it looks at
// ssh_config and asks the resolver again.
const routeAge = 30 * time.Second

// route is where a host's sshd is, as far as a plain TCP connection can reach it.
type route struct {
	since  time.Time
	direct bool // neither a jump host nor a ProxyCommand is between
	paths  []path
	next   int   // the path to try next
	err    error // why there is none
}

// Probe finds out whether a host's sshd answers, without a login: it connects and
// waits for the first byte. A host that is down costs one TCP connect then.
//
// The error wraps remote.ErrNoProbe where a jump host, a ProxyCommand or ssh(1) is on
// the way. It is of the class Unreachable where no connection was made, and of the
// class Timeout where one was made and stayed silent until ctx ended.
func (c *Client) Probe(ctx context.Context, h remote.Host) error {
	p, err := c.shared(c.endpointOf(h))
	if err != nil {
		return err
	}
	if p.endpoint.openSSH {
		return remote.ErrNoProbe
	}
	way, err := p.nextPath(ctx)
	if err != nil {
		return err
	}
	conn, connected, err := greeted(ctx, way.from, way.to)
	if err != nil {
		class := remote.Unreachable
		if connected {
			class = remote.Timeout
		}
		return &remote.Error{Class: class, Err: &probeError{way.to, connected, err}}
	}
	c.keep(p.endpoint, conn)
	return nil
}

// probeError makes its text when it is asked for: of a host that is down for an
// hour a thousand are made.
type probeError struct {
	address   netip.AddrPort
	connected bool
	cause     error
}

func (e *probeError) Error() string {
	if e.connected {
		return fmt.Sprintf("connected to %s, but sshd does not answer: %v", e.address, e.cause)
	}
	return fmt.Sprintf("no connection to %s: %v", e.address, e.cause)
}
func (e *probeError) Unwrap() error { return e.cause }

// nextPath returns the next of the paths to a host.
func (p *sharedConn) nextPath(ctx context.Context) (path, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.route == nil || time.Since(p.route.since) > routeAge {
		p.mu.Unlock()
		r := p.client.findRoute(ctx, p.endpoint)
		p.mu.Lock()
		p.route = r
	}
	r := p.route
	switch {
	case !r.direct:
		return path{}, remote.ErrNoProbe
	case r.err != nil:
		return path{}, r.err
	}
	r.next++
	return r.paths[r.next%len(r.paths)], nil
}

// findRoute reads the configuration and resolves the host's name.
func (c *Client) findRoute(ctx context.Context, e endpoint) *route {
	r := &route{since: time.Now()}
	settings, err := c.resolve(e)
	if err != nil || len(settings.ProxyJump) > 0 || settings.ProxyCommand != "" {
		return r // a full attempt says what is wrong with the configuration
	}
	r.paths, err = c.paths(ctx, settings)
	if errors.As(err, new(*sourceError)) {
		return r
	}
	r.direct = true
	if err != nil {
		r.err = remote.Errorf(remote.Unreachable, "no connection to %s: %w", settings.HostName, err)
	}
	return r
}
