package controller_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// twoHosts is a Link to host a, whose snapshot a test may change, and host b, which is down. It
// is safe for concurrent use.
type twoHosts struct {
	mu       sync.Mutex
	snapshot snapshot.Snapshot
	orders   []order.Order
	messages []agent.Message
	takes    time.Duration // an order
	asking   time.Duration // a snapshot
	plain
}

func (h *twoHosts) Snapshot(_ context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	h.mu.Lock()
	asking, s := h.asking, h.snapshot
	h.mu.Unlock()
	time.Sleep(asking)
	if host.Name != "a" {
		return nil, remote.Errorf(remote.Unreachable, "no route")
	}
	return &s, nil
}

func (h *twoHosts) Execute(_ context.Context, _ remote.Host, o order.Order) (agent.Execution, error) {
	h.mu.Lock()
	h.orders = append(h.orders, o)
	takes := h.takes
	h.mu.Unlock()
	time.Sleep(takes)
	return carriedOut(o), nil
}

func (h *twoHosts) Notify(_ context.Context, _ remote.Host, messages []agent.Message) ([]agent.Receipt, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages = append(h.messages, messages...)
	return []agent.Receipt{{Terminals: 2}}, nil
}

func (h *twoHosts) received() []order.Order {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.orders)
}

// visited is bob's process 5 in an environment that is attached to device 0, root's
// process 6, a daemon, a process in a container, and one that could not be read.
func visited() *twoHosts {
	bob, root := snapshot.UID(1001), snapshot.UID(0)
	use := func(index snapshot.DeviceIndex) []snapshot.DeviceUsage { return []snapshot.DeviceUsage{{Index: index}} }
	return &twoHosts{snapshot: snapshot.Snapshot{
		Environments: []snapshot.Environment{{EID: "9", UID: bob, Username: "bob"}, {EID: "8", UID: root, Username: "root", OwnerMismatch: true}},
		Devices: []snapshot.Device{
			{Index: 0, UUID: "GPU-0", TotalMemory: snapshot.MiB(100), Attachments: []snapshot.Attachment{{EID: "9"}}}, {Index: 1, TotalMemory: snapshot.MiB(100), Attachments: []snapshot.Attachment{{EID: "8"}, {EID: "gone"}}},
		},
		Processes: []snapshot.Process{
			{PID: 5, Start: 77, UID: &bob, Username: "bob", EID: "9", Usage: use(0), Command: "python train.py"},
			{PID: 6, Start: 77, UID: &root, Username: "root", Usage: use(1)},
			{PID: 7, Start: 77, UID: &root, Username: "gdm", Usage: use(1), Protected: "Xorg"},
			{PID: 8, Start: 77, UID: &root, Username: "root", Usage: use(1), Container: "c"},
			{PID: 10, Start: 77, UID: &bob, Username: "bob", Usage: use(1), EnvUnknown: true},
			{PID: 11, Usage: use(1)},
		},
	}}
}

// running is a loop with an operator.
type running struct {
	*twoHosts
	t      *testing.T
	c      *controller.Controller
	queue  *controller.Queue
	log    *audit.Log
	events []enforce.Event
	mu     sync.Mutex
	cycles []controller.Round
	stop   func()
}

var alice = operator.Author{UID: 0, Name: "root", Login: new(snapshot.UID(1000)), LoginName: "alice"}

// run starts a loop in a synctest bubble, and waits for the end of its first cycle.
func run(t *testing.T, h *twoHosts, change func(*controller.Controller)) *running {
	t.Helper()
	r := &running{twoHosts: h, t: t, queue: controller.NewQueue(), log: &audit.Log{Path: filepath.Join(t.TempDir(), "audit.jsonl")}}
	r.c = controllerOf(h, constant{Grace: 3 * time.Second, Kill: true}, "a", "b")
	r.c.Audit = r.log
	r.c.Sinks = append(r.c.Sinks, sinkOf(func(_ *controller.Round, events []enforce.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, events...)
	}))
	if change != nil {
		change(r.c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- controller.Loop(ctx, r.c, controller.LoopOptions{Interval: 10 * time.Second, Actions: r.queue}, func(c controller.Round) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.cycles = append(r.cycles, c)
			return nil
		})
	}()
	r.stop = func() { cancel(); require.NoError(t, <-ended); r.queue.End(); r.stop = func() {} }
	synctest.Wait()
	return r
}

func (r *running) last() controller.Round {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cycles[len(r.cycles)-1]
}

// do asks for an action. The answer is its text, or "CODE: TEXT" of a refusal.
func (r *running) do(a operator.Action) string {
	r.t.Helper()
	a.Schema, a.Reason = operator.ActionSchema, "it was asked for"
	answer, err := r.queue.Do(r.t.Context(), alice, a)
	if err == nil {
		return answer.Text
	}
	var refusal *operator.Refusal
	require.ErrorAs(r.t, err, &refusal)
	require.NotEmpty(r.t, refusal.NextStep)
	return fmt.Sprintf("%s: %s", refusal.Code, refusal.Text)
}

func (r *running) history() []audit.HistoryEntry {
	entries, damage, err := audit.History(r.log.Path, audit.Filter{})
	require.NoError(r.t, err)
	require.Zero(r.t, damage.Lines)
	return entries
}

var (
	exemptBob = operator.Action{Kind: operator.Exempt, User: "bob", Hours: 2}
	hold      = operator.Action{Kind: operator.Hold}
)

func TestAnActionIsCarriedOutAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := visited()
		r := run(t, h, nil)
		defer func() { r.stop() }()
		h.mu.Lock()
		h.asking = time.Minute
		h.mu.Unlock()
		for _, wait := range []time.Duration{4, 15} { // between two cycles, and while hosts are asked
			time.Sleep(wait * time.Second)
			asked := time.Now()
			require.Contains(t, r.do(exemptBob), "alice (uid 1000), as root exempted user bob until")
			require.Zero(t, time.Since(asked))
		}
		history := r.history()
		require.Len(t, history, 2)
		for _, e := range history {
			require.Equal(t, "alice (uid 1000), as root", e.By)
			require.Equal(t, "bob", string(e.User))
		}
		require.Empty(t, r.received())
	})
}

// TestExemptionOfNoGPU: an index that isn't there is noted, since a GPU may be away, and said.
func TestExemptionOfNoGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, visited(), nil)
		defer func() { r.stop() }()
		a := operator.Action{Kind: operator.Exempt, Host: "a", Device: new(snapshot.DeviceIndex(9)), Hours: 2}
		require.Contains(t, r.do(a), "it was asked for (a has no GPU 9 now)")
		a.Kind, a.Hours = operator.Unexempt, 0
		require.NotContains(t, r.do(a), "has no GPU")
		a.Kind, a.Hours, a.Device = operator.Exempt, 2, new(snapshot.DeviceIndex(1))
		require.NotContains(t, r.do(a), "has no GPU")
	})
}

func TestWhatIsRefused(t *testing.T) {
	for says, a := range map[string]operator.Action{
		"changed: there is no exemption of user bob": {Kind: operator.Unexempt, User: "bob"},
		"changed: enforcement is not on hold":        {Kind: operator.Release},
		"invalid: unknown action terminate":          {Kind: "terminate", Host: "a"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, visited(), nil)
			require.Equal(t, says, r.do(a))
			r.stop()
			require.Empty(t, r.received())
			require.Empty(t, r.messages)
			require.Empty(t, r.history())
		})
	}
}

// Explain changes nothing, so that a dry run answers it, too, and it isn't recorded.
func TestExplain(t *testing.T) {
	explain := func(user snapshot.Username) operator.Action {
		return operator.Action{Kind: operator.Explain, Host: "a", User: user}
	}
	for name, change := range map[string]func(*controller.Controller){
		"a dry run": func(c *controller.Controller) { c.DryRun = true }, "no record": func(c *controller.Controller) { c.Audit = nil }, "a loop": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, visited(), change)
			require.Empty(t, r.do(explain("bob")), "%s: there is no cap", name)
			require.Contains(t, r.do(operator.Action{Kind: operator.Explain, Host: "a", Hours: 2}), "invalid: explain has no use for hours")
			require.Empty(t, r.history())
			if change == nil {
				require.Contains(t, r.do(exemptBob), "exempted user bob until")
				require.Regexp(t, "^exempt: user bob is exempt until ", r.do(explain("bob")))
				require.Empty(t, r.do(explain("eve")))
			}
			r.stop()
		})
	}
}

func TestConditionsOfTheController(t *testing.T) {
	broken := &full{}
	for says, change := range map[string]func(*controller.Controller){
		"unable: this controller runs with --dry-run: it does nothing":                 func(c *controller.Controller) { c.DryRun = true },
		"unable: this controller keeps no record of who asks for what":                 func(c *controller.Controller) { c.Audit = nil },
		"unable: nothing was done, since it could not be recorded: " + errFull.Error(): func(c *controller.Controller) { c.Audit = broken },
		"unable: this controller doesn't act now":                                      func(c *controller.Controller) { c.Policy = nil },
	} {
		for _, a := range []operator.Action{exemptBob, hold} {
			synctest.Test(t, func(t *testing.T) {
				r := run(t, visited(), change)
				require.Equal(t, says, r.do(a))
				r.stop()
				require.Empty(t, r.received())
				require.True(t, r.c.Memory.Operator.Empty())
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := run(t, visited(), func(c *controller.Controller) { c.Audit, c.ActUnrecorded = broken, true })
		require.Contains(t, r.do(hold), "put enforcement on hold")
		r.stop()
	})
}
