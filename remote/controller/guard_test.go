package controller_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/local/asked"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// guardedHost is a host in memory with a guard that does what it is told.
type guardedHost struct {
	mu       sync.Mutex
	requests []agent.GuardRequest
	denials  []agent.GuardDenial
	reports  int
}

func (h *guardedHost) Snapshot(context.Context, time.Duration) ([]byte, error) {
	return snapshot.EncodeNative(busy(1))
}

func (h *guardedHost) Execute(_ context.Context, r enforce.Report, _ asked.Asker) (done agent.Execution, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reports++
	for _, t := range r.Terminate {
		done.Outcomes = append(done.Outcomes, enforce.Outcome{PID: t.Process.PID, Status: enforce.StatusTerminated})
	}
	return done, nil
}

func (*guardedHost) Notify(m []agent.Message) ([]agent.Shown, error) {
	return make([]agent.Shown, len(m)), nil
}

func (h *guardedHost) Order(_ context.Context, r agent.GuardRequest) (agent.GuardAnswer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, r)
	return agent.GuardAnswer{State: agent.GuardState{Mode: r.Order.Mode}, Epoch: "e", Seq: uint64(len(h.denials)), Denials: h.denials}, nil
}

func (h *guardedHost) taken() ([]agent.GuardRequest, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.requests, h.reports
}

// serve answers as the genv of a host does, with or without a guard.
func (h *guardedHost) serve(more ...string) inprocess.Func {
	return func(ctx context.Context, r *inprocess.Request) int {
		answers := &agent.Answers{Backend: h}
		if len(more) > 0 {
			answers.Guard = h
		}
		token := r.Line[strings.LastIndexByte(r.Line, ' ')+1:]
		return genvhost.Speak(ctx, r, agent.Server{Token: token, Greeting: agent.NewGreeting("v", more...), Handler: answers, Idle: time.Hour})
	}
}

// TestGuardsOfAFleet: a host with a guard, an older genv, and one with genv 1.4.3, over SSH.
func TestGuardsOfAFleet(t *testing.T) {
	able, older := &guardedHost{}, &guardedHost{}
	f := startFleet(t, 10*time.Second, able.serve(agent.RequestGuard), older.serve(), genvhost.New(busy(1)).Old())
	p, err := policy.Parse("p.yaml", []byte("defaults: {guard: enforce, non-env-processes: true}\nexempt: {users: [zoe]}"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "audit.log")
	var seen []enforce.Event
	c := &controller.Controller{
		Asker: controller.Asker{Hosts: f.hosts, Link: f.streams, Fanout: 8}, Now: time.Now, Audit: &audit.Log{Path: path},
		Sinks: []controller.Sink{sinkFunc(func(events []enforce.Event) { seen = append(seen, events...) })},
	}
	said := func() (texts []string) {
		for i := range seen {
			if kind := seen[i].Kind; kind == enforce.EventGuard || kind == enforce.EventDenied {
				texts = append(texts, string(seen[i].Host)+": "+seen[i].Text)
			}
		}
		seen = nil
		return texts
	}

	c.DryRun = true
	cycleOf(t.Context(), c, 1, p)
	requests, reports := able.taken()
	require.Empty(t, requests)
	require.Zero(t, reports)
	require.Contains(t, said(), "h0: would set the kernel guard to enforce (dry run)")
	c.DryRun = false

	cycleOf(t.Context(), c, 2, p)
	requests, reports = able.taken()
	require.Len(t, requests, 1)
	require.Equal(t, guard.Enforce, requests[0].Order.Mode)
	require.Equal(t, time.Minute, requests[0].Order.Lease)
	require.Equal(t, []snapshot.Username{"zoe"}, requests[0].Order.ExemptUsers)
	require.Equal(t, 1, reports, "polling goes on")
	_, reports = older.taken()
	require.Equal(t, 1, reports, "also without a guard")
	require.Equal(t, []string{"h0: setting the kernel guard to enforce", "h0: the kernel guard is enforcing"}, said())

	index := snapshot.DeviceIndex(0)
	able.mu.Lock()
	able.denials = []agent.GuardDenial{{User: "bob", Denial: guard.Denial{ID: 1, Seq: 1, UID: 1002, PID: 7, Index: &index, Denied: true}}}
	able.mu.Unlock()
	cycleOf(t.Context(), c, 3, p)
	require.Equal(t, []string{"h0: User bob was denied device 0, which is not attached to them: process 7"}, said())
	cycleOf(t.Context(), c, 4, p)
	require.Empty(t, said())
	requests, _ = able.taken()
	require.Equal(t, uint64(1), requests[2].Seq)

	cycleOf(t.Context(), c, 5, policy.Default())
	requests, _ = able.taken()
	require.Equal(t, guard.Off, requests[3].Order.Mode)
	cycleOf(t.Context(), c, 6, policy.Default())
	requests, _ = able.taken()
	require.Len(t, requests, 4, "it is off")

	log, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, want := range []string{`"kind":"denied"`, `"user":"bob","uid":1002,"pid":7,"device":0`, "setting the kernel guard to enforce", "turning the kernel guard off"} {
		require.Contains(t, string(log), want)
	}
}
