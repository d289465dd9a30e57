package sshclient

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// endpoint identifies a connection: the host, and the hops of a jump chain that
// replace the host's own ProxyJump (ssh -J).
type endpoint struct {
	config.Lookup
	via     string // hops, separated by commas; empty for those of ssh_config
	openSSH bool   // reached by running ssh(1), as the administrator said
}

// sharedConn is the connection to an endpoint, if there is one: all commands for a
// host, and all hosts behind a jump host, share it.
type sharedConn struct {
	client   *Client
	endpoint endpoint

	mu      sync.Mutex
	conn    *connection // the last one that was made, which may be over
	attempt *attempt    // the last one, which may be under way
	closed  bool        // an attempt under way is to be closed
}

// attempt is an attempt to connect, which several callers may wait for.
type attempt struct {
	done  chan struct{} // closed when the other fields may be read
	conn  *connection
	err   error
	ended time.Time
}

// connected returns the open connection, or makes one. The attempt has its own deadline, so that it continues for other
// callers when one gives up. chain are the endpoints that are reached through this one.
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

// dial makes a connection over ssh(1), or with a login of our own.
func (p *sharedConn) dial(chain []endpoint) (*connection, error) {
	if p.endpoint.openSSH {
		return p.overSSH()
	}
	return p.client.connect(p.endpoint, chain)
}

// usable reports whether another caller may use the attempt: it is under way, or
// its connection is open. The sharedConn's mu is held.
//
// The failure of a jump host is also the answer for every host behind it that asks soon after: a thousand of them don't
// wait for the same timeout one after the other, and don't have sshd lock this machine out for a key that it refuses
// (sshd_config(5), PerSourcePenalties).
func (a *attempt) usable(jump bool) bool {
	if a.ended.IsZero() {
		return true
	}
	if a.err == nil {
		return a.conn.alive()
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

// disconnect ends the connection; the next command makes another one.
func (p *sharedConn) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		p.conn.close(errDisconnected)
	}
}

// close ends the connection for good; an attempt under way ends with the lifetime.
func (p *sharedConn) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.conn != nil {
		p.conn.close(errClosed)
	}
}
