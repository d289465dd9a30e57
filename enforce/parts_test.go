package enforce_test

import (
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// newFleet is a world with caps, more hosts and processes that can't be ended.
func newFleet(seed uint64) *world {
	w := newWorld(seed)
	for i := range 4 {
		w.cluster.Hosts = append(w.cluster.Hosts, w.host(snapshot.Hostname("more"+itoa(i))))
	}
	w.policy.fleet.Limits = safety.Limits{}
	if w.policy.all.MaxDevices == nil && w.policy.all.MaxMemory == nil && w.policy.all.MaxEnvs == nil {
		w.policy.all.MaxDevices = ptr(w.IntN(9))
	}
	return w
}

// stuck are some processes of hosts that can't be ended.
func (w *world) stuck() map[snapshot.ProcessKey]string {
	list := make(map[snapshot.ProcessKey]string)
	for _, h := range w.cluster.Answered() {
		for _, p := range h.Snapshot.Processes {
			if w.IntN(9) == 0 {
				list[snapshot.ProcessKey{Host: h.Name, PID: p.PID, Start: p.Start}] = "it ignores SIGTERM"
			}
		}
	}
	return list
}

// underWay are the orders that hosts are still carrying out: about half of those of a plan.
func underWay(plan enforce.Plan, minute int) (list []order.OfHost) {
	for _, o := range plan.Orders {
		if (len(o.Host)+minute+int(o.Host[len(o.Host)-1]))%2 == 0 {
			list = append(list, o)
		}
	}
	return list
}

// newLargeFleet is a world of so many hosts that several goroutines judge them. Of most users
// there is little, here or there.
func newLargeFleet(seed uint64) *world {
	w := newFleet(seed)
	for i := range 900 {
		h := w.host(snapshot.Hostname("large" + itoa(i)))
		if h.Snapshot != nil {
			w.rename(h.Snapshot)
		}
		w.cluster.Hosts = append(w.cluster.Hosts, h)
	}
	return w
}

// rename gives the environments and processes of a host other users, among whom many are.
func (w *world) rename(s *snapshot.Snapshot) {
	user := func() snapshot.Username { return snapshot.Username("user" + itoa(w.IntN(2000))) }
	for i := range s.Environments {
		if e := &s.Environments[i]; e.Username != "" && w.coin() {
			e.Username = user()
		}
	}
	for i := range s.Processes {
		if p := &s.Processes[i]; p.UID != nil && *p.UID != 0 && w.coin() {
			p.Username = user()
		}
	}
}

// cycles is everything that Judge returns in some cycles.
func (w *world) cycles() (all []any) {
	var memory enforce.Memory
	memory.Stuck = w.stuckAlways()
	for minute := range 3 {
		plan, next, events := enforce.Judge(w.policy, w.cluster, memory, noon(minute))
		next.UnderWay = underWay(plan, minute)
		all = append(all, plan, next, events)
		memory = next
	}
	return all
}

// stuckAlways is stuck with the same processes whenever it is asked.
func (w *world) stuckAlways() map[snapshot.ProcessKey]string {
	again := newWorld(99)
	again.cluster = w.cluster
	return again.stuck()
}

// TestPropertyTheNumberOfGoroutinesChangesNothing: neither what is found nor its order.
func TestPropertyTheNumberOfGoroutinesChangesNothing(t *testing.T) {
	processors := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(processors)
	findings, capped := 0, 0
	for seed := range proctest.Cases(100) {
		w := newLargeFleet(seed)
		runtime.GOMAXPROCS(1)
		alone := w.cycles()
		runtime.GOMAXPROCS(3)
		together := w.cycles()
		for i := range alone {
			if !reflect.DeepEqual(alone[i], together[i]) { // require.Equal would print all of it
				require.FailNow(t, "differs", "world %d: cycle %d, %T", seed, i/3, alone[i])
			}
		}
		for _, f := range alone[0].(enforce.Plan).Findings {
			findings++
			if f.Count != nil {
				capped++
			}
		}
	}
	require.Greater(t, findings, 1000)
	require.Greater(t, capped, 100)
}

// fleet is a cluster as large as any that is known: hosts of 8 devices, 8
// environments and 12 processes, with a violation of each rule on every tenth.
func fleet(hosts int) snapshot.Cluster {
	var c snapshot.Cluster
	at := snapshot.DateOf(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	for h := range hosts {
		s := &snapshot.Snapshot{}
		for i := range 8 {
			eid := snapshot.EnvID(fmt.Sprint(1000 + i))
			capacity := snapshot.MiB(10000)
			s.Environments = append(s.Environments, snapshot.Environment{
				EID: eid, UID: snapshot.UID(1000 + i), Username: snapshot.Username(fmt.Sprintf("user%d", (h*8+i)%500)),
				Config: snapshot.EnvConfig{GPUMemory: capacity}, PIDs: []snapshot.PID{snapshot.PID(100 + i)}, Creation: at,
			})
			s.Devices = append(s.Devices, snapshot.Device{
				Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(81559),
				Attachments: []snapshot.Attachment{{EID: eid, GPUMemory: capacity, Time: at}},
			})
		}
		for i := range 12 {
			uid := snapshot.UID(1000 + i%8)
			p := snapshot.Process{PID: snapshot.PID(5000 + i), EID: snapshot.EnvID(fmt.Sprint(1000 + i%8)), UID: &uid}
			p.Usage = []snapshot.DeviceUsage{{Index: snapshot.DeviceIndex(i % 8), Memory: snapshot.MiB(4000)}}
			if h%10 == 0 && i < 3 {
				p.Usage[0].Index, p.EID = snapshot.DeviceIndex(7), []snapshot.EnvID{"", "1000", "1007"}[i]
				p.Usage[0].Memory = snapshot.MiB(20000)
			}
			s.Processes = append(s.Processes, p)
		}
		c.Hosts = append(c.Hosts, snapshot.Host{Name: snapshot.Hostname(fmt.Sprintf("gpu-%05d", h)), Snapshot: s})
	}
	return c
}

// shared is a policy that answers each query with the same settings, as one from a file does.
type shared struct {
	stated
	settings *enforce.Settings
}

func (s shared) Settings(enforce.Query) *enforce.Settings { return s.settings }

// BenchmarkJudge runs all rules over 10,000 hosts. MB-in-use is the heap
// after a collection with the cluster and the plan alive.
func BenchmarkJudge(b *testing.B) {
	cluster := fleet(10_000)
	limit := 150
	policy := shared{settings: &enforce.Settings{NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, MaxDevices: &limit}}
	b.ReportAllocs()
	var plan enforce.Plan
	for b.Loop() {
		plan = evaluate(policy, cluster, time.Time{})
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys)/1e6, "MB-from-system")
	b.ReportMetric(float64(len(plan.Findings)), "findings")
	runtime.KeepAlive(cluster)
}

// crowded is a host that says of itself as much as is read of one: n
// environments, all attached to one device, with a process each.
func crowded(n int) snapshot.Cluster {
	at := snapshot.DateOf(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	uid := snapshot.UID(1001)
	s := &snapshot.Snapshot{Devices: []snapshot.Device{{TotalMemory: snapshot.MiB(81559)}}}
	for i := range n {
		eid := snapshot.EnvID(fmt.Sprint(1000 + i))
		s.Environments = append(s.Environments, snapshot.Environment{EID: eid, UID: uid, Username: "alice", Creation: at})
		s.Devices[0].Attachments = append(s.Devices[0].Attachments, snapshot.Attachment{EID: eid, Time: at})
		s.Processes = append(s.Processes, snapshot.Process{
			PID: snapshot.PID(5000 + i), Start: 1, EID: eid, UID: &uid, Usage: []snapshot.DeviceUsage{{Memory: snapshot.MiB(4)}},
		})
	}
	return snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}
}

// BenchmarkCrowded judges a single host that lies as much as it can, by every
// rule, and finds out which users to notify: it must not delay the others.
func BenchmarkCrowded(b *testing.B) {
	cluster := crowded(40_000)
	policy := stated{all: enforce.Settings{
		NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, Idle: &enforce.Idle{After: time.Hour},
		MaxDevices: ptr(0), MaxMemory: ptr(memory(1)), MaxEnvs: ptr(1), Warn: enforce.Warn{Cycles: 1},
	}}
	for b.Loop() {
		plan := evaluate(policy, cluster, noon(0))
		owners := notify.NewOwners(cluster)
		for i := range plan.Findings {
			notify.Notifications(&plan.Findings[i], owners, noon(0))
		}
	}
}
