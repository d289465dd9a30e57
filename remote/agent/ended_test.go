package agent_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// endedWith is a session that ends with an error of its own.
type endedWith struct {
	*scriptedSession
	err error
}

func (s endedWith) Wait() error {
	<-s.ended
	return s.err
}

// TestAHostThatHungUp: a host whose genv has ended in order is waited for longer than one
// whose connection was cut off, which may be dead.
func TestAHostThatHungUp(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ended error
		login time.Duration
		good  bool
	}{
		{"in order, back soon", nil, 4 * time.Second, true},
		{"in order, back late", nil, 6 * time.Second, false},
		{"cut off, back soon", remote.Errorf(remote.OutcomeUnknown, "cut off"), 900 * time.Millisecond, true},
		{"cut off, back late", remote.Errorf(remote.OutcomeUnknown, "cut off"), 4 * time.Second, false},
		{"failed, back soon", remote.Errorf(remote.CommandFailed, "exit status 1"), 4 * time.Second, false},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			host, network := remote.Host{Name: "a"}, &scripted{}
			pool := network.pool(t)
			var sessions []*scriptedSession
			pool.Start = func(ctx context.Context, h remote.Host, c remote.Command) (agent.Session, error) {
				time.Sleep(tt.login)
				s, err := network.start(ctx, h, c)
				session := s.(*scriptedSession)
				sessions = append(sessions, session)
				return endedWith{session, tt.ended}, err
			}
			snapshotOf(t, pool, host)
			time.Sleep(time.Minute)
			sessions[0].close()
			synctest.Wait()
			_, err := pool.Snapshot(t.Context(), host)
			require.Equal(t, tt.good, err == nil, "%v", err)
			pool.Close()
		})
	}
}

// neverReached is a network in which nothing is ever reached.
type neverReached struct{}

func (neverReached) Run(ctx context.Context, _ remote.Host, _ remote.Command) (remote.Output, error) {
	<-ctx.Done()
	return remote.Output{}, remote.Errorf(remote.Cancelled, "stopped")
}
func (neverReached) Peer(remote.Host) (remote.Peer, bool)     { return remote.Peer{}, false }
func (neverReached) Resolve(context.Context, remote.Host)     {}
func (neverReached) Probe(context.Context, remote.Host) error { return remote.ErrNoProbe }
func (neverReached) Disconnect(remote.Host)                   {}

// A host that leaves the fleet while it is dialled for the first time has an error.
func TestLeavingTheFleetWhileDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := &agent.Pool{Network: neverReached{}, Timeout: 5 * time.Second, Start: func(ctx context.Context, _ remote.Host, _ remote.Command) (agent.Session, error) {
			<-ctx.Done()
			return nil, remote.Errorf(remote.Cancelled, "stopped")
		}}
		defer pool.Close()
		time.AfterFunc(time.Second, func() { pool.Keep(nil) })
		s, err := pool.Snapshot(t.Context(), remote.Host{Name: "a"})
		require.Nil(t, s)
		require.Equal(t, remote.Cancelled, remote.ClassOf(err))
		require.ErrorContains(t, err, "not in the fleet any more")
	})
}

// A pool can be closed while calls are under way: it waits for them, and refuses others.
func TestClosingDuringCalls(t *testing.T) {
	t.Parallel()
	for range 50 {
		f := genvhost.Start(t, 5*time.Second, genvhost.New(genvhost.Busy(1)))
		begun, ended := make(chan struct{}), make(chan error)
		go func() {
			_, err := f.Streams.Snapshot(t.Context(), f.Names[0])
			close(begun)
			for err == nil {
				_, err = f.Streams.Snapshot(t.Context(), f.Names[0])
			}
			ended <- err
		}()
		<-begun
		f.Streams.Close()
		require.Error(t, <-ended)
		require.ErrorContains(t, proctest.Try(f.Streams.Snapshot(t.Context(), f.Names[0])).Err, "are closed")
	}
}

// A controller that no longer leads waits for its orders, but not to end.
func TestClosingWithoutTheLead(t *testing.T) {
	host, begun := remote.Host{Name: "a"}, make(chan bool)
	pool := (&scripted{execute: func(ctx context.Context) (agent.Execution, error) {
		close(begun)
		<-ctx.Done()
		return agent.Execution{}, nil
	}}).pool(t)
	pool.Lease(leader(1))
	snapshotOf(t, pool, host)
	ended := execute(t.Context(), pool, host)
	<-begun
	pool.Lease(nil)
	require.Empty(t, ended)
	pool.Close()
	require.Error(t, <-ended)
}

// A host that leaves the fleet, or is reached in another way from now on, ends the orders that are under way there. The
// controller acts on it until then.
func TestLeavingTheFleetDuringAnOrder(t *testing.T) {
	for name, hosts := range map[string][]remote.Host{"gone": nil, "moved": {{Name: "a", GenvPath: "/opt/genv"}}} {
		t.Run(name, func(t *testing.T) {
			host, begun, end, f := remote.Host{Name: "a"}, make(chan bool), make(chan bool), newFenced(t)
			pool := (&scripted{capabilities: fencing, fence: f.file, execute: func(context.Context) (agent.Execution, error) {
				begun <- true
				<-end
				release, err := f.file.Hold(ofFolder("first"))
				if err != nil {
					return agent.Execution{}, err
				}
				release()
				return terminated("")
			}}).pool(t)
			pool.Lease(ofFolder("first"))
			snapshotOf(t, pool, host)
			ended := execute(t.Context(), pool, host)
			<-begun
			require.Len(t, pool.Keep(hosts), 1)
			time.Sleep(50 * time.Millisecond)
			require.Empty(t, ended)
			close(end)
			require.NoError(t, <-ended)
			given := func() bool { return proctest.Try(f.file.Given()).OK(t).GivenBack }
			require.Eventually(t, func() bool { return given() == (hosts == nil) }, 10*time.Second, time.Millisecond)
		})
	}
}

// TestOrdersThatWaitWhileAnotherControllerTakesOver: an order that waits for a place among commands isn't sent after the
// controller has lost its lease, and the host is not lost for that.
func TestOrdersThatWaitWhileAnotherControllerTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 3 * time.Second
		begun := 0
		network := &scripted{fanout: 1, command: func(context.Context, remote.Host) (remote.Output, error) {
			begun++
			time.Sleep(takes)
			return remote.Output{}, nil
		}}
		pool, first, second := network.pool(t), remote.Host{Name: "a"}, remote.Host{Name: "b"}
		snapshotOf(t, pool, first)
		snapshotOf(t, pool, second)
		var replaced atomic.Bool
		errReplaced := remote.Errorf(remote.Cancelled, "replaced")
		ctx := remote.While(t.Context(), func() error {
			if replaced.Load() {
				return errReplaced
			}
			return nil
		})
		ended := execute(ctx, pool, first)
		synctest.Wait()
		time.AfterFunc(takes/2, func() { replaced.Store(true) })
		_, err := pool.Execute(ctx, second, oneProcess)
		require.ErrorIs(t, err, agent.ErrNotSent)
		require.ErrorIs(t, err, errReplaced)
		require.Equal(t, remote.Cancelled, remote.ClassOf(err))
		require.NoError(t, <-ended, "what was sent before is waited for")
		require.Equal(t, 1, begun)

		replaced.Store(false)
		connected := time.Now()
		proctest.Try(pool.Execute(ctx, second, oneProcess)).OK(t, "the connection is good")
		require.Equal(t, takes, time.Since(connected))
	})
}

// TestACommandThatWasNotBegun: the lease ended while the command logged in. The host isn't lost for that.
func TestACommandThatWasNotBegun(t *testing.T) {
	replaced, errReplaced := true, remote.Errorf(remote.Cancelled, "replaced")
	asked := 0
	ctx := remote.While(t.Context(), func() error {
		if asked++; replaced && asked > 1 {
			return errReplaced
		}
		return nil
	})
	n := &scripted{command: func(ctx context.Context, _ remote.Host) (remote.Output, error) {
		return remote.Output{}, remote.MayBegin(ctx) // as the SSH client does after the login
	}}
	pool, host := n.pool(t), remote.Host{Name: "a"}
	snapshotOf(t, pool, host)
	require.ErrorIs(t, proctest.Try(pool.Execute(ctx, host, oneProcess)).Err, errReplaced)
	replaced = false
	proctest.Try(pool.Execute(ctx, host, oneProcess)).OK(t)
}

// TestSoakDeadHosts measures what a thousand dead hosts cost the controller in
// cycles of a second, without limits: times depend on the machine.
func TestSoakDeadHosts(t *testing.T) {
	proctest.Soak(t)
	const count, interval = 1000, time.Second
	for name, port := range map[string]int{"connections are refused": refusingPort(t), "packets are lost": silentPort(t)} {
		t.Run(name, func(t *testing.T) {
			client := sshclient.New(sshclient.Options{ConfigFile: "none", ConnectTimeout: 200 * time.Millisecond})
			defer client.Close()
			pool := &agent.Pool{Start: agent.StartWith(client.Start), Network: client, Timeout: 10 * time.Second, Fanout: count, Log: zerolog.Nop()}
			defer pool.Close()
			var hosts []remote.Host
			for i := range count {
				hosts = append(hosts, remote.Host{Name: fmt.Sprintf("h%d", i), Address: "127.0.0.1", Port: port})
			}
			cycle := func() {
				for _, r := range remote.Each(t.Context(), hosts, count, pool.Snapshot) {
					require.Error(t, r.Err)
				}
			}
			for range 10 { // until all back-offs are as long as they get
				cycle()
				time.Sleep(interval)
			}
			const cycles = 20
			begun, before := time.Now(), cpuTime(t)
			for range cycles {
				cycle()
				time.Sleep(interval)
			}
			share := float64(cpuTime(t)-before) / float64(time.Since(begun))
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			t.Logf("%.2f %% of a core, %d goroutines, %d MiB of stacks, %d MiB of heap", 100*share, runtime.NumGoroutine(), m.StackInuse>>20, m.HeapInuse>>20)
		})
	}
}

func cpuTime(t *testing.T) time.Duration {
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// refusingPort is one at which nothing listens.
func refusingPort(t *testing.T) int {
	l := proctest.Try(net.Listen("tcp", "127.0.0.1:0")).OK(t)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// silentPort is one whose queue is full: the kernel drops what comes.
func silentPort(t *testing.T) int {
	fd := proctest.Try(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)).OK(t)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, unix.Listen(fd, 0))
	address := proctest.Try(unix.Getsockname(fd)).OK(t)
	port := address.(*unix.SockaddrInet4).Port
	for range 4 {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), 100*time.Millisecond)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
		}
	}
	return port
}

// slow takes ten seconds for an order, and no time for what else is asked.
func slow(_ context.Context, r agent.Call) ([]byte, error) {
	if r.Name != "ping" {
		time.Sleep(10 * time.Second)
	}
	return []byte("done"), nil
}

// TestTheServerEndsWhenItsProgramIsReplaced: soon, but neither before an order is carried
// out nor because the file was away for a moment.
func TestTheServerEndsWhenItsProgramIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var replaced atomic.Bool
		server := &agent.Responder{Token: "t", Greeting: greeting, Handler: slow, Idle: time.Hour, Replaced: replaced.Load}
		stream, in, out, ended := talk(t, server)
		running := func() {
			t.Helper()
			synctest.Wait()
			require.Empty(t, ended)
		}
		time.Sleep(time.Minute)
		running()
		replaced.Store(true)
		time.Sleep(300 * time.Millisecond)
		running()
		replaced.Store(false)
		time.Sleep(time.Minute)
		running()

		executed := calls(t.Context(), stream, agent.RequestExecute, "")
		synctest.Wait()
		replaced.Store(true)
		time.Sleep(9 * time.Second)
		running()
		proctest.Try(stream.Call(t.Context(), "ping", nil)).OK(t, "it answers meanwhile")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.NoError(t, <-executed)
		require.ErrorIs(t, <-ended, agent.ErrReplaced)
		require.NoError(t, out.Close())
		require.NoError(t, in.Close())

		stream, _, _, ended = talk(t, &agent.Responder{Token: "t", Greeting: greeting, Handler: slow, Idle: time.Hour, Replaced: replaced.Load})
		calls(t.Context(), stream, "look", "")
		synctest.Wait()
		require.NoError(t, <-calls(t.Context(), stream, "ping", ""), "it was queued")
		require.ErrorIs(t, <-ended, agent.ErrReplaced)
	})
}
