package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
)

type attempt struct {
	ctx    context.Context
	cancel context.CancelFunc
	timer  *time.Timer   // begins it; nil if it begins at once
	waits  bool          // for its time, or for an answer to a probe: the login hasn't begun
	done   chan struct{} // closed when it is over, or calls wait for it no longer
	end    func()        // closes done
}

// loginTimeout is for the time from the connection to genv's greeting. PAM, a home folder or a sudo that looks up names
// may be slow, and the login serves many requests.
const loginTimeout = time.Minute

// begin starts an attempt after a pause. Its first step is first, if set. c.mu is held.
func (c *Conn) begin(pause time.Duration, first func()) {
	a := &attempt{done: make(chan struct{})}
	a.end = sync.OnceFunc(func() { close(a.done) })
	a.ctx, a.cancel = context.WithCancel(context.Background())
	c.attempt = a
	run := func() {
		if first != nil {
			first()
		}
		c.try(a)
	}
	if pause <= 0 {
		c.pool.running.Go(run)
		return
	}
	a.waits = true
	c.pool.running.Add(1)
	a.timer = time.AfterFunc(remote.Together(pause), func() {
		defer c.pool.running.Done()
		run()
	})
}

// cancelAttempt ends the attempt, even one that waits; c.mu is held.
func (c *Conn) cancelAttempt() {
	a := c.attempt
	if a == nil {
		return
	}
	c.attempt = nil
	a.cancel()
	if a.timer != nil && a.timer.Stop() {
		a.end()
		c.pool.running.Done()
	}
}

func (c *Conn) try(a *attempt) {
	defer a.end()
	defer a.cancel()
	var t transport
	pause, login, err := c.probe(a.ctx)
	if login {
		t, err = c.login(a)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.attempt != a { // cancelled
		if t != nil {
			c.pool.running.Go(t.close)
		}
		return
	}
	c.attempt = nil
	if err == nil {
		c.adopt(t)
		return
	}
	c.failure = err
	if login {
		c.setFailing(true)
		pause = c.backoff.AfterLogin(err, int(c.pool.failing.Load()))
	}
	if time.Since(c.wanted) < remote.RetryFor {
		c.begin(pause, nil)
	}
}

// probe reports whether to log in: if the host answers, was never tried, or can't be probed.
func (c *Conn) probe(ctx context.Context) (pause time.Duration, login bool, err error) {
	c.mu.Lock()
	failure := c.failure
	c.mu.Unlock()
	if failure == nil || !remote.Probed(failure) {
		return 0, true, nil
	}
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, remote.ProbeTimeout)
	defer cancel()
	err = c.pool.Network.Probe(limited, c.host)
	if err == nil || errors.Is(err, remote.ErrNoProbe) {
		return 0, true, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setFailing(false)
	pause, login = c.backoff.AfterProbe(err, time.Since(begun))
	return pause, login, err
}

// login logs in to the host and finds its transport. It also asks a host that was lost for a snapshot: one that greets
// and then hangs stays lost, while one that refuses is back, with its reason.
func (c *Conn) login(a *attempt) (transport, error) {
	c.mu.Lock()
	lost, failing, wanted := c.failure != nil, c.failing, c.attempt == a
	a.waits = false
	c.mu.Unlock()
	if !wanted { // cancelled during the probe
		return nil, notBegun(context.Canceled)
	}
	if failing { // these hosts share a quarter of the places, so as not to delay others
		if err := c.pool.retries.acquire(a.ctx); err != nil {
			return nil, err
		}
		defer c.pool.retries.release()
	}
	c.pool.Network.Resolve(a.ctx, c.host)
	if err := c.pool.logins.acquire(a.ctx); err != nil {
		return nil, err
	}
	leave := sync.OnceFunc(c.pool.logins.release)
	defer leave()
	defer time.AfterFunc(c.pool.Timeout, leave).Stop() // a slow login doesn't delay others
	if patience := c.pool.Patience; patience > 0 {
		defer time.AfterFunc(patience, func() { c.beSlow(a) }).Stop()
	}
	ctx, cancel := context.WithTimeout(a.ctx, max(loginTimeout, c.pool.Timeout))
	defer cancel()
	t, err := c.dial(ctx)
	if remote.ClassOf(err) == remote.InvalidOutput {
		c.pool.Network.Disconnect(c.host) // perhaps only this connection is at fault
	}
	if err != nil || !lost {
		return t, err
	}
	limited, cancel := context.WithTimeout(a.ctx, c.pool.timeOf(t))
	defer cancel()
	if _, err := t.Snapshot(limited, c.host); err != nil && !errors.Is(err, ErrRefused) {
		c.discard(t, err)
		return nil, err
	}
	return t, nil
}

// beSlow ends the wait for a first login. The login continues.
func (c *Conn) beSlow(a *attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.attempt == a && c.failure == nil {
		c.failure = remote.Errorf(remote.Timeout, "%s: the login, or sudo, is not over after %s; it goes on, for a "+
			"minute at most", c.host.Name, c.pool.Patience).
			WithNext("`genv remote doctor -H HOST` says what is slow there")
		a.end()
	}
}

func (c *Conn) adopt(t transport) {
	c.transport, c.since, c.asked, c.failure = t, time.Now(), false, nil
	c.backoff.Connected()
	c.setFailing(false)
	if s, ok := t.(*streamTransport); ok {
		s.stream.whenEnded(func(why error) { c.ended(s, why) })
	}
}

// setFailing sets whether the last login failed; c.mu is held.
func (c *Conn) setFailing(failing bool) {
	switch {
	case failing && !c.failing:
		c.pool.failing.Add(1)
	case !failing && c.failing:
		c.pool.failing.Add(-1)
	}
	c.failing = failing
}
