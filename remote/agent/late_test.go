package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// TestMessagesThatAreLate: they end no order, unless the next ones are late too.
func TestMessagesThatAreLate(t *testing.T) {
	for name, hangs := range map[string]bool{"once": false, "every time": true} {
		bubble(t, name, func(t *testing.T) {
			shown := make(chan struct{})
			released := make(chan struct{})
			n := &scripted{notify: func() { <-shown }, execute: func(context.Context) (agent.Execution, error) {
				<-released
				return terminated("")
			}}
			pool, host := n.pool(t), remote.Host{Name: "a"}
			defer func() {
				close(released)
				if hangs {
					close(shown)
				}
			}()
			snapshotOf(t, pool, host)
			executed := execute(t.Context(), pool, host)
			synctest.Wait()
			messages := []agent.Message{{UID: 1, Text: "x"}}
			require.Equal(t, remote.Timeout, remote.ClassOf(proctest.Try(pool.Notify(t.Context(), host, messages)).Err))
			synctest.Wait()
			require.Empty(t, executed, "the order goes on")
			require.Equal(t, agent.ViaStream, pool.About(host).Via)
			if hangs {
				_, err := pool.Notify(t.Context(), host, messages)
				require.Equal(t, remote.Timeout, remote.ClassOf(err))
				require.Equal(t, remote.OutcomeUnknown, remote.ClassOf(<-executed))
				return
			}
			close(shown)
			snapshotOf(t, pool, host)
			proctest.Try(pool.Notify(t.Context(), host, messages)).OK(t)
			require.Empty(t, executed)
		})
	}
}

// TestSnapshotsThatAreLate: a host that answers soon after the controller gave up goes on with its connection,
// and with what nvidia-smi said meanwhile. One that doesn't, or says more than it was asked for, has another one.
func TestSnapshotsThatAreLate(t *testing.T) {
	hangs := func(ctx context.Context, _ *nvidiasmi.Querier) { <-ctx.Done() }
	asks := func(ctx context.Context, smi *nvidiasmi.Querier) {
		if _, err := smi.Apps(nvidiasmi.WithoutCall(ctx), time.Minute); err != nil {
			_, _ = smi.Apps(ctx, time.Minute)
		}
	}
	for name, tt := range map[string]struct {
		look   func(context.Context, *nvidiasmi.Querier)
		takes  time.Duration // nvidia-smi
		floods bool
		kept   bool
		over   time.Duration // after the begin of the late one
	}{
		"soon":            {look: asks, takes: timeout + 2*time.Second, kept: true, over: timeout + 2*time.Second},
		"too late":        {look: asks, takes: timeout + 4*time.Second, over: timeout + 3*time.Second},
		"never":           {look: hangs, over: timeout + 3*time.Second},
		"again and again": {look: hangs, floods: true, over: timeout + time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			var calls, looks, logins atomic.Int32
			smi := nvidiasmi.New(timed{&calls, tt.takes}, 0)
			defer smi.Keep(t.Context())()
			n := &scripted{look: func(ctx context.Context) {
				if n := looks.Add(1); n == 2 || n > 2 && tt.kept {
					tt.look(ctx, smi)
				}
			}}
			pool, host := n.pool(t), remote.Host{Name: "a"}
			pool.Start = func(ctx context.Context, h remote.Host, c remote.Command) (agent.Session, error) {
				logins.Add(1)
				s, err := n.start(ctx, h, c)
				if logins.Load() == 1 && tt.floods {
					return repeating(s, timeout+time.Second), err
				}
				return s, err
			}
			snapshotOf(t, pool, host)
			begun := time.Now()
			require.Equal(t, remote.Timeout, remote.ClassOf(proctest.Try(pool.Snapshot(t.Context(), host)).Err))
			require.Equal(t, agent.ViaStream, pool.About(host).Via)
			_, err := pool.Snapshot(t.Context(), host)
			require.Equal(t, tt.kept, err == nil, "%v", err)
			require.Equal(t, tt.over, time.Since(begun))
			time.Sleep(2 * time.Second)
			snapshotOf(t, pool, host)
			require.Equal(t, tt.kept, logins.Load() == 1)
			require.LessOrEqual(t, calls.Load(), int32(1), "what nvidia-smi said was kept")
		})
	}
}

// timed is an nvidia-smi that takes some time.
type timed struct {
	calls *atomic.Int32
	takes time.Duration
}

func (n timed) Run(ctx context.Context, _ ...string) (nvidiasmi.RunResult, error) {
	n.calls.Add(1)
	select {
	case <-time.After(n.takes):
		return nvidiasmi.RunResult{}, nil
	case <-ctx.Done():
		return nvidiasmi.RunResult{}, context.Cause(ctx)
	}
}

// repeating is a session that repeats, after some time, the answer to the second request.
func repeating(s agent.Session, after time.Duration) agent.Session {
	in, out := io.Pipe()
	go func() {
		_, err := io.Copy(out, s)
		_ = out.CloseWithError(err)
	}()
	go func() {
		time.Sleep(after)
		for err := error(nil); err == nil; {
			_, err = out.Write(agent.Frame(frame.KindAnswer, "", 2, []byte("{}")))
		}
	}()
	return repeated{s, in}
}

type repeated struct {
	agent.Session
	in *io.PipeReader
}

func (f repeated) Read(p []byte) (int, error) { return f.in.Read(p) }

func (f repeated) Close() {
	_ = f.in.Close()
	f.Session.Close()
}

// grave is a Backend whose orders take until they are released.
type grave struct {
	release chan struct{}

	mu              sync.Mutex
	begun, finished int
}

func (g *grave) Snapshot(context.Context, local.Age) ([]byte, error) {
	return []byte(`{"n":1}`), nil
}

func (g *grave) Execute(context.Context, order.Order, ending.Authority) (agent.Execution, error) {
	g.count(&g.begun)
	<-g.release
	g.count(&g.finished)
	return agent.Execution{Outcomes: []order.Outcome{}}, nil
}

func (g *grave) Notify(m []agent.Message) ([]agent.Receipt, error) {
	return make([]agent.Receipt, len(m)), nil
}

func (g *grave) count(n *int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*n++
}

const noOrder = `{"report":{"terminate":[],"detach":{}}}`

// join opens a stream to a server of the backend.
func join(t *testing.T, g *grave, greeting frame.Greeting) (c *agent.Stream, hangUp func() error) {
	server := &agent.Responder{Token: "t", Greeting: greeting, Handler: (&agent.Answers{Backend: g}).Handle, Idle: time.Minute}
	c, in, out, ended := talk(t, server)
	return c, func() error {
		_ = out.Close()
		err := <-ended
		_ = in.Close()
		return err
	}
}

// TestSideBySide: orders that are carried out delay no other request, and no more than 16 are.
func TestSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &grave{release: make(chan struct{})}
		c, hangUp := join(t, g, agent.NewGreeting("v"))
		var orders sync.WaitGroup
		for range 16 {
			orders.Go(func() {
				proctest.Try(c.Call(t.Context(), agent.RequestExecute, []byte(noOrder))).OK(t)
			})
		}
		synctest.Wait()
		require.Equal(t, 16, g.begun)
		_, err := c.Call(t.Context(), agent.RequestExecute, []byte(noOrder))
		require.ErrorIs(t, err, agent.ErrRefused)
		require.ErrorContains(t, err, "16 orders are under way")
		for name, body := range map[string]string{agent.RequestSnapshot: "{}", agent.RequestNotify: "{}", agent.RequestPing: "x"} {
			proctest.Try(c.Call(t.Context(), name, []byte(body))).OK(t, name)
		}
		time.Sleep(time.Hour) // much longer than Idle: the controller waits for orders
		close(g.release)
		orders.Wait()
		require.NoError(t, hangUp())
	})
}

// TestOrdersPassMessages: what shows messages slowly delays no order, and none passes one that came before.
func TestOrdersPassMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, release, shown := make(chan struct{}), make(chan struct{}), []uint64(nil)
		server := &agent.Responder{Token: "t", Greeting: greeting, Idle: time.Minute}
		server.Handler = func(_ context.Context, r agent.Call) ([]byte, error) {
			switch r.Name {
			case agent.RequestPing:
				<-begin
			case agent.RequestNotify:
				<-release // a terminal takes nothing
				shown = append(shown, r.ID)
			}
			return nil, nil
		}
		c, in, out, ended := talk(t, server)
		for _, name := range append([]string{agent.RequestPing}, slices.Repeat([]string{agent.RequestNotify}, 8)...) {
			calls(t.Context(), c, name, "")
			synctest.Wait()
		}
		close(begin)
		proctest.Try(c.Call(t.Context(), agent.RequestExecute, nil)).OK(t)
		close(release)
		_ = out.Close()
		require.NoError(t, <-ended)
		_ = in.Close()
		require.Equal(t, []uint64{2, 3, 4, 5, 6, 7, 8, 9}, shown)
	})
}

// TestOrdersOutliveTheController: an order that was begun is carried out to its end, and Serve returns after it.
func TestOrdersOutliveTheController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &grave{release: make(chan struct{})}
		c, hangUp := join(t, g, agent.NewGreeting("v"))
		called := calls(t.Context(), c, agent.RequestExecute, noOrder)
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- hangUp() }()
		time.Sleep(time.Hour)
		require.Empty(t, ended)
		close(g.release)
		require.NoError(t, <-ended)
		require.Equal(t, 1, g.finished)
		require.NoError(t, <-called, "it hung up on one side only")
	})
}

// TestAbandonedCalls: a call that is cancelled leaves the others alone; one whose
// deadline passes breaks the stream, and ends them.
func TestAbandonedCalls(t *testing.T) {
	for _, late := range []bool{false, true} {
		bubble(t, fmt.Sprintf("late %v", late), func(t *testing.T) {
			g := &grave{release: make(chan struct{})}
			c, hangUp := join(t, g, agent.NewGreeting("v"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			first := calls(t.Context(), c, agent.RequestExecute, noOrder)
			second := calls(ctx, c, agent.RequestExecute, noOrder)
			synctest.Wait()
			if !late {
				cancel()
			}
			require.Error(t, <-second)
			if late {
				require.ErrorIs(t, <-first, context.DeadlineExceeded)
				close(g.release)
			} else {
				close(g.release)
				require.NoError(t, <-first)
				proctest.Try(c.Call(t.Context(), agent.RequestPing, nil)).OK(t)
			}
			if err := hangUp(); err != nil {
				require.False(t, errors.Is(err, frame.ErrProtocol), err)
			}
		})
	}
}
