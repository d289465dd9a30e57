package controller_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// cycleOf runs one cycle with a policy.
func cycleOf(ctx context.Context, c *controller.Controller, policy enforce.Policy) (cycle controller.Cycle) {
	c.Policy = policy
	return once(ctx, c)
}

// once asks all hosts, judges and acts once, and waits for the outcome.
func once(ctx context.Context, c *controller.Controller) (cycle controller.Cycle) {
	_ = controller.Loop(ctx, c, controller.Schedule{}, func(done controller.Cycle) error { cycle = done; return nil })
	return cycle
}

// loopOf runs a loop with a policy.
func loopOf(ctx context.Context, c *controller.Controller, policy enforce.Policy, s controller.Schedule, each func(controller.Cycle) error) error {
	c.Policy = policy
	return controller.Loop(ctx, c, s, each)
}

// terminations are processes to end, each with start time 1.
func terminations(pids ...snapshot.PID) []order.Termination {
	var list []order.Termination
	for _, pid := range pids {
		list = append(list, order.Termination{Process: snapshot.Process{PID: pid, Start: 1}})
	}
	return list
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
			var texts []string
			_, err := audit.Scan(path, func(r *audit.Record) error {
				if r.Kind == audit.KindFinding {
					texts = append(texts, r.Text)
				}
				return nil
			})
			require.NoError(t, err)
			require.Len(t, texts, tt.records)
			require.Equal(t, tt.last, texts[len(texts)-1])
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
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the runtime's own descriptors come with the first use of the network
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
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

// fleet is hosts in this process, and a Link to them over SSH.
type fleet struct {
	*inprocess.Fleet
	client  *sshclient.Client
	streams *agent.Pool
	hosts   []remote.Host
}

func startFleet(t *testing.T, timeout time.Duration, handlers ...inprocess.Handler) *fleet {
	var servers []*inprocess.Server
	f := &fleet{}
	for i, h := range handlers {
		name := fmt.Sprintf("h%d", i)
		servers = append(servers, &inprocess.Server{Name: name, Address: fmt.Sprintf("127.93.%d.%d", i/250, i%250+1), Handler: h})
		f.hosts = append(f.hosts, remote.Host{Name: name})
	}
	var err error
	f.Fleet, err = inprocess.Start(t.TempDir(), 0, servers...)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	f.client, err = sshclient.New(sshclient.Options{ConfigFile: f.SSHConfig(), CommandTimeout: timeout})
	require.NoError(t, err)
	t.Cleanup(f.client.Close)
	f.streams = &agent.Pool{Start: agent.StartWith(f.client.Start), Network: f.client, Timeout: timeout, Log: zerolog.Nop()}
	t.Cleanup(f.streams.Close)
	return f
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

// busy is a host with a process in no environment on each of n devices.
func busy(n int) *snapshot.Snapshot {
	s := &snapshot.Snapshot{BootID: "b", Environments: []snapshot.Environment{}}
	for i := range n {
		index := snapshot.DeviceIndex(i)
		s.Devices = append(s.Devices, snapshot.Device{Index: index, TotalMemory: snapshot.MiB(81559), Attachments: []snapshot.Attachment{}})
		s.Processes = append(s.Processes, snapshot.Process{
			PID: snapshot.PID(1000 + i), Start: snapshot.StartTime(77 + i),
			Usage: []snapshot.DeviceUsage{{Index: index, Memory: snapshot.MiB(10)}},
		})
	}
	return s
}
