package controller_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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
	kept     bool          // messages also wait for the next login
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
	var done agent.Execution
	for _, d := range o.Detach {
		done.Outcomes = append(done.Outcomes, order.Outcome{Device: d.Device, EID: d.Environment.EID, Status: order.StatusDetached})
	}
	for _, x := range o.Terminate {
		done.Outcomes = append(done.Outcomes, order.Outcome{PID: x.Process.PID, Status: order.StatusTerminated})
	}
	return done, nil
}

func (h *twoHosts) Notify(_ context.Context, _ remote.Host, messages []agent.Message) ([]agent.Shown, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages = append(h.messages, messages...)
	return []agent.Shown{{Terminals: 2, Kept: h.kept}}, nil
}

func (h *twoHosts) sent() int { return len(h.received()) }

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

// exempting is a policy that exempts a user, has a grace, and enforces little.
type exempting struct {
	constant
	user snapshot.Username
}

func (e exempting) Exempt(s enforce.Subject) (string, bool) {
	return "in the policy", e.user != "" && (s.User == e.user || s.Process != nil && s.Process.Username == e.user)
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
	cycles []controller.Cycle
	stop   func()
}

var alice = operator.Person{UID: 0, Name: "root", Login: new(snapshot.UID(1000)), LoginName: "alice"}

// run starts a loop in a synctest bubble, and waits for the end of its first cycle.
func run(t *testing.T, h *twoHosts, change func(*controller.Controller)) *running {
	t.Helper()
	r := &running{twoHosts: h, t: t, queue: controller.NewQueue(), log: &audit.Log{Path: filepath.Join(t.TempDir(), "audit.jsonl")}}
	r.c = &controller.Controller{Options: controller.Options{
		Asker:  controller.Asker{Hosts: []remote.Host{{Name: "a"}, {Name: "b"}}, Link: h, Fanout: 2},
		Policy: exempting{constant: constant{Grace: 3 * time.Second, Kill: true}}, Audit: r.log, Now: time.Now,
	}}
	r.c.Sinks = append(r.c.Sinks, sinkFunc(func(events []enforce.Event) {
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
		ended <- controller.Loop(ctx, r.c, controller.Schedule{Interval: 10 * time.Second, Actions: r.queue}, func(c controller.Cycle) error {
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

func (r *running) last() controller.Cycle {
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

func (r *running) history() []audit.Entry {
	entries, damage, err := audit.History(r.log.Path, audit.Filter{})
	require.NoError(r.t, err)
	require.Zero(r.t, damage.Lines)
	return entries
}

func index(i snapshot.DeviceIndex) *snapshot.DeviceIndex { return &i }

var (
	endBobs  = operator.Action{Kind: operator.Terminate, Host: "a", PID: 5, Start: 77, User: "bob"}
	takeBobs = operator.Action{Kind: operator.Detach, Host: "a", Device: index(0), EID: "9", User: "bob"}
	hold     = operator.Action{Kind: operator.Hold}
)

// An action doesn't wait for the next cycle, and its order is like that of a rule.
func TestAnActionIsCarriedOutAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, visited(), nil)
		defer func() { r.stop() }()
		time.Sleep(4 * time.Second)
		asked := time.Now()
		require.Equal(t, "terminated", r.do(endBobs))
		require.Equal(t, "detached", r.do(takeBobs))
		require.Zero(t, time.Since(asked))
		require.Len(t, r.received(), 2)
		o := r.received()[0]
		require.Equal(t, 3*time.Second, o.Grace)
		require.True(t, o.Kill)
		require.Equal(t, r.snapshot.Processes[0], o.Terminate[0].Process)
		require.False(t, o.Terminate[0].Outside())
		require.Equal(t, []string{"Requested by alice (uid 1000), as root: it was asked for"}, o.Terminate[0].Why)
		require.Equal(t, "snapshot of a, "+asked.Add(-4*time.Second).UTC().Format(time.DateTime)+" UTC", o.Terminate[0].Judged[0])
		require.NotEqual(t, o.ID, r.received()[1].ID)

		history := r.history()
		require.Len(t, history, 2)
		for _, e := range history {
			require.Equal(t, "alice (uid 1000), as root", e.By)
			require.Equal(t, "bob", string(e.User))
			require.NotEmpty(t, e.IDs)
		}
		require.Equal(t, order.StatusTerminated, history[0].Status)
		require.Equal(t, order.StatusDetached, history[1].Status)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, r.last().Results, 2, "the next cycle shows them")
		require.Empty(t, r.last().UnderWay)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Empty(t, r.last().Results)
		require.Equal(t, 2, r.sent())
	})
}

func TestWhatIsRefused(t *testing.T) {
	other := func(change func(*operator.Action)) operator.Action { a := endBobs; change(&a); return a }
	otherDevice := func(change func(*operator.Action)) operator.Action { a := takeBobs; change(&a); return a }
	for says, a := range map[string]operator.Action{
		"changed: process 5 of host a is another one now: it started at another time": other(func(a *operator.Action) { a.Start = 78 }),
		"changed: process 4 no longer uses a GPU of host a":                           other(func(a *operator.Action) { a.PID = 4 }),
		"changed: process 5 no longer uses that GPU of host a":                        other(func(a *operator.Action) { a.Device = index(1) }),
		"changed: process 5 of host a is in environment 9 now":                        other(func(a *operator.Action) { a.EID = "8" }),
		"changed: the user on host a is bob, and not carol":                           other(func(a *operator.Action) { a.User = "carol" }),
		"changed: the user on host a is bob, and not N/A":                             other(func(a *operator.Action) { a.User = "" }),
		"changed: host c is not in the fleet":                                         other(func(a *operator.Action) { a.Host = "c" }),
		"unable: host b did not answer: no route":                                     other(func(a *operator.Action) { a.Host = "b" }),
		"protected: process 6 belongs to root":                                        other(func(a *operator.Action) { a.PID, a.User = 6, "root" }),
		"protected: process 7 is the daemon Xorg, which is never ended":               other(func(a *operator.Action) { a.PID, a.User = 7, "gdm" }),
		"unable: the environment of process 10 could not be read":                     other(func(a *operator.Action) { a.PID = 10 }),
		"changed: GPU 1 of host a is no longer attached to environment 9":             otherDevice(func(a *operator.Action) { a.Device = index(1) }),
		"changed: GPU 0 of host a is another GPU now":                                 otherDevice(func(a *operator.Action) { a.UUID = "GPU-1" }),
		"changed: GPU 5 of host a is no longer attached to environment 9":             otherDevice(func(a *operator.Action) { a.Device = index(5) }),
		"changed: GPU 1 of host a is no longer attached to environment gone":          otherDevice(func(a *operator.Action) { a.Device, a.EID = index(1), "gone" }),
		"changed: the user on host a is bob, and not alice":                           otherDevice(func(a *operator.Action) { a.User = "alice" }),
		"unable: host a does not say to which user it belongs":                        {Kind: operator.Warn, Host: "a", Device: index(1), EID: "8", User: "root"},
		"changed: there is no exemption of user bob":                                  {Kind: operator.Unexempt, User: "bob"},
		"changed: enforcement is not on hold":                                         {Kind: operator.Release},
		"invalid: terminate needs the pid and the start of a process":                 {Kind: operator.Terminate, Host: "a", PID: 11},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, visited(), nil)
			require.Equal(t, says, r.do(a))
			r.stop()
			require.Zero(t, r.sent())
			require.Empty(t, r.messages)
			require.Empty(t, r.history())
		})
	}
}

func TestConditionsOfTheController(t *testing.T) {
	broken := &full{}
	for says, change := range map[string]func(*controller.Controller){
		"unable: this controller runs with --dry-run: it does nothing":                 func(c *controller.Controller) { c.DryRun = true },
		"unable: this controller keeps no record of who asks for what":                 func(c *controller.Controller) { c.Audit = nil },
		"unable: nothing was done, since it could not be recorded: " + errFull.Error(): func(c *controller.Controller) { c.Audit = broken },
		"protected: it is exempt: in the policy":                                       func(c *controller.Controller) { c.Policy = exempting{user: "bob"} },
		"unable: this controller doesn't act now":                                      func(c *controller.Controller) { c.Standby = true },
	} {
		for _, a := range []operator.Action{endBobs, takeBobs, hold} {
			if a.Kind == operator.Hold && strings.HasPrefix(says, "protected") {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				r := run(t, visited(), change)
				require.Equal(t, says, r.do(a))
				r.stop()
				require.Zero(t, r.sent())
				require.Nil(t, r.c.Memory.Operator.Hold)
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := run(t, visited(), func(c *controller.Controller) { c.Audit, c.ActUnrecorded = broken, true })
		require.Equal(t, "terminated", r.do(endBobs))
		r.stop()
	})
}

// What is known of the hosts must be recent: here, a host keeps the next cycle waiting.
func TestAnOldSnapshotIsNotActedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := visited()
		r := run(t, h, nil)
		defer func() { r.stop() }()
		h.mu.Lock()
		h.asking = time.Minute
		h.mu.Unlock()
		time.Sleep(15 * time.Second)
		warn := operator.Action{Kind: operator.Warn, Host: "a", PID: 5, Start: 77, User: "bob"}
		require.Equal(t, "The message is on its way.", r.do(warn), "although hosts are being asked")
		h.mu.Lock()
		require.Len(t, h.messages, 1)
		h.mu.Unlock()
		time.Sleep(25 * time.Second)
		require.Equal(t, "unable: what is known of the host is from 45s ago", r.do(endBobs))
		require.Contains(t, r.do(hold), "put enforcement on hold")
		require.Zero(t, r.sent())
	})
}

// An early cycle of one host makes what is known of another one no newer.
func TestAnOldSnapshotBesideANewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, queue := newWakeful("a", "b"), controller.NewQueue()
		w.hosts["b"].processes = []snapshot.PID{3}
		c := &controller.Controller{Options: controller.Options{
			Asker:  controller.Asker{Hosts: []remote.Host{{Name: "a"}, {Name: "b"}}, Link: w, Fanout: 2},
			Policy: warned(enforce.Warn{For: time.Hour}), Now: time.Now, Events: w, ActUnrecorded: true,
		}}
		r := &running{t: t, queue: queue}
		said := make(chan string, 2)
		go func() {
			at(9)
			w.change("b", "", func(h *wakefulHost) { h.takes = time.Minute })
			at(31)
			w.starts("a", 5)
			at(1)
			said <- r.do(operator.Action{Kind: operator.Terminate, Host: "b", PID: 3, Start: 1, User: "alice"})
			said <- r.do(operator.Action{Kind: operator.Terminate, Host: "a", PID: 5, Start: 1, User: "alice"})
		}()
		err := controller.Loop(t.Context(), c, controller.Schedule{Interval: 10 * time.Second, Cycles: 2, Actions: queue}, func(controller.Cycle) error { return nil })
		require.NoError(t, err)
		require.Equal(t, "unable: what is known of the host is from 41s ago", <-said)
		require.Contains(t, <-said, "Terminating process 5")
		time.Sleep(time.Minute)
	})
}

// An order that is under way is not sent again, by the operator or by a rule, and its
// outcome comes as an event.
func TestTwoOperatorsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := visited()
		h.takes = 25 * time.Second
		r := run(t, h, func(c *controller.Controller) {
			c.Policy = constant{MaxDevices: new(0)} // a rule wants the same
			c.ActUnrecorded = true
		})
		defer func() { r.stop() }()
		require.Equal(t, 1, r.sent(), "by the rule")
		require.Equal(t, "unable: an order about it is under way already", r.do(takeBobs))
		time.Sleep(26 * time.Second)
		h.mu.Lock()
		h.snapshot.Devices = []snapshot.Device{{Index: 0}, {Index: 1}}
		h.snapshot.Processes = slices.Clone(h.snapshot.Processes)
		h.snapshot.Processes[0].EID = ""
		h.mu.Unlock()
		time.Sleep(14*time.Second + time.Millisecond)
		synctest.Wait()
		before := r.sent()
		answers := make(chan string, 2)
		for range 2 {
			go func() { answers <- r.do(endBobs) }()
		}
		got := []string{<-answers, <-answers}
		require.ElementsMatch(t, []string{
			"unable: an order about it is under way already",
			"Terminating process 5 from environment N/A that is running on GPU(s) 0: under way. An event says what came of it.",
		}, got)
		require.Equal(t, before+1, r.sent())
		time.Sleep(30 * time.Second)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		var outcomes, asked int
		for _, e := range r.events {
			if e.Kind == enforce.EventOutcome && len(e.Findings) == 0 {
				outcomes++
			}
			if e.Kind == controller.EventOperator {
				asked++
				require.Contains(t, e.Text, "Requested by alice (uid 1000), as root: it was asked for")
			}
		}
		require.Equal(t, 1, outcomes)
		require.Equal(t, 1, asked)
	})
}
