package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	hooksink "github.com/seed-3119e985/genv/remote/hooks"
	"github.com/seed-3119e985/genv/snapshot"
)

// graceful is a fleet whose host a takes ten seconds for each order; the processes of
// an order are there until it ends. It is safe for concurrent use.
type graceful struct {
	plain
	mu    sync.Mutex
	hosts map[string][]snapshot.PID
	begun time.Time
	log   []string // "second: host PIDs" of each order as it comes
}

func (g *graceful) Snapshot(_ context.Context, h remote.Host) (*snapshot.Snapshot, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &snapshot.Snapshot{}
	for _, pid := range g.hosts[h.Name] {
		s.Processes = append(s.Processes, snapshot.Process{PID: pid, Start: 1, UID: new(uidOf(pid)), Usage: []snapshot.DeviceUsage{{Index: 0}}})
	}
	return s, nil
}

func (g *graceful) Execute(_ context.Context, h remote.Host, o order.Order) (agent.Execution, error) {
	var pids []snapshot.PID
	for _, x := range o.Terminate {
		pids = append(pids, x.Process.PID)
	}
	g.mu.Lock()
	g.log = append(g.log, fmt.Sprintf("%v: %s %v", time.Since(g.begun), h.Name, pids))
	g.mu.Unlock()
	if h.Name == "a" {
		time.Sleep(10*time.Second + time.Millisecond)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hosts[h.Name] = slices.DeleteFunc(g.hosts[h.Name], func(one snapshot.PID) bool { return slices.Contains(pids, one) })
	return carriedOut(o), nil
}

func (g *graceful) start(host string, pid snapshot.PID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hosts[host] = append(g.hosts[host], pid)
}

// An order that takes its grace delays neither the next cycle nor another host, nor
// what comes up on the same host meanwhile; and it is sent once.
func TestOrdersAreNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &graceful{hosts: map[string][]snapshot.PID{"a": {5}}, begun: time.Now()}
		c := controllerOf(g, strict{}, "a", "b")
		time.AfterFunc(2500*time.Millisecond, func() { g.start("b", 8) })
		time.AfterFunc(4500*time.Millisecond, func() { g.start("a", 6) })
		var starts []time.Duration
		decisions := map[string]bool{}
		var ended []string
		require.NoError(t, controller.Loop(t.Context(), c, controller.LoopOptions{Interval: time.Second, Cycles: 20}, func(round controller.Round) error {
			starts = append(starts, round.Start.Sub(g.begun))
			for i := range round.Plan.Findings {
				f := &round.Plan.Findings[i]
				decisions[fmt.Sprintf("%d %s", f.PID, f.Decision())] = true
			}
			for _, a := range round.Results {
				ended = append(ended, fmt.Sprintf("%s of cycle %d in cycle %d", a.Host, a.Cycle, round.Number))
			}
			return nil
		}))
		for i, start := range starts {
			require.Equal(t, time.Duration(i)*time.Second, start)
		}
		require.Equal(t, []string{"0s: a [5]", "3s: b [8]", "5s: a [6]"}, g.log)
		require.Equal(t, []string{"b of cycle 4 in cycle 4", "a of cycle 1 in cycle 11", "a of cycle 6 in cycle 16"}, ended)
		delete(decisions, "6 act") // b may answer later than a: then a's order is under way in what is shown of that cycle
		require.Equal(t, map[string]bool{"5 act": true, "5 under-way": true, "6 under-way": true, "8 act": true}, decisions)
	})
}

// telling is a Link to hosts, and says when an order was carried out.
type telling struct {
	*graceful
	acted chan struct{}
}

func (s telling) Execute(ctx context.Context, h remote.Host, o order.Order) (agent.Execution, error) {
	defer close(s.acted)
	return s.graceful.Execute(ctx, h, o)
}

// Plan implements controller.Companion: what it sends arrives after an order was carried out, or after 10 s.
func (s telling) Plan(_ *controller.Round, events []enforce.Event) (_ []*controller.Delivery, none controller.Effects) {
	if len(events) == 0 {
		return nil, none
	}
	return []*controller.Delivery{{Host: "b", Send: func(context.Context, controller.Link, remote.Host) error {
		select {
		case <-s.acted:
		case <-time.After(10 * time.Second):
		}
		return nil
	}}}, none
}

func (telling) Learn(*controller.Round, *controller.Delivery) (none controller.Effects) { return none }

// What is slow to send delays no order.
func TestNothingDelaysAnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := telling{&graceful{hosts: map[string][]snapshot.PID{"b": {8}}, begun: time.Now()}, make(chan struct{})}
		c := controllerOf(s, strict{}, "b")
		c.Companions = []controller.Companion{s}
		require.NoError(t, controller.Loop(t.Context(), c, controller.LoopOptions{Interval: time.Second, Cycles: 1},
			func(controller.Round) error { return nil }))
		require.Equal(t, []string{"0s: b [8]"}, s.log)
	})
}

// When the loop ends, between two cycles or while one is shown, orders that were begun are waited for.
func TestOrdersUnderWayAreWaitedForAtTheEnd(t *testing.T) {
	for name, inShow := range map[string]bool{"between two cycles": false, "while a cycle is shown": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &graceful{hosts: map[string][]snapshot.PID{"a": {5}}, begun: time.Now()}
				c := controllerOf(g, strict{}, "a")
				ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
				defer cancel()
				var last controller.Round
				require.NoError(t, controller.Loop(ctx, c, controller.LoopOptions{Interval: time.Second}, func(round controller.Round) error {
					if last = round; inShow {
						cancel()
					}
					return nil
				}))
				require.Equal(t, 10*time.Second, time.Since(g.begun).Round(time.Second))
				require.Len(t, last.Results, 1)
				require.Equal(t, order.StatusTerminated, last.Results[0].Execution.Outcomes[0].Status)
				require.Empty(t, last.UnderWay)
			})
		})
	}
}

// noticed keeps what hooks get.
type noticed struct {
	notices []hooksink.Notice
}

func (n *noticed) Send(e hooksink.Post) {
	var notice hooksink.Notice
	_ = json.Unmarshal(e.JSON, &notice)
	n.notices = append(n.notices, notice)
}

// Hooks get outcomes with their time, run and cycle, without a log, and also when the
// loop ends with an error while an order is under way.
func TestHooksGetCompleteOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &graceful{hosts: map[string][]snapshot.PID{"a": {5}}, begun: time.Now()}
		var hooks noticed
		c := controllerOf(g, strict{}, "a")
		c.Sinks = []controller.Sink{hooksink.Sink{Queue: &hooks, Now: time.Now}}
		broken := errors.New("broken pipe")
		err := controller.Loop(t.Context(), c, controller.LoopOptions{Interval: time.Second}, func(controller.Round) error { return broken })
		require.ErrorIs(t, err, broken)
		require.Len(t, hooks.notices, 1)
		notice := hooks.notices[0]
		require.Equal(t, "Process 5 is not running in a GPU environment (uid 1005)", notice.Findings[0].Line)
		require.NotEmpty(t, notice.Run)
		require.Equal(t, 2, notice.Cycle)
		outcome := notice.Outcomes[0]
		require.Equal(t, order.StatusTerminated, outcome.Status)
		require.Equal(t, notice.Run, outcome.Run)
		require.Equal(t, time.Now().UTC(), outcome.Time)
	})
}

// failing is a Link to a host that fails.
type failing struct {
	plain
	err error
}

func (f *failing) Snapshot(context.Context, remote.Host) (*snapshot.Snapshot, error) {
	return nil, f.err
}

func (f *failing) Execute(context.Context, remote.Host, order.Order) (agent.Execution, error) {
	return agent.Execution{}, f.err
}

// A host that fails for another reason than before is reported again.
func TestAnotherClassOfFailureIsAnEvent(t *testing.T) {
	var kinds []string
	link := &failing{}
	c := controllerOf(link, nil, "a")
	c.Sinks = []controller.Sink{sinkOf(func(_ *controller.Round, events []enforce.Event) {
		for _, e := range events {
			kinds = append(kinds, fmt.Sprintf("%s %s", e.Kind, remote.ClassOf(e.Err)))
		}
	})}
	for _, class := range []remote.Class{remote.Unreachable, remote.Unreachable, remote.HostKeyChanged, remote.HostKeyChanged} {
		link.err = remote.Errorf(class, "no")
		cycleOf(t.Context(), c, strict{})
	}
	require.Equal(t, []string{"host-lost unreachable", "host-lost host-key-changed"}, kinds)
}
