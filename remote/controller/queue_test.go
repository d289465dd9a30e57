package controller_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/companions"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Many actions don't delay the cycles, and are refused when too many wait.
func TestAFloodOfActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := visited()
		r := run(t, h, nil)
		defer func() { r.stop() }()
		var wait sync.WaitGroup
		var mu sync.Mutex
		answers := make(map[string]int)
		for range 100 {
			for range 100 {
				wait.Go(func() {
					got := r.do(operator.Action{Kind: operator.Unexempt, User: "bob"})
					mu.Lock()
					defer mu.Unlock()
					answers[strings.SplitN(got, ":", 2)[0]]++
				})
			}
			time.Sleep(100 * time.Millisecond)
		}
		wait.Wait()
		require.Equal(t, 10000, answers["changed"]+answers["busy"], answers)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, c := range r.cycles {
			require.Equal(t, time.Duration(i)*10*time.Second, c.Start.Sub(r.cycles[0].Start))
		}
	})
}

// TestWhoHasLeft: an action of a person who has left is not carried out, and one that comes after
// the end of the loop is refused.
func TestWhoHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := visited()
		r := run(t, h, nil)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		a := hold
		a.Schema, a.Reason = operator.ActionSchema, "r"
		require.ErrorIs(t, proctest.Try(r.queue.Do(gone, alice, a)).Err, context.Canceled)
		synctest.Wait()
		require.Nil(t, r.c.Memory.Operator.Hold)
		r.stop()
		require.Equal(t, "not-started: the controller has ended", r.do(hold))
		require.Nil(t, r.c.Memory.Operator.Hold)
	})
}

// A reload keeps what operators asked for.
func TestAfterAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, queue, hangup := visited(), controller.NewQueue(), make(chan os.Signal)
		c := controllerOf(h, constant{}, "a")
		c.ActUnrecorded = true
		options := c.Options
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			s := controller.LoopOptions{Interval: 10 * time.Second, Actions: queue, Hangup: hangup, Reload: func() { c.Configure(options) }}
			ended <- controller.Loop(ctx, c, s, shown)
		}()
		r := &running{twoHosts: h, t: t, queue: queue}
		synctest.Wait()
		require.Contains(t, r.do(hold), "put enforcement on hold")
		hangup <- syscall.SIGHUP
		require.Contains(t, r.do(operator.Action{Kind: operator.Release}), "released", "the reload kept it")
		cancel()
		require.NoError(t, <-ended)
	})
}

// guardedHost is a host in memory with a guard that does what it is told.
type guardedHost struct {
	mu       sync.Mutex
	requests []agent.GuardRequest
	denied   uint64
	orders   int
}

func (h *guardedHost) Snapshot(context.Context, local.Age) ([]byte, error) {
	return snapshot.EncodeNative(genvhost.Busy(1))
}

func (h *guardedHost) Execute(_ context.Context, o order.Order, _ ending.Authority) (agent.Execution, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.orders++
	return carriedOut(o), nil
}

func (*guardedHost) Notify(m []agent.Message) ([]agent.Receipt, error) {
	return make([]agent.Receipt, len(m)), nil
}

func (h *guardedHost) Order(_ context.Context, r agent.GuardRequest) (agent.GuardAnswer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, r)
	return agent.GuardAnswer{State: agent.GuardState{Mode: r.Order.Mode, Denied: h.denied}}, nil
}

func (h *guardedHost) taken() ([]agent.GuardRequest, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.requests, h.orders
}

// serve answers as the genv of a host does, with or without a guard.
func (h *guardedHost) serve(more ...string) inprocess.Func {
	return func(ctx context.Context, r *inprocess.Request) int {
		answers := &agent.Answers{Backend: h}
		if len(more) > 0 {
			answers.Guard = h.Order
		}
		return genvhost.Speak(ctx, r, &agent.Responder{ReadToken: true, Greeting: agent.NewGreeting("v", more...), Handler: answers.Handle, Idle: time.Hour})
	}
}

// TestGuardsOfAFleet: a host with a guard, an older genv, and one with genv 1.4.3, over SSH.
func TestGuardsOfAFleet(t *testing.T) {
	able, older := &guardedHost{}, &guardedHost{}
	f := genvhost.Start(t, 10*time.Second, able.serve(agent.RequestGuard), older.serve(), genvhost.New(genvhost.Busy(1)).Old())
	p := proctest.Try(policy.Parse("p.yaml", []byte("defaults: {guard: enforce, non-env-processes: true}\nexempt: {users: [zoe]}"))).OK(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	var seen []enforce.Event
	c := controllerOfFleet(f, 3)
	c.Audit, c.Companions = &audit.Log{Path: path}, []controller.Companion{&companions.Guards{}}
	c.Sinks = []controller.Sink{sinkOf(func(_ *controller.Round, events []enforce.Event) { seen = append(seen, events...) })}
	said := func() (texts []string) {
		for i := range seen {
			if seen[i].Kind == enforce.EventGuard {
				texts = append(texts, string(seen[i].Host)+": "+seen[i].Text)
			}
		}
		seen = nil
		return texts
	}

	c.DryRun = true
	cycleOf(t.Context(), c, p)
	requests, orders := able.taken()
	require.Empty(t, requests)
	require.Zero(t, orders)
	require.Contains(t, said(), "h0: would set the kernel guard to enforce (dry run)")
	c.DryRun = false

	cycleOf(t.Context(), c, p)
	requests, orders = able.taken()
	require.Len(t, requests, 1)
	require.Equal(t, guard.Enforce, requests[0].Order.Mode)
	require.Equal(t, time.Minute, requests[0].Order.Lease())
	require.Equal(t, []snapshot.Username{"zoe"}, requests[0].Order.ExemptUsers)
	require.Equal(t, 1, orders, "polling goes on")
	_, orders = older.taken()
	require.Equal(t, 1, orders, "also without a guard")
	require.Equal(t, []string{"h0: setting the kernel guard to enforce", "h0: the kernel guard is enforcing"}, said())

	able.mu.Lock()
	able.denied = 2
	able.mu.Unlock()
	cycleOf(t.Context(), c, p)
	require.Equal(t, []string{"h0: users opened GPUs that are not attached to them, 2 times in the last hour: `sudo genv guard status` on the host shows who"}, said())
	cycleOf(t.Context(), c, p)
	require.Empty(t, said())

	cycleOf(t.Context(), c, policy.Default())
	requests, _ = able.taken()
	require.Equal(t, guard.Off, requests[3].Order.Mode)
	cycleOf(t.Context(), c, policy.Default())
	requests, _ = able.taken()
	require.Len(t, requests, 4, "it is off")

	log := proctest.ReadFile(t, path)
	for _, want := range []string{"setting the kernel guard to enforce", "turning the kernel guard off"} {
		require.Contains(t, string(log), want)
	}
}
