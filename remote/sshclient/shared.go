package sshclient

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// endpoint identifies a connection: the host, and hops that replace its ProxyJump (ssh -J).
type endpoint struct {
	config.Lookup
	via     string // comma-separated; empty: those of ssh_config
	openSSH bool   // through ssh(1)
}

// sharedConn is a connection for all commands, and all hosts behind it.
type sharedConn struct {
	client   *Client
	endpoint endpoint

	mu      sync.Mutex
	conn    *connection // the last one; may have ended
	attempt *attempt    // the last one; may be running
	closed  bool        // ends a running attempt
}

type attempt struct {
	done  chan struct{} // closed once the other fields may be read
	conn  *connection
	err   error
	ended time.Time
}

// connected returns the open connection or makes one. Giving up doesn't end the attempt. chain are the endpoints
// reached through this one.
func (p *sharedConn) connected(ctx context.Context, chain []endpoint) (*connection, error) {
	a, err := p.begin(chain)
	if err != nil {
		return nil, err
	}
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, stopped(ctx, "while connecting to "+p.endpoint.Host)
	}
}

func (p *sharedConn) begin(chain []endpoint) (*attempt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.attempt != nil && p.attempt.usable(len(chain) > 0) {
		return p.attempt, nil
	}
	a := &attempt{done: make(chan struct{})}
	if !p.client.spawn(func() { p.try(a, chain) }) {
		return nil, &remote.Error{Class: remote.Cancelled, Err: errClosed}
	}
	p.attempt = a
	return a, nil
}

func (p *sharedConn) try(a *attempt, chain []endpoint) {
	conn, err := p.dial(chain)
	p.mu.Lock()
	defer p.mu.Unlock()
	a.conn, a.err, a.ended = conn, err, time.Now()
	if err == nil {
		p.conn = conn
		if p.closed {
			conn.close(errClosed)
		}
	}
	close(a.done)
}

func (p *sharedConn) dial(chain []endpoint) (*connection, error) {
	if p.endpoint.openSSH {
		return p.overSSH()
	}
	return p.client.connect(p.endpoint, chain)
}

// usable says whether another caller may use the attempt: it runs, is connected, or is a jump host's recent failure.
// That counts for every host behind it: a thousand must not wait for one timeout after the other, nor make sshd lock
// this machine out (sshd_config(5), PerSourcePenalties).
func (a *attempt) usable(jump bool) bool {
	if a.ended.IsZero() || a.err == nil {
		return a.ended.IsZero() || a.conn.alive()
	}
	var soon time.Duration
	switch remote.ClassOf(a.err) {
	case remote.Unreachable, remote.Timeout:
		soon = time.Second
	case remote.HostKey, remote.HostKeyChanged:
		soon = 10 * time.Second
	case remote.Auth:
		soon = 2 * time.Minute
	}
	return jump && !errors.Is(a.err, remote.ErrBusy) && time.Since(a.ended) < soon && !remote.Outdated(a.err)
}

func (p *sharedConn) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		p.conn.close(errDisconnected)
	}
}

// close closes the connection, and that of a running attempt, for good.
func (p *sharedConn) close(end func(*connection)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.conn != nil {
		end(p.conn)
	}
}

// Probe checks whether a host's sshd answers: it connects and waits for a byte, without a login. The error wraps
// remote.ErrNoProbe behind a jump host, ProxyCommand or ssh(1). Its class is Unreachable without a connection, Timeout
// if that stayed silent until ctx ended.
func (c *Client) Probe(ctx context.Context, h remote.Host) error {
	e := c.endpointOf(h)
	if e.openSSH {
		return remote.ErrNoProbe
	}
	settings, err := c.resolve(c.lifetime, e)
	if err != nil || len(settings.ProxyJump) > 0 || settings.ProxyCommand != "" {
		return remote.ErrNoProbe // a full attempt reports configuration errors
	}
	conn, err := c.dialHost(ctx, settings)
	if remote.ClassOf(err) == remote.Configuration && err != nil {
		return remote.ErrNoProbe // likewise
	}
	if errors.As(err, new(*remote.Error)) {
		return err
	}
	if err != nil {
		return remote.Errorf(remote.Unreachable, "no connection to %s: %w", settings.HostName, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	first := make([]byte, 1)
	if _, err = conn.Read(first); err != nil {
		_ = conn.Close()
		return remote.Errorf(remote.Timeout, "connected to %s, but sshd does not answer: %w", conn.RemoteAddr(),
			cmp.Or(context.Cause(ctx), err))
	}
	c.keep(e, &greetedConn{conn, io.MultiReader(bytes.NewReader(first), conn)})
	return nil
}

type greetedConn struct {
	net.Conn
	all io.Reader
}

func (g *greetedConn) Read(p []byte) (int, error) { return g.all.Read(p) }

const greetedFor = 10 * time.Second

// keep keeps a connection for a login within greetedFor: without one, it may count as an attack (sshd_config(5),
// PerSourcePenalties).
func (c *Client) keep(e endpoint, conn net.Conn) {
	if old := c.kept(e); old != nil {
		_ = old.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.greeted[e] = conn
	limited, cancel := context.WithTimeout(c.lifetime, greetedFor)
	context.AfterFunc(limited, func() { cancel(); c.drop(e, conn) })
}

func (c *Client) kept(e endpoint) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.greeted[e]
	delete(c.greeted, e)
	return conn
}

func (c *Client) drop(e endpoint, conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.greeted[e] == conn {
		delete(c.greeted, e)
		_ = conn.Close()
	}
}
