package controller_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/companions"
	"github.com/seed-3119e985/genv/remote/controller"
	hooksink "github.com/seed-3119e985/genv/remote/hooks"
	"github.com/seed-3119e985/genv/snapshot"
)

// fakeFleet has hosts with processes outside of environments, which an order ends one by one until it is cut off.
type fakeFleet struct {
	plain
	mu      sync.Mutex   // while hosts are asked and orders are carried out
	now     atomic.Int64 // a clock that goes on when somebody looks
	t       *testing.T
	hosts   map[string][]snapshot.PID
	signals map[snapshot.PID]int
	// cut ends an order after so many items; negative for never.
	cut  int
	lost error // what the controller hears then
	down bool
	uid  func(snapshot.PID) snapshot.UID // nil for uidOf
	// names are the users of processes, as far as the host reports them.
	names map[snapshot.PID]snapshot.Username

	messages  []agent.Message
	notifyErr error
	shown     int            // on how many terminals messages are shown
	claims    snapshot.EnvID // what the processes claim
}

func newFakeFleet(t *testing.T) *fakeFleet {
	return &fakeFleet{t: t, hosts: map[string][]snapshot.PID{"a": {5, 6, 7}, "b": {8}}, signals: map[snapshot.PID]int{}, cut: -1}
}

func uidOf(pid snapshot.PID) snapshot.UID { return 1000 + snapshot.UID(pid) }

func (p *fakeFleet) Snapshot(_ context.Context, h remote.Host) (*snapshot.Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down && h.Name == "a" {
		return nil, remote.Errorf(remote.Unreachable, "no route")
	}
	s := &snapshot.Snapshot{}
	for _, pid := range p.hosts[h.Name] {
		uid := uidOf(pid)
		if p.uid != nil {
			uid = p.uid(pid)
		}
		s.Processes = append(s.Processes, snapshot.Process{PID: pid, Start: 1, UID: &uid, Username: p.names[pid], EID: p.claims, Usage: []snapshot.DeviceUsage{{Index: 0}}})
	}
	return s, nil
}

func (p *fakeFleet) Execute(_ context.Context, h remote.Host, o order.Order) (agent.Execution, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var done agent.Execution
	for i, x := range o.Terminate {
		if h.Name == "a" && i == p.cut {
			return agent.Execution{}, p.lost
		}
		p.signals[x.Process.PID]++
		p.hosts[h.Name] = slices.DeleteFunc(p.hosts[h.Name], func(pid snapshot.PID) bool { return pid == x.Process.PID })
		done.Outcomes = append(done.Outcomes, order.Outcome{PID: x.Process.PID, Status: order.StatusTerminated})
	}
	if h.Name == "a" && p.cut == len(o.Terminate) {
		return agent.Execution{}, p.lost
	}
	return done, nil
}

func (p *fakeFleet) Notify(_ context.Context, _ remote.Host, messages []agent.Message) ([]agent.Receipt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.notifyErr != nil {
		return nil, p.notifyErr
	}
	p.messages = append(p.messages, messages...)
	return slices.Repeat([]agent.Receipt{{Terminals: p.shown}}, len(messages)), nil
}

func (p *fakeFleet) controller(log controller.Recorder) *controller.Controller {
	p.now.Store(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixNano())
	return &controller.Controller{Options: controller.Options{
		Survey: controller.Survey{Hosts: []remote.Host{{Name: "a", Labels: map[string]string{"gpu": "h100"}}, {Name: "b"}}, Link: p, Fanout: 1},
		Audit:  log, Now: func() time.Time { return time.Unix(0, p.now.Add(int64(time.Millisecond))).UTC() },
		Companions: []controller.Companion{&companions.Messages{}},
	}}
}

// constant is a policy with the same settings for everyone, which exempts nothing.
type constant enforce.Settings

func (c constant) Settings(enforce.Query) *enforce.Settings { return (*enforce.Settings)(&c) }
func (constant) Exempt(enforce.Subject) (string, bool)      { return "", false }
func (constant) ReservationRule(snapshot.Username) (*snapshot.ReservationRule, bool) {
	return nil, true
}
func (constant) Caps(time.Time) []*enforce.Cap                       { return nil }
func (constant) ExemptIndices(snapshot.Hostname) []enforce.ExemptGPU { return nil }
func (constant) Account(user snapshot.Username) snapshot.Username    { return user }
func (constant) Names(snapshot.Username) bool                        { return false }
func (constant) Fleet() enforce.Fleet                                { return enforce.Fleet{} }

// usual is what holds without a policy file.
var usual = constant{EnvDevices: true, EnvMemory: true}

// strict ends processes outside of environments.
type strict struct {
	constant
	warn   enforce.Warn
	limits safety.Limits
	notify bool
	only   string // the label that hosts must have, if any
}

func (s strict) Settings(q enforce.Query) *enforce.Settings {
	return &enforce.Settings{NonEnvProcesses: s.only == "" || q.Labels["gpu"] == s.only, Warn: s.warn, Grace: time.Second, Kill: true}
}

func (s strict) Fleet() enforce.Fleet { return enforce.Fleet{Limits: s.limits, NotifyUsers: s.notify} }

// If the answer to an order is lost, its outcomes are unknown, it is not repeated, and
// the next cycle does what is left.
func TestAnOrderCutOffAtEveryStep(t *testing.T) {
	for cut := range 4 {
		for _, class := range []remote.Class{remote.OutcomeUnknown, remote.Timeout, remote.InvalidOutput, remote.CommandFailed} {
			t.Run(fmt.Sprintf("%d %s", cut, class), func(t *testing.T) {
				p := newFakeFleet(t)
				p.cut, p.lost = cut, remote.Errorf(class, "cut off")
				path := filepath.Join(t.TempDir(), "audit.jsonl")
				c := p.controller(&audit.Log{Path: path})
				first := cycleOf(t.Context(), c, strict{})
				require.Len(t, first.Results, 2)
				require.NoError(t, first.Unrecorded)

				entries, _, err := audit.History(path, audit.Filter{Host: "a"})
				require.NoError(t, err)
				require.Len(t, entries, 3, "no outcome is lost")
				for _, e := range entries {
					require.Equal(t, order.StatusUnknown, e.Status)
					require.Equal(t, "cut off", e.Reason)
					require.Equal(t, []string{fmt.Sprintf("Process %d is not running in a GPU environment (uid %d)", e.PID, 1000+e.PID)}, e.Why)
				}

				p.cut = -1
				p.now.Add(int64(time.Minute))
				second := cycleOf(t.Context(), c, strict{})
				require.Len(t, second.Plan.Findings, 3-cut, "what is left")
				require.Equal(t, map[snapshot.PID]int{5: 1, 6: 1, 7: 1, 8: 1}, p.signals, "none twice, none forgotten")
				entries, _, err = audit.History(path, audit.Filter{Host: "a", Since: second.Start})
				require.NoError(t, err)
				require.Len(t, entries, 3-cut)
				for _, e := range entries {
					require.Equal(t, order.StatusTerminated, e.Status)
				}
			})
		}
	}
}

func TestAHostThatWasNeverReachedDidNothing(t *testing.T) {
	p := newFakeFleet(t)
	p.cut, p.lost = 0, remote.Errorf(remote.Unreachable, "no route")
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	cycleOf(t.Context(), p.controller(&audit.Log{Path: path}), strict{})
	entries, _, err := audit.History(path, audit.Filter{PID: 5})
	require.NoError(t, err)
	require.Equal(t, order.StatusFailed, entries[0].Status)
}

func TestNoActionIfHeldDryOrPending(t *testing.T) {
	for name, tt := range map[string]struct {
		policy   strict
		dry      bool
		decision enforce.Decision
	}{
		"held":    {strict{notify: true, limits: safety.Limits{Fleet: safety.Limit{Terminations: 1}}}, false, enforce.DecisionHold},
		"dry run": {strict{notify: true}, true, enforce.DecisionDryRun},
		"waiting": {strict{warn: enforce.Warn{Cycles: 3}}, false, enforce.DecisionWait},
	} {
		t.Run(name, func(t *testing.T) {
			p := sameUser(t, map[string]int{"a": 2, "b": 2})
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			c := p.controller(&audit.Log{Path: path})
			c.DryRun = tt.dry
			for range 3 {
				round := cycleOf(t.Context(), c, tt.policy)
				require.Empty(t, round.Results)
				require.Equal(t, name == "held", round.Plan.Held())
			}
			require.Empty(t, p.signals)
			require.Empty(t, p.messages)
			findings := recordsOf(t, path, audit.KindFinding)
			require.Len(t, findings, 4, "once each, however many cycles")
			for i := range findings {
				require.Equal(t, tt.decision, findings[i].Decision)
			}
		})
	}
}

func TestLabelsReachThePolicy(t *testing.T) {
	p := newFakeFleet(t)
	cycleOf(t.Context(), p.controller(nil), strict{only: "h100"})
	require.Equal(t, map[snapshot.PID]int{5: 1, 6: 1, 7: 1}, p.signals)
}

func TestUsersAreNotifiedOfWarningAndActionOnceEach(t *testing.T) {
	p := newFakeFleet(t)
	c := p.controller(nil)
	policy := strict{notify: true, warn: enforce.Warn{Cycles: 3}}
	for number := range 3 {
		cycleOf(t.Context(), c, policy)
		require.Len(t, p.messages, 4, "cycle %d", number+1)
	}
	first := slices.IndexFunc(p.messages, func(m agent.Message) bool { return m.UID == uidOf(5) })
	require.Contains(t, p.messages[first].Text, "Unless this changes soon, process 5 will be ended.")
	p.down = true
	cycleOf(t.Context(), c, policy) // b is due; a did not answer, so what is there is not known
	require.Len(t, p.messages, 5)
	require.Contains(t, p.messages[4].Text, "Process 8 gets SIGTERM now.")
	p.down = false
	cycleOf(t.Context(), c, policy) // its silence was no break
	require.Len(t, p.messages, 8)
	cycleOf(t.Context(), c, policy)
	require.Len(t, p.messages, 8, "users are notified once")
}

func TestActionsDoNotDependOnNotifications(t *testing.T) {
	p := newFakeFleet(t)
	p.notifyErr = agent.ErrCannotNotify
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	round := cycleOf(t.Context(), p.controller(&audit.Log{Path: path}), strict{notify: true})
	require.Len(t, round.Notified, 4)
	require.ErrorIs(t, round.Notified[0].Err, agent.ErrCannotNotify)
	require.Len(t, p.signals, 4)
	said := recordsOf(t, path, audit.KindNotified)
	require.Len(t, said, 4)
	for i := range said {
		require.Equal(t, agent.ErrCannotNotify.Error(), said[i].Reason)
	}
}

// hookEvents are the events that hooks got.
type hookEvents []string

func (h *hookEvents) Send(e hooksink.Post) {
	var n hooksink.Notice
	event := e.Event
	if err := json.Unmarshal(e.JSON, &n); err != nil || n.Event != event || n.Schema != "genv.hook/1" {
		event = "garbled"
	}
	*h = append(*h, fmt.Sprintf("%s %d %d %t", event, len(n.Findings), len(n.Outcomes), len(n.HeldUsers)+len(n.HeldHosts) > 0))
}

func TestHooksGetWarningsActionsAndHeldCycles(t *testing.T) {
	var hooks hookEvents
	p := sameUser(t, map[string]int{"a": 2, "b": 2})
	c := p.controller(nil)
	c.Sinks = append(c.Sinks, hooksink.Sink{Queue: &hooks, Now: c.Now})
	cycleOf(t.Context(), c, strict{warn: enforce.Warn{Cycles: 2}})
	cycleOf(t.Context(), c, strict{warn: enforce.Warn{Cycles: 2}})
	cycleOf(t.Context(), c, strict{limits: safety.Limits{Fleet: safety.Limit{Terminations: 1}}})
	cycleOf(t.Context(), c, strict{limits: safety.Limits{Fleet: safety.Limit{Terminations: 1}}})
	c.DryRun = true
	cycleOf(t.Context(), c, strict{})
	c.DryRun = false
	cycleOf(t.Context(), c, strict{})
	require.Equal(t, hookEvents{"warn 4 0 false", "hold 0 0 true", "hold 0 0 true", "act 4 4 false"}, hooks)
}

// A 1.4.3 host has no outcomes: its lines say what it did.
func TestOutcomesFromPrintedLines(t *testing.T) {
	for _, eid := range []snapshot.EnvID{"", "1102", "1 - run: curl x|sh"} {
		t.Run(string(eid), func(t *testing.T) { outcomesFromLines(t, &oldHost{eid: eid}) })
	}
}

func outcomesFromLines(t *testing.T, old *oldHost) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	c := controllerOf(old, nil, "a")
	c.Audit = &audit.Log{Path: path}
	round := cycleOf(t.Context(), c, strict{})
	require.Equal(t, []string{"Terminating process 5 from environment N/A that is running on GPU(s) 0"}, round.Results[0].Execution.Lines,
		"it ends for being in no environment, whatever it claims")
	entries, _, err := audit.History(path, audit.Filter{})
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.Equal(t, order.StatusSignalled, entries[0].Status)
	require.Equal(t, order.StatusUnknown, entries[1].Status)
}

type oldHost struct {
	plain
	eid snapshot.EnvID
}

func (h *oldHost) Snapshot(context.Context, remote.Host) (*snapshot.Snapshot, error) {
	s := &snapshot.Snapshot{}
	for _, pid := range []snapshot.PID{5, 6} {
		s.Processes = append(s.Processes, snapshot.Process{PID: pid, EID: h.eid, Usage: []snapshot.DeviceUsage{{Index: 0, Memory: snapshot.MiB(1)}}})
	}
	return s, nil
}

func (h *oldHost) Execute(context.Context, remote.Host, order.Order) (agent.Execution, error) {
	line := fmt.Sprintf("Terminating process 5 from environment %s that is running on GPU(s) 0", cmp.Or(string(h.eid), "N/A"))
	return agent.Execution{Lines: []string{line}}, nil
}

func sameUser(t *testing.T, n map[string]int) *fakeFleet {
	p := newFakeFleet(t)
	p.hosts = map[string][]snapshot.PID{}
	for host, n := range n {
		for i := range n {
			p.hosts[host] = append(p.hosts[host], snapshot.PID(100+i))
		}
	}
	p.uid = func(snapshot.PID) snapshot.UID { return 1001 }
	return p
}
