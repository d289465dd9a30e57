package controller_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func cycleOf(ctx context.Context, c *controller.Controller, policy enforce.Policy) (round controller.Round) {
	c.Policy = policy
	return once(ctx, c)
}

// once asks all hosts, judges and acts once, and waits for the outcome.
func once(ctx context.Context, c *controller.Controller) (round controller.Round) {
	_ = controller.Loop(ctx, c, controller.LoopOptions{}, func(done controller.Round) error { round = done; return nil })
	return round
}

// controllerOf is a controller of hosts that a Link leads to.
func controllerOf(link controller.Link, policy enforce.Policy, names ...string) *controller.Controller {
	c := &controller.Controller{Options: controller.Options{Survey: controller.Survey{Link: link, Fanout: len(names)}, Policy: policy, Now: time.Now}}
	for _, name := range names {
		c.Hosts = append(c.Hosts, remote.Host{Name: name})
	}
	return c
}

func recordsOf(t *testing.T, path string, kind audit.RecordKind) (list []audit.Record) {
	t.Helper()
	_, err := audit.Scan(path, func(r *audit.Record) error {
		if r.Kind == kind {
			list = append(list, *r)
		}
		return nil
	})
	require.NoError(t, err)
	return list
}

func loopOf(ctx context.Context, c *controller.Controller, policy enforce.Policy, s controller.LoopOptions, each func(controller.Round) error) error {
	c.Policy = policy
	return controller.Loop(ctx, c, s, each)
}

// ticks runs a loop for so many ticks.
func ticks(t *testing.T, c *controller.Controller, interval time.Duration, n int) {
	t.Helper()
	require.NoError(t, controller.Loop(t.Context(), c, controller.LoopOptions{Interval: interval, Cycles: n}, shown))
}

// shown is how a cycle is shown where that doesn't matter.
func shown(controller.Round) error { return nil }

// carriedOut are the outcomes at a host that carries out all of an order.
func carriedOut(o order.Order) (done agent.Execution) {
	for _, d := range o.Detach {
		done.Outcomes = append(done.Outcomes, order.Outcome{Device: d.Device, EID: d.Environment.EID, Status: order.StatusDetached})
	}
	for _, x := range o.Terminate {
		done.Outcomes = append(done.Outcomes, order.Outcome{PID: x.Process.PID, Status: order.StatusTerminated})
	}
	return done
}

// A host that makes up findings, again in every cycle, does not push the history of
// the others out of the log; what is done because of a finding is always recorded.
func TestTheRecordOfAHostIsBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		warn    enforce.Warn
		records int
		last    string
	}{
		"they wait":         {enforce.Warn{Cycles: 3}, safety.MaxEventsPerHost + 1, "and 744 more findings on this host"},
		"they are acted on": {enforce.Warn{}, 1000, "Process 1099 is not running in a GPU environment (uid 1001)"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			cycleOf(t.Context(), sameUser(t, map[string]int{"a": 1000}).controller(&audit.Log{Path: path}), strict{warn: tt.warn})
			records := recordsOf(t, path, audit.KindFinding)
			require.Len(t, records, tt.records)
			require.Equal(t, tt.last, records[len(records)-1].Text)
		})
	}
}

// durations are how long cycles took: of a soak of days the latest ones.
type durations struct {
	latest  [1000]time.Duration
	count   int
	longest time.Duration
}

func (d *durations) add(took time.Duration) {
	d.latest[d.count%len(d.latest)] = took
	d.count++
	d.longest = max(d.longest, took)
}

func (d *durations) median() time.Duration {
	sorted := slices.Sorted(slices.Values(d.latest[:min(d.count, len(d.latest))]))
	return sorted[len(sorted)/2]
}

// logHeap shows whether anything grows while the soak goes on.
func (s *soak) logHeap() {
	s.mu.Lock()
	violations := s.nextPID - firstPID
	s.mu.Unlock()
	s.t.Logf("after %d violations %+v", violations, resources(s.t))
}

// usage is what this process holds.
type usage struct {
	goroutines, descriptors int
	heap                    uint64
}

func resources(t *testing.T) usage {
	listener := proctest.Try(net.Listen("tcp", "127.0.0.1:0")).OK(t) // the runtime's own descriptors come with the first use of the network
	require.NoError(t, listener.Close())
	entries := proctest.Try(os.ReadDir("/proc/self/fd")).OK(t)
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{goroutines: runtime.NumGoroutine(), descriptors: len(entries), heap: m.HeapAlloc}
}

// same requires that all was given back.
func (u usage) same(t *testing.T) {
	now := resources(t)
	for deadline := time.Now().Add(10 * time.Second); now.goroutines > u.goroutines || now.descriptors > u.descriptors; now = resources(t) {
		require.True(t, time.Now().Before(deadline), "before %+v, after %+v", u, now)
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("before %+v, after %+v", u, now)
	const slack = 8 << 20 // what packages keep for ever, such as pools
	require.LessOrEqual(t, now.heap, u.heap+slack)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// controllerOfFleet is one of the first n hosts.
func controllerOfFleet(f *genvhost.Fleet, n int) *controller.Controller {
	return &controller.Controller{Options: controller.Options{Survey: controller.Survey{Hosts: f.Names[:n], Link: f.Streams, Fanout: n}, Now: time.Now}}
}

// plain is what a Link has that only takes snapshots and carries out orders.
type plain struct{}

func (plain) Notify(context.Context, remote.Host, []agent.Message) ([]agent.Receipt, error) {
	return nil, agent.ErrCannotNotify
}

func (plain) Guard(context.Context, remote.Host, agent.GuardRequest) (agent.GuardAnswer, error) {
	return agent.GuardAnswer{}, agent.ErrCannotGuard
}
func (plain) About(remote.Host) agent.About { return agent.About{} }

// wakeful is a Link to hosts that report events. It is for a bubble of synctest.
type wakeful struct {
	plain
	begun time.Time

	mu     sync.Mutex
	hosts  map[string]*wakefulHost
	ended  []string // "SECONDS HOST PID", processes that were ended
	orders []string // their IDs
}

type wakefulHost struct {
	boot      string
	processes []snapshot.PID
	attached  bool // a user of an environment with a device
	woke      chan struct{}
	always    bool          // it wakes at once, for ever
	changes   bool          // and shows another snapshot each time
	takes     time.Duration // a snapshot
	ignores   time.Duration // SIGTERM
	quiet     bool          // it doesn't wake when a process ends
	lost      error
	deaf      bool                 // its events end
	kind      snapshot.ProcessType // of its processes, which draw on a screen if they aren't compute processes
	asked     int
	looks     []time.Duration // when it was asked, since the beginning
	last      *snapshot.Snapshot
}

func newWakeful(names ...string) *wakeful {
	w := &wakeful{begun: time.Now(), hosts: make(map[string]*wakefulHost)}
	for _, name := range names {
		w.hosts[name] = &wakefulHost{boot: "1", kind: snapshot.TypeCompute, woke: make(chan struct{}, 1)}
	}
	return w
}

// change changes a host, and wakes the one that wakes.
func (w *wakeful) change(name, wakes string, change func(*wakefulHost)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w.hosts[name])
	w.hosts[name].last = nil
	if wakes != "" {
		select {
		case w.hosts[wakes].woke <- struct{}{}:
		default:
		}
	}
}

// starts starts a process on a host, which wakes.
func (w *wakeful) starts(name string, pid snapshot.PID) {
	w.change(name, name, func(h *wakefulHost) { h.processes = append(h.processes, pid) })
}

func (w *wakeful) Await(ctx context.Context, h remote.Host, done func(bool, error)) {
	go func() { done(w.wait(ctx, h)) }()
}

func (w *wakeful) wait(ctx context.Context, h remote.Host) (bool, error) {
	w.mu.Lock()
	host := w.hosts[h.Name]
	always := host.always
	w.mu.Unlock()
	if always {
		return true, nil
	}
	select {
	case <-host.woke:
		w.mu.Lock()
		defer w.mu.Unlock()
		if host.deaf {
			return false, agent.ErrNoEvents
		}
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

func (w *wakeful) Snapshot(_ context.Context, h remote.Host) (*snapshot.Snapshot, error) {
	w.mu.Lock()
	host := w.hosts[h.Name]
	takes := host.takes
	host.looks = append(host.looks, time.Since(w.begun))
	w.mu.Unlock()
	time.Sleep(takes)
	w.mu.Lock()
	defer w.mu.Unlock()
	host.asked++
	if host.lost != nil {
		return nil, host.lost
	}
	if host.last != nil && !host.changes {
		return host.last, nil
	}
	uid := snapshot.UID(1001)
	s := &snapshot.Snapshot{BootID: host.boot, Devices: []snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(100), Display: new(true)}}}
	if host.attached {
		s.Environments = []snapshot.Environment{{EID: "7", UID: uid, Username: "alice"}}
		s.Devices[0].Attachments = []snapshot.Attachment{{EID: "7"}}
	}
	for _, pid := range host.processes {
		s.Processes = append(s.Processes, snapshot.Process{PID: pid, Start: 1, UID: &uid, Username: "alice", Usage: []snapshot.DeviceUsage{{Index: 0, Type: host.kind}}})
	}
	host.last = s
	return s, nil
}

func (w *wakeful) Execute(_ context.Context, h remote.Host, o order.Order) (agent.Execution, error) {
	w.mu.Lock()
	host, now := w.hosts[h.Name], time.Since(w.begun).Seconds()
	w.orders = append(w.orders, o.ID)
	for _, d := range o.Detach {
		w.ended = append(w.ended, fmt.Sprintf("%.0f %s detach %d", now, h.Name, d.Device))
		host.attached, host.last = false, nil
	}
	for _, x := range o.Terminate {
		w.ended = append(w.ended, fmt.Sprintf("%.0f %s %d", now, h.Name, x.Process.PID))
	}
	w.mu.Unlock()
	time.Sleep(host.ignores)
	wakes := h.Name
	if host.quiet {
		wakes = ""
	}
	for _, x := range o.Terminate {
		w.change(h.Name, wakes, func(host *wakefulHost) {
			host.processes = slices.DeleteFunc(host.processes, func(pid snapshot.PID) bool { return pid == x.Process.PID })
		})
	}
	return carriedOut(o), nil
}
