package agent_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
)

// mode is what a host of a pretended network does.
type mode string

const (
	up       mode = "up"
	refusing mode = "refusing" // its machine is up, sshd is not
	silent   mode = "silent"   // no packet comes back
	hung     mode = "hung"     // connections are accepted, and nothing is said
	booting  mode = "booting"  // every key is refused
	broken   mode = "broken"   // genv greets, and fails over a snapshot
	failing  mode = "failing"  // genv fails
)

// pretended is a network of hosts that all do the same, in the time of a test bubble.
type pretended struct {
	neverReached
	jump bool // hosts can't be probed

	mu             sync.Mutex
	mode           mode
	changed        chan struct{} // closed when mode changes
	probes, logins int
}

func pretend(m mode) *pretended { return &pretended{mode: m, changed: make(chan struct{})} }

func (n *pretended) become(m mode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mode = m
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *pretended) now(count *int) (mode, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*count++
	return n.mode, n.changed
}

const connectTimeout = 10 * time.Second // that of a failed login

func (n *pretended) Probe(ctx context.Context, _ remote.Host) error {
	if n.jump {
		return remote.ErrNoProbe
	}
	m, _ := n.now(&n.probes)
	switch m {
	case refusing:
		return remote.Errorf(remote.Unreachable, "connection refused")
	case silent:
		<-ctx.Done()
		return remote.Errorf(remote.Unreachable, "no connection")
	case hung:
		<-ctx.Done()
		return remote.Errorf(remote.Timeout, "sshd does not answer")
	}
	return nil
}

func (n *pretended) start(ctx context.Context, _ remote.Host, _ remote.Command) (agent.Session, error) {
	m, changed := n.now(&n.logins)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	switch m {
	case refusing:
		return nil, remote.Errorf(remote.Unreachable, "connection refused")
	case silent:
		<-ctx.Done() // also if the host comes back meanwhile
		return nil, remote.Errorf(remote.Unreachable, "no connection: %w", context.Cause(ctx))
	case hung:
		select {
		case <-changed: // what was frozen goes on
		case <-ctx.Done():
			return nil, remote.Errorf(remote.Timeout, "no login: %w", context.Cause(ctx))
		}
	case failing:
		time.Sleep(100 * time.Millisecond)
		return nil, remote.Errorf(remote.CommandFailed, "exit status 1")
	case booting:
		time.Sleep(100 * time.Millisecond)
		return nil, remote.Errorf(remote.Auth, "no key was accepted")
	}
	time.Sleep(200 * time.Millisecond)
	_, changed = n.now(new(int))
	s := newPiped(&agent.Answers{Backend: n}, agent.NewGreeting("v"))
	go func() {
		select {
		case <-changed:
			if m, _ := n.now(new(int)); m == refusing { // it was shut down; otherwise its connections hang
				s.close()
			}
		case <-s.ended:
		}
	}()
	return s, nil
}

func (n *pretended) Run(context.Context, remote.Host, remote.Command) (remote.Output, error) {
	return remote.Output{}, remote.Errorf(remote.CommandFailed, "there are no commands here")
}

// piped is a session with a `usage serve` in this process.
type piped struct {
	io.Reader
	io.Writer
	close func()
	ended chan struct{}
}

func (s *piped) Close() { s.close() }
func (s *piped) Wait() error {
	<-s.ended
	return remote.Errorf(remote.OutcomeUnknown, "cut off")
}

func newPiped(answers *agent.Answers, greeting frame.Greeting) *piped {
	server := &agent.Responder{ReadToken: true, Greeting: greeting, Handler: answers.Handle, Idle: 24 * time.Hour}
	ctx, cancel := context.WithCancel(context.Background())
	in, out, served := both(ctx, server)
	s := &piped{Reader: in, Writer: out, ended: make(chan struct{})}
	s.close = func() { cancel(); _, _ = out.Close(), in.Close() }
	go func() {
		defer close(s.ended)
		<-served //nolint:errcheck // hanging up is the ordinary end
		s.close()
	}()
	return s
}

var empty, _ = snapshot.EncodeNative(&snapshot.Snapshot{})

func (n *pretended) Snapshot(ctx context.Context, _ local.Age) ([]byte, error) {
	m, _ := n.now(new(int))
	switch m {
	case broken:
		return nil, fmt.Errorf("the driver is ill")
	case up:
		return empty, nil
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (n *pretended) Execute(context.Context, order.Order, ending.Authority) (agent.Execution, error) {
	return agent.Execution{}, nil
}

func (n *pretended) Notify(m []agent.Message) ([]agent.Receipt, error) {
	return make([]agent.Receipt, len(m)), nil
}

// pool is closed with the test.
func (n *pretended) pool(t *testing.T) *agent.Pool {
	pool := &agent.Pool{Start: n.start, Network: n, Timeout: 10 * time.Second, Fanout: 64, Log: zerolog.Nop()}
	t.Cleanup(pool.Close)
	return pool
}

// cycles asks hosts for snapshots each second, as a controller does, until ok.
func cycles(t *testing.T, pool *agent.Pool, hosts []remote.Host, ok func(answered int) bool) {
	for begun := time.Now(); ; time.Sleep(time.Second - time.Since(begun)%time.Second) {
		answered := 0
		for _, r := range remote.Each(t.Context(), hosts, len(hosts), pool.Snapshot) {
			if r.Err == nil {
				answered++
			}
		}
		if ok(answered) {
			return
		}
	}
}

// TestComingBack: a host is in the cycles again within 5 s of being reachable, however long it was not and why.
func TestComingBack(t *testing.T) {
	host := []remote.Host{{Name: "a"}}
	for _, m := range []mode{refusing, silent, hung, broken, failing} {
		for _, jump := range []bool{false, true} {
			if jump && (m == silent || m == hung) {
				continue // they can't be probed, so a failed login has to end first
			}
			for _, outage := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, 31 * time.Second, 150 * time.Second, 10 * time.Minute, 30 * time.Minute} {
				bubble(t, fmt.Sprintf("%s for %s, behind a jump host %v", m, outage, jump), func(t *testing.T) {
					n := pretend(up)
					n.jump = jump
					pool := n.pool(t)
					cycles(t, pool, host, func(answered int) bool { return answered == 1 })
					n.become(m)
					began := time.Now()
					cycles(t, pool, host, func(int) bool { return time.Since(began) >= outage })
					n.become(up)
					back := time.Now()
					cycles(t, pool, host, func(answered int) bool { return answered == 1 })
					require.LessOrEqual(t, time.Since(back), 5*time.Second)
				})
			}
		}
	}
}

// TestBooting: keys that are refused while a host boots are tried again soon, but
// not so often that sshd locks this machine out.
func TestBooting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := []remote.Host{{Name: "a"}}
		n := pretend(up)
		pool := n.pool(t)
		cycles(t, pool, host, func(answered int) bool { return answered == 1 })
		n.become(refusing)
		time.Sleep(time.Minute)
		n.become(booting)
		began := time.Now()
		cycles(t, pool, host, func(int) bool { return time.Since(began) >= 12*time.Second })
		n.become(up)
		back := time.Now()
		cycles(t, pool, host, func(answered int) bool { return answered == 1 })
		require.LessOrEqual(t, time.Since(back), 5*time.Second)
	})
}

// TestFailuresThatLast: what hosts that fail all the time are bothered with.
func TestFailuresThatLast(t *testing.T) {
	for _, tt := range []struct {
		mode           mode
		hosts          int
		time           time.Duration
		probes, logins [2]int // at least, at most
	}{
		{refusing, 1, 30 * time.Minute, [2]int{500, 680}, [2]int{1, 1}},
		{silent, 1, 30 * time.Minute, [2]int{500, 680}, [2]int{1, 1}},
		{hung, 1, 30 * time.Minute, [2]int{100, 680}, [2]int{50, 160}},
		{booting, 1, 30 * time.Minute, [2]int{0, 0}, [2]int{3, 6}}, // the key was never accepted
		{broken, 1, 30 * time.Minute, [2]int{0, 0}, [2]int{1, 1}},  // the connection is good
		{failing, 1, 30 * time.Minute, [2]int{0, 0}, [2]int{450, 900}},
		{failing, 200, time.Minute, [2]int{0, 0}, [2]int{300, 2000}}, // of 200 each first, then all together 10 a second
	} {
		bubble(t, fmt.Sprintf("%d %s", tt.hosts, tt.mode), func(t *testing.T) {
			var hosts []remote.Host
			for i := range tt.hosts {
				hosts = append(hosts, remote.Host{Name: fmt.Sprint(i)})
			}
			n := pretend(tt.mode)
			pool := n.pool(t)
			began := time.Now()
			cycles(t, pool, hosts, func(int) bool { return time.Since(began) >= tt.time })
			pool.Close()
			t.Logf("%d probes, %d logins", n.probes, n.logins)
			require.GreaterOrEqual(t, n.probes, tt.probes[0])
			require.LessOrEqual(t, n.probes, tt.probes[1])
			require.GreaterOrEqual(t, n.logins, tt.logins[0])
			require.LessOrEqual(t, n.logins, tt.logins[1])
		})
	}
}

// TestNoLoginAfterClose: the fourth silent probe is followed by a login, but not if Close has ended it.
func TestNoLoginAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pretend(hung)
		pool := n.pool(t)
		pool.Fanout = 0
		cycles(t, pool, []remote.Host{{Name: "a"}}, func(int) bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.probes == 4
		})
		pool.Close()
		require.Equal(t, 1, n.logins)
	})
}

// TestNotAskedForLong: a host is not tried unknown to a controller that
// asks seldom, and is tried at once when it is asked.
func TestNotAskedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pretend(refusing)
		pool := n.pool(t)
		_, err := pool.Snapshot(t.Context(), remote.Host{Name: "a"})
		require.Equal(t, remote.Unreachable, remote.ClassOf(err))
		time.Sleep(time.Hour)
		synctest.Wait()
		n.mu.Lock()
		require.Less(t, n.probes, 30)
		n.mu.Unlock()
		require.Empty(t, pool.About(remote.Host{Name: "a"}).Via)
		n.become(up)
		_, _ = pool.Snapshot(t.Context(), remote.Host{Name: "a"})
		time.Sleep(time.Second)
		snapshotOf(t, pool, remote.Host{Name: "a"})
		require.Equal(t, agent.ViaStream, pool.About(remote.Host{Name: "a"}).Via)
	})
}
