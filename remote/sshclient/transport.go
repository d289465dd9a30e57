package sshclient

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"

	"github.com/seed-3119e985/genv/remote"
)

// transport connects to the host's sshd: through jump hosts, a command, or TCP. The
// caller calls release when the login is over.
func (c *Client) transport(ctx context.Context, t target) (conn net.Conn, release func(), err error) {
	switch {
	case len(t.ProxyJump) > 0:
		return c.jump(ctx, t)
	case t.ProxyCommand != "":
		conn, err = c.proxyCommand(t.ProxyCommand)
	default:
		conn, err = c.dial(ctx, t)
	}
	return conn, func() {}, err
}

// dial resolves the name again and tries its addresses, unless a probe has connected.
func (c *Client) dial(ctx context.Context, t target) (net.Conn, error) {
	if conn := c.kept(t.endpoint); conn != nil {
		return conn, nil
	}
	paths, err := c.paths(ctx, t.HostConfig)
	var conn net.Conn
	if err == nil {
		conn, err = race(ctx, paths)
	}
	var unusable *sourceError
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil && c.lifetime.Err() == nil: // packets are lost, nothing answers
		return nil, remote.Errorf(remote.Unreachable, "no connection to %s: %w", t.address(), context.Cause(ctx))
	case ctx.Err() != nil:
		return nil, stopped(ctx, "while connecting to "+t.address())
	case errors.As(err, &unusable):
		return nil, &remote.Error{Class: remote.Configuration, Err: err}
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return nil, remote.Errorf(remote.Configuration, "too many open files: raise the limit with `ulimit -n`: %w", err)
	case isDrop(err):
		err = &droppedError{err}
	}
	return nil, remote.Errorf(remote.Unreachable, "no connection to %s: %w", t.address(), err)
}

// jump reaches the host through the last hop of its chain. The hop's connection
// is shared by all hosts behind it.
func (c *Client) jump(ctx context.Context, t target) (net.Conn, func(), error) {
	e, err := lastHop(t.HostConfig)
	if err != nil {
		return nil, nil, err
	}
	p, err := c.sharedHop(e)
	if err != nil {
		return nil, nil, err
	}
	if e = p.endpoint; slices.Contains(t.chain, e) {
		return nil, nil, remote.Errorf(remote.Configuration, "ProxyJump of %s leads back to %s", t.Host, e.Host)
	}
	bastion, err := p.connected(ctx, t.chain)
	if err != nil {
		return nil, nil, remote.Errorf(remote.ClassOf(err), "jump host %s: %w", e.Host, err)
	}
	release, err := c.dials.acquire(ctx, "via "+e.via+" "+e.Host, dialsPerJump)
	if err != nil {
		return nil, nil, stopped(ctx, "while waiting to connect through jump host "+e.Host)
	}
	conn, err := bastion.link.dial(ctx, t.HostName, t.Port)
	if err != nil {
		release()
		if c.lifetime.Err() != nil {
			return nil, nil, stopped(ctx, "while connecting to "+t.address())
		}
		return nil, nil, remote.Errorf(remote.Unreachable, "no connection from jump host %s to %s: %w", e.Host, t.address(), printableError(err))
	}
	return conn, release, nil
}
