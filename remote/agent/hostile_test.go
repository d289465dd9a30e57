package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

const timeout = 10 * time.Second // that of the pools below

// scripted is a Network of hosts that are asked over pipes, in the time of a test
// bubble. Fields that are nil do no harm.
type scripted struct {
	neverReached
	capabilities []string // nil for all
	fence        agent.Fence
	execute      func(context.Context) (agent.Execution, error)
	notify       func()
	allow        func(*service.Allowance)
	look         func(context.Context)                                     // before each snapshot
	unread       string                                                    // a request that is never taken from stdin
	command      func(context.Context, remote.Host) (remote.Output, error) // genv 1.4.3: what execute does
	fanout       int
	slow         time.Duration // what a snapshot takes with genv 1.4.3
}

// pool is closed with the test.
func (n *scripted) pool(t *testing.T) *agent.Pool {
	pool := &agent.Pool{Start: n.start, Network: n, Timeout: timeout, Fanout: n.fanout, Log: zerolog.Nop()}
	t.Cleanup(pool.Close)
	return pool
}

// bubble is a subtest in a bubble of package synctest.
func bubble(t *testing.T, name string, do func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, do) })
}

func (n *scripted) start(_ context.Context, _ remote.Host, _ remote.Command) (agent.Session, error) {
	if n.command != nil {
		return nil, &remote.Error{Class: remote.CommandFailed, Err: errors.New("exit status 2"), Stderr: "invalid choice: 'serve'"}
	}
	greeting := agent.NewGreeting("v")
	if n.capabilities != nil {
		greeting.Capabilities = n.capabilities
	}
	return &scriptedSession{newPiped(&agent.Answers{Backend: n, Fence: n.fence, Allow: n.allow}, greeting), n.unread}, nil
}

func (n *scripted) Run(ctx context.Context, h remote.Host, c remote.Command) (remote.Output, error) {
	if c.Args[len(c.Args)-1] == "execute" {
		return n.command(ctx, h)
	}
	time.Sleep(n.slow)
	document, err := snapshot.EncodeSnapshot(&snapshot.Snapshot{Environments: []snapshot.Environment{}, Devices: []snapshot.Device{}})
	return remote.Output{Stdout: document, Stderr: flood}, err
}
func (*scripted) Probe(context.Context, remote.Host) error { return nil }

func (n *scripted) Snapshot(ctx context.Context, _ local.Age) ([]byte, error) {
	if n.look != nil {
		n.look(ctx)
	}
	return empty, nil
}

func (n *scripted) Execute(ctx context.Context, _ order.Order, _ ending.Authority) (agent.Execution, error) {
	return n.execute(ctx)
}

func (n *scripted) Notify(m []agent.Message) ([]agent.Receipt, error) {
	if n.notify != nil {
		n.notify()
	}
	return make([]agent.Receipt, len(m)), nil
}

// scriptedSession doesn't read a part of what it is sent.
type scriptedSession struct {
	*piped
	unread string
}

func (s *scriptedSession) Write(p []byte) (int, error) {
	if s.unread != "" && bytes.Contains(p, []byte(s.unread)) {
		<-s.ended
		return 0, io.ErrClosedPipe
	}
	return s.piped.Write(p)
}

// flood is what a host writes to stderr.
var flood = []byte(strings.Repeat(strings.Repeat("ä", 1<<12)+"\n", 200))

var oneProcess = order.Order{Options: order.Options{GraceMS: time.Hour.Milliseconds(), Kill: true}, Terminate: []order.Termination{{Process: snapshot.Process{
	PID: 7, Start: 1, Usage: []snapshot.DeviceUsage{{Index: 0, Memory: snapshot.MiB(1)}},
}}}}

// execute sends an order, and returns where its error comes.
func execute(ctx context.Context, pool *agent.Pool, host remote.Host) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := pool.Execute(ctx, host, oneProcess)
		ended <- err
	}()
	return ended
}

func terminated(reason string) (agent.Execution, error) {
	return agent.Execution{Outcomes: []order.Outcome{{PID: 7, Status: order.StatusTerminated, Reason: reason}}}, nil
}

// TestWhatHostsSayIsBounded: it is shown to the administrator.
func TestWhatHostsSayIsBounded(t *testing.T) {
	long := strings.Repeat("a", 1023) + strings.Repeat("ä", 1<<20)
	for name, n := range map[string]*scripted{
		"stream": {execute: func(context.Context) (agent.Execution, error) { return terminated(long) }},
		"commands": {command: func(context.Context, remote.Host) (remote.Output, error) {
			return remote.Output{Stdout: bytes.Repeat([]byte("x\n"), 1<<16), Stderr: flood}, nil
		}},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, host := n.pool(t), remote.Host{Name: "a"}
			s := snapshotOf(t, pool, host)
			done := proctest.Try(pool.Execute(t.Context(), host, oneProcess)).OK(t)
			require.LessOrEqual(t, len(s.Warnings), 64)
			require.LessOrEqual(t, len(done.Warnings), 66)
			require.LessOrEqual(t, len(done.Lines), 2048)
			for _, w := range append(s.Warnings, done.Warnings...) {
				require.LessOrEqual(t, len(w), 4096)
			}
			for _, o := range done.Outcomes {
				require.Equal(t, long[:1023], o.Reason)
				require.True(t, utf8.ValidString(o.Reason))
			}
		})
	}
}

// TestCommandsThatHang: orders that hang on hosts with genv 1.4.3 end after
// Timeout, delay no snapshot of other hosts, and other reports at most by Timeout.
func TestCommandsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &scripted{fanout: 2, command: func(ctx context.Context, h remote.Host) (remote.Output, error) {
			if h.Name == "c" {
				return remote.Output{}, nil
			}
			<-ctx.Done()
			return remote.Output{}, remote.Errorf(remote.OutcomeUnknown, "late")
		}}
		pool := n.pool(t)
		hosts := []remote.Host{{Name: "a"}, {Name: "b"}, {Name: "c"}}
		asks := func() {
			for _, r := range remote.Each(t.Context(), hosts, len(hosts), pool.Snapshot) {
				require.NoError(t, r.Err)
			}
		}
		asks()
		begun := time.Now()
		first, second := execute(t.Context(), pool, hosts[0]), execute(t.Context(), pool, hosts[1])
		synctest.Wait()
		asks()
		require.Zero(t, time.Since(begun), "snapshots don't wait for orders")
		require.Equal(t, remote.OutcomeUnknown, remote.ClassOf(<-first))
		require.Equal(t, remote.OutcomeUnknown, remote.ClassOf(<-second))
		require.Equal(t, timeout, time.Since(begun), "1.4.3 knows no grace")
		proctest.Try(pool.Execute(t.Context(), hosts[2], oneProcess)).OK(t)
	})
}

// TestNoPlaceForACommand: waiting for a place has a deadline.
func TestNoPlaceForACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &scripted{fanout: 1, command: func(context.Context, remote.Host) (remote.Output, error) {
			time.Sleep(time.Hour) // it heeds no deadline
			return remote.Output{}, nil
		}}
		pool := n.pool(t)
		hosts := []remote.Host{{Name: "a"}, {Name: "b"}}
		for _, h := range hosts {
			snapshotOf(t, pool, h)
		}
		ended := execute(t.Context(), pool, hosts[0])
		synctest.Wait()
		begun := time.Now()
		_, err := pool.Execute(t.Context(), hosts[1], oneProcess)
		require.ErrorIs(t, err, agent.ErrNotSent)
		require.Equal(t, remote.Timeout, remote.ClassOf(err))
		require.Equal(t, 2*timeout, time.Since(begun), "one after the other would have taken that long")
		require.NoError(t, <-ended)
	})
}

// TestManyCommands: hosts that are slow, but not too slow, all have their turn.
func TestManyCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &scripted{fanout: 2, slow: timeout - 1, command: func(context.Context, remote.Host) (remote.Output, error) {
			return remote.Output{}, nil
		}}
		pool := n.pool(t)
		var hosts []remote.Host
		for i := range 9 {
			hosts = append(hosts, remote.Host{Name: fmt.Sprint(i)})
		}
		for range 2 { // the second time there are no logins
			for _, r := range remote.Each(t.Context(), hosts, len(hosts), pool.Snapshot) {
				require.NoError(t, r.Err)
			}
		}
	})
}

// TestOrdersThatHang: where an order hangs, since the host reads no more requests, only the first cycle waits for it, and
// the host is lost when its time is over.
func TestOrdersThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		n := &scripted{unread: agent.RequestExecute, execute: func(context.Context) (agent.Execution, error) {
			<-hang
			return terminated("")
		}}
		pool, host := n.pool(t), remote.Host{Name: "a"}
		defer close(hang)
		snapshotOf(t, pool, host)
		begun := time.Now()
		executed := execute(t.Context(), pool, host)
		synctest.Wait()
		for cycle := 1; len(executed) == 0; cycle++ {
			asked := time.Now()
			_, err := pool.Snapshot(t.Context(), host)
			waited := time.Since(asked)
			require.ErrorContains(t, err, "not sent")
			require.Equal(t, remote.Timeout, remote.ClassOf(err))
			require.LessOrEqual(t, waited, timeout)
			if cycle > 1 {
				require.Zero(t, waited)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		err := <-executed
		require.Equal(t, remote.OutcomeUnknown, remote.ClassOf(err))
		require.ErrorContains(t, err, "did not read a request within 10s")
		require.InDelta(t, timeout, time.Since(begun), float64(2*time.Second))
	})
}

// TestOrdersThatEndSoon: a snapshot waits for an order that ends soon.
func TestOrdersThatEndSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &scripted{capabilities: []string{agent.RequestSnapshot, agent.RequestExecute}, execute: func(context.Context) (agent.Execution, error) {
			time.Sleep(900 * time.Millisecond)
			return terminated("")
		}}
		pool, host := n.pool(t), remote.Host{Name: "a"}
		snapshotOf(t, pool, host)
		executed := execute(t.Context(), pool, host)
		synctest.Wait()
		snapshotOf(t, pool, host)
		require.NoError(t, <-executed)
		require.Equal(t, agent.ViaStream, pool.About(host).Via)
	})
}
