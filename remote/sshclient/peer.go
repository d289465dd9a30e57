package sshclient

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// endpoint names a connection: who is asked for, and the hops that a jump chain
// puts before it instead of its own configuration's (ssh -J).
type endpoint struct {
	config.Query
	via string // hops, separated by commas; empty leaves it to ssh_config
}

// loops tells whether a chain through the hops would need e itself.
func (e endpoint) loops(chain []endpoint) bool {
	for _, other := range chain {
		if other == e {
			return true
		}
	}
	return false
}

// peer is an endpoint with its connection, if there is one: all commands for a
// host, and all hosts behind a jump host, share it.
type peer struct {
	client   *Client
	endpoint endpoint

	mu      sync.Mutex
	link    *link
	attempt *attempt
	failure jumpFailure // of the last attempt
	route   *route      // for Probe; nil until it is known
	closed  bool        // what is still in the making is not wanted any more
}

// attempt is a connection in the making, which several callers may wait for.
type attempt struct {
	done chan struct{}
	link *link
	err  error
}

// connected returns the living connection, or makes one. The attempt has the
// client's lifetime and its own deadline: a caller that gives up leaves it to
// the others. chain are the endpoints that need this one to reach theirs.
func (p *peer) connected(ctx context.Context, chain []endpoint) (*link, error) {
	a, err := p.begin(chain)
	if err != nil {
		return nil, err
	}
	select {
	case <-a.done:
		return a.link, a.err
	case <-ctx.Done():
		return nil, stopped(ctx, "while connecting to "+p.endpoint.Host)
	}
}

func (p *peer) begin(chain []endpoint) (*attempt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link != nil && p.link.alive() {
		return finished(p.link, nil), nil
	}
	if p.attempt != nil {
		return p.attempt, nil
	}
	if len(chain) > 0 && p.failure.recent() {
		return nil, p.failure.err
	}
	a := &attempt{done: make(chan struct{})}
	if !p.client.spawn(func() { p.try(a, chain) }) {
		return nil, &remote.Error{Class: remote.Cancelled, Err: errClosed}
	}
	p.attempt = a
	return a, nil
}

func finished(l *link, err error) *attempt {
	a := &attempt{done: make(chan struct{}), link: l, err: err}
	close(a.done)
	return a
}

func (p *peer) try(a *attempt, chain []endpoint) {
	a.link, a.err = p.client.connect(p.endpoint, chain)
	p.mu.Lock()
	p.attempt = nil
	if a.err == nil {
		p.link = a.link
		if p.closed {
			a.link.close(errClosed)
		}
	}
	p.failure = jumpFailure{a.err, time.Now()}
	p.mu.Unlock()
	close(a.done)
}

// disconnect ends the connection; the next command makes another one.
func (p *peer) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link != nil {
		p.link.close(errDisconnected)
	}
}

// close ends the connection for good; an attempt under way ends with the lifetime.
func (p *peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.link != nil {
		p.link.close(errClosed)
	}
}

// jumpFailure is how the last attempt to connect to a jump host ended. It is the
// answer for every host behind the jump host that asks soon after: a thousand of
// them don't wait for the same timeout one after the other, and don't have sshd
// lock this machine out for a key that it refuses (sshd_config(5),
// PerSourcePenalties).
type jumpFailure struct {
	err  error
	time time.Time
}

func (f *jumpFailure) recent() bool {
	var soon time.Duration
	switch remote.ClassOf(f.err) {
	case remote.Unreachable, remote.Timeout:
		soon = time.Second
	case remote.HostKey, remote.HostKeyChanged:
		soon = 10 * time.Second
	case remote.Auth:
		soon = 2 * time.Minute
	}
	return f.err != nil && !errors.Is(f.err, remote.ErrBusy) && time.Since(f.time) < soon && !remote.Outdated(f.err)
}

// hop is the endpoint that a ProxyJump item names, behind the hops before it.
func hop(item string, before []string) (endpoint, error) {
	q, err := config.ParseHop(item)
	return endpoint{Query: q, via: strings.Join(before, ",")}, err
}
