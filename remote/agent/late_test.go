package agent_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// TestMessagesThatAreLate: they end no order, unless the next ones are late too.
func TestMessagesThatAreLate(t *testing.T) {
	for name, hangs := range map[string]bool{"once": false, "every time": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shown := make(chan struct{})
				released := make(chan struct{})
				n := &scripted{notify: func() { <-shown }, execute: func(context.Context) (agent.Execution, error) {
					<-released
					return terminated("")
				}}
				pool, host := n.pool(), remote.Host{Name: "a"}
				defer pool.Close()
				defer func() {
					close(released)
					if hangs {
						close(shown)
					}
				}()
				_, err := pool.Snapshot(t.Context(), host)
				require.NoError(t, err)
				executed := make(chan error, 1)
				go func() {
					_, err := pool.Execute(t.Context(), host, oneProcess)
					executed <- err
				}()
				synctest.Wait()
				messages := []agent.Message{{UID: 1, Text: "x"}}
				_, err = pool.Notify(t.Context(), host, messages)
				require.Equal(t, remote.Timeout, remote.ClassOf(err))
				synctest.Wait()
				require.Empty(t, executed, "the order goes on")
				require.Equal(t, agent.ViaStream, pool.About(host).Via)
				if hangs {
					_, err = pool.Notify(t.Context(), host, messages)
					require.Equal(t, remote.Timeout, remote.ClassOf(err))
					require.Equal(t, remote.OutcomeUnknown, remote.ClassOf(<-executed))
					return
				}
				close(shown)
				_, err = pool.Snapshot(t.Context(), host)
				require.NoError(t, err)
				_, err = pool.Notify(t.Context(), host, messages)
				require.NoError(t, err)
				require.Empty(t, executed)
			})
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls, looks, logins atomic.Int32
				smi := nvidiasmi.New(timed{&calls, tt.takes}, 0)
				defer smi.Keep(t.Context())()
				n := &scripted{look: func(ctx context.Context) {
					if n := looks.Add(1); n == 2 || n > 2 && tt.kept {
						tt.look(ctx, smi)
					}
				}}
				pool, host := n.pool(), remote.Host{Name: "a"}
				defer pool.Close()
				pool.Start = func(ctx context.Context, h remote.Host, c remote.Command) (agent.Session, error) {
					logins.Add(1)
					s, err := n.start(ctx, h, c)
					if logins.Load() == 1 && tt.floods {
						return repeating(s, timeout+time.Second), err
					}
					return s, err
				}
				_, err := pool.Snapshot(t.Context(), host)
				require.NoError(t, err)
				begun := time.Now()
				_, err = pool.Snapshot(t.Context(), host)
				require.Equal(t, remote.Timeout, remote.ClassOf(err))
				require.Equal(t, agent.ViaStream, pool.About(host).Via)
				_, err = pool.Snapshot(t.Context(), host)
				require.Equal(t, tt.kept, err == nil, "%v", err)
				require.Equal(t, tt.over, time.Since(begun))
				time.Sleep(2 * time.Second)
				_, err = pool.Snapshot(t.Context(), host)
				require.NoError(t, err)
				require.Equal(t, tt.kept, logins.Load() == 1)
				require.LessOrEqual(t, calls.Load(), int32(1), "what nvidia-smi said was kept")
			})
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
