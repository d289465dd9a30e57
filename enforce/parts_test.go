package enforce_test

import (
	"reflect"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
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

// underWay are the reports that hosts are still carrying out: about half of those of a plan.
func underWay(plan enforce.Plan, minute int) (list []enforce.HostReport) {
	for _, r := range plan.Reports {
		if (len(r.Host)+minute+int(r.Host[len(r.Host)-1]))%2 == 0 {
			list = append(list, r)
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
	for minute := range 4 {
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
	for seed := range cases(30) {
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
