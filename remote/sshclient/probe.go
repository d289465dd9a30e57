package sshclient

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/seed-3119e985/genv/remote"
)

// Probe finds out whether a host's sshd answers, without a login: it connects and
// waits for the first byte. A host that is down costs one TCP connect then.
//
// The error wraps remote.ErrNoProbe where a jump host, a ProxyCommand or ssh(1) is on
// the way. It is of the class Unreachable where no connection was made, and of the
// class Timeout where one was made and stayed silent until ctx ended.
func (c *Client) Probe(ctx context.Context, h remote.Host) error {
	e := c.endpointOf(h)
	if e.openSSH {
		return remote.ErrNoProbe
	}
	settings, err := c.resolve(c.lifetime, e)
	if err != nil || len(settings.ProxyJump) > 0 || settings.ProxyCommand != "" {
		return remote.ErrNoProbe // a full attempt says what is wrong with the configuration
	}
	conn, err := c.dialHost(ctx, settings)
	if remote.ClassOf(err) == remote.Configuration && err != nil {
		return remote.ErrNoProbe // the same
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

// greetedConn is a connection of which the first bytes were read.
type greetedConn struct {
	net.Conn
	all io.Reader
}

func (g *greetedConn) Read(p []byte) (int, error) { return g.all.Read(p) }

// greetedFor is how long a connection that was greeted is kept for the login.
const greetedFor = 10 * time.Second

// keep keeps a connection for the login that follows: a server may count one without a login as
// an attack (PerSourcePenalties of sshd_config(5)).
func (c *Client) keep(e endpoint, conn net.Conn) {
	if old := c.kept(e); old != nil {
		_ = old.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.greeted[e] = conn
	stop := context.AfterFunc(c.lifetime, func() { c.drop(e, conn) })
	time.AfterFunc(greetedFor, func() {
		stop()
		c.drop(e, conn)
	})
}

// kept takes the connection that is kept; nil for none.
func (c *Client) kept(e endpoint) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.greeted[e]
	delete(c.greeted, e)
	return conn
}

// drop closes a connection that no login has taken.
func (c *Client) drop(e endpoint, conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.greeted[e] == conn {
		delete(c.greeted, e)
		_ = conn.Close()
	}
}
