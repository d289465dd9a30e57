package controller_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// soakTime is how long to soak: GENV_SOAK, or no more than to see that the test
// itself works, and then no times are checked.
func soakTime(t *testing.T) (d time.Duration, long bool) {
	text := os.Getenv("GENV_SOAK")
	if text == "" {
		return 3 * time.Second, false
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err, "GENV_SOAK is a duration such as 2m")
	return d, true
}

const (
	soakHosts    = 100
	steadyHosts  = 10 // of these, how many never fail
	soakInterval = 200 * time.Millisecond
	// A cycle waits for hosts that froze since the one before, and then for
	// those that freeze over an order: twice this is how late others may be.
	soakTimeout = 300 * time.Millisecond

	firstPID snapshot.PID = 10_000 // processes that violate have higher ones
)

// soak is a fleet that flaps, with violations that come at random. Its records are checked and emptied each cycle, so that
// the heap is the product's.
type soak struct {
	*genvhost.Fleet
	t     *testing.T
	hosts []*genvhost.Host

	mu      sync.Mutex
	random  *rand.Rand
	guilty  []map[snapshot.PID]bool // by host: processes that are still to be ended
	nextPID snapshot.PID
	faults  map[string]int
	ended   int // processes
	asked   [steadyHosts]time.Time
	late    time.Duration
}

func openSoak(t *testing.T, seed uint64, long bool) *soak {
	size, timeout := soakHosts, soakTimeout
	if !long { // no times are checked
		size, timeout = 2*steadyHosts, time.Second
	}
	s := &soak{t: t, random: rand.New(rand.NewPCG(seed, 1)), nextPID: firstPID, faults: map[string]int{}}
	var handlers []inprocess.Handler
	for range size {
		h := genvhost.New(honest())
		s.hosts, handlers = append(s.hosts, h), append(handlers, h)
		s.guilty = append(s.guilty, map[snapshot.PID]bool{})
	}
	s.Fleet = genvhost.Start(t, timeout, handlers...)
	s.Streams.Fanout = 64
	return s
}

// honest is a host without violations.
func honest() *snapshot.Snapshot {
	s := genvhost.Busy(2)
	at := snapshot.DateOf(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	s.Environments = []snapshot.Environment{{EID: "7", UID: 1000, Username: "alice", Creation: at, PIDs: []snapshot.PID{7}}}
	for i := range s.Devices {
		s.Devices[i].Attachments = []snapshot.Attachment{{EID: "7", Time: at}}
		s.Processes[i].EID = "7"
	}
	return s
}

// maxGuilty bounds what waits on a host that fails for long.
const maxGuilty = 20

// violate starts a process on a host that is in no environment.
func (s *soak) violate() {
	s.mu.Lock()
	host := s.random.IntN(len(s.hosts))
	if len(s.guilty[host]) >= maxGuilty {
		s.mu.Unlock()
		return
	}
	s.nextPID++
	p := snapshot.Process{PID: s.nextPID, Start: snapshot.StartTime(s.nextPID), Usage: []snapshot.DeviceUsage{{Index: 1, Memory: snapshot.MiB(1)}}}
	s.guilty[host][p.PID] = true
	s.mu.Unlock()
	s.hosts[host].Change(func(state *snapshot.Snapshot) { state.Processes = append(state.Processes, p) })
}

// flap makes a host fail in some way for some time, or heals it.
func (s *soak) flap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	host := steadyHosts + s.random.IntN(len(s.hosts)-steadyHosts)
	n := s.random.Int64N
	kinds := []struct {
		name  string
		fault inprocess.Faults
	}{
		{"down", inprocess.Faults{Down: true}},
		{"silent", inprocess.Faults{Silent: true}},
		{"drop", inprocess.Faults{BreakAfter: new(n(4000))}},
		{"freeze", inprocess.Faults{BreakAfter: new(n(4000)), Freezes: true}},
		{"slow start", inprocess.Faults{Delay: time.Duration(n(300)) * time.Millisecond}},
		{"noise", inprocess.Faults{Before: "Welcome\n\x00\xffgnv1"}},
		{"stderr flood", inprocess.Faults{FloodStderr: 1 << 20}},
		{"stdout flood", inprocess.Faults{Flood: 2 << 20}},
		{"no exit status", inprocess.Faults{NoExit: true}},
	}
	kind := kinds[s.random.IntN(len(kinds))]
	if s.random.IntN(2) == 0 {
		kind.name, kind.fault = "healed", inprocess.Faults{}
	}
	_ = s.Hosts()[host].Inject(kind.fault) // a port that is taken heals later
	s.faults[kind.name]++
	behaviors := []genvhost.Behavior{
		{},
		{Freeze: true},
		{Wait: time.Duration(n(600)) * time.Millisecond},
		{Damage: genvhost.Silent},
		{Damage: genvhost.Cut},
		{Damage: genvhost.Hangup},
		{Damage: genvhost.Garbled},
		{Damage: genvhost.Noise},
		{Damage: genvhost.Double},
	}
	which := s.random.IntN(len(behaviors))
	s.faults[fmt.Sprintf("behavior %d", which)]++
	once := atomic.Bool{}
	s.hosts[host].Behave(func(string) genvhost.Behavior {
		if once.Swap(true) {
			return genvhost.Behavior{}
		}
		return behaviors[which]
	})
}

// every calls f until ctx ends.
func every(ctx context.Context, d time.Duration, f func()) {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}

func TestSoakFlappingFleet(t *testing.T) {
	length, long := soakTime(t)
	before := resources(t)
	s := openSoak(t, 20261120, long)
	c := controllerOfFleet(s.Fleet, len(s.hosts))
	for begun := time.Now(); len(c.Collect(t.Context()).Failed()) > 0; { // the logins, which take longer than a question may
		require.Less(t, time.Since(begun), settleTime)
	}
	for _, h := range s.hosts[:steadyHosts] {
		h.KeepTimes()
	}
	policy := constant{NonEnvProcesses: true, EnvDevices: true, Grace: 10 * time.Millisecond}

	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	var work sync.WaitGroup
	work.Go(func() { every(ctx, 50*time.Millisecond, s.flap) })
	work.Go(func() { every(ctx, 25*time.Millisecond, s.violate) })
	if long {
		work.Go(func() { every(ctx, time.Minute, s.logHeap) })
	}
	var took durations
	failures := map[remote.Class]int{}
	schedule := controller.LoopOptions{Interval: soakInterval}
	require.NoError(t, loopOf(ctx, c, policy, schedule, func(round controller.Round) error {
		took.add(round.Took)
		for _, h := range round.Cluster.Failed() {
			failures[remote.ClassOf(h.Err)]++
		}
		s.judge()
		s.lateness()
		return nil
	}))
	work.Wait()
	s.settle(c, policy)
	s.judge()
	for i, left := range s.guilty {
		require.Empty(t, left, "host %d", i)
	}
	require.Equal(t, int(s.nextPID-firstPID), s.ended)
	t.Logf("%d violations on %d hosts, each ended once, and nothing else was", s.ended, len(s.hosts))
	t.Logf("%d cycles, median of the last ones %v, longest %v; failures by class %v; faults %v", took.count, took.median(), took.longest, failures, s.faults)
	t.Logf("a host that never fails was asked at most %v late", s.late)
	if long {
		require.LessOrEqual(t, s.late, time.Second)
	}
	s.Streams.Close()
	s.Client.Close()
	s.Close()
	s.hosts = nil
	before.same(t)
}

// lateness notes how much later than the interval a healthy host was asked, at most.
func (s *soak) lateness() {
	for i, h := range s.hosts[:steadyHosts] {
		for _, at := range h.TakeAnswered() {
			if !s.asked[i].IsZero() {
				s.late = max(s.late, at.Sub(s.asked[i])-soakInterval)
			}
			s.asked[i] = at
		}
	}
}

// settleTime is longer than the longest pause after failed logins.
const settleTime = 3 * time.Minute

// settle heals the fleet and goes on until every violation is ended: whatever
// became of single orders, nothing is forgotten.
func (s *soak) settle(c *controller.Controller, policy enforce.Policy) {
	for i, h := range s.hosts {
		require.NoError(s.t, s.Hosts()[i].Inject(inprocess.Faults{}))
		h.Behave(func(string) genvhost.Behavior { return genvhost.Behavior{} })
	}
	var last controller.Round
	for deadline := time.Now().Add(settleTime); ; time.Sleep(soakInterval) {
		last = cycleOf(s.t.Context(), c, policy)
		if len(last.Cluster.Failed()) == 0 && len(last.Plan.Orders) == 0 {
			break
		}
		require.True(s.t, time.Now().Before(deadline), "still to do %v, still failing: %v", last.Plan.Orders, last.Cluster.Failed())
	}
	for _, h := range last.Cluster.Answered() {
		require.Len(s.t, h.Snapshot.Processes, 2, "the honest ones")
	}
}

// judge requires of what the hosts have carried out since it was last called
// that each got only orders for violations, and each order once.
func (s *soak) judge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, h := range s.hosts {
		for _, item := range h.TakeActions() {
			pid := item.Outcome.PID
			require.Equal(s.t, order.StatusTerminated, item.Outcome.Status, "host %d: %+v", i, item)
			require.True(s.t, s.guilty[i][pid], "host %d got an order on process %d, which violates no rule or was ended before", i, pid)
			require.EqualValues(s.t, pid, item.Judged.Start)
			delete(s.guilty[i], pid)
			s.ended++
		}
	}
}

// TestSoakDeadHosts: dead hosts do not delay the others.
func TestSoakDeadHosts(t *testing.T) {
	if _, long := soakTime(t); !long {
		t.Skip("this measures times: make soak")
	}
	const timeout = 2 * time.Second
	for _, dead := range []int{0, 1, soakHosts / 10} {
		var handlers []inprocess.Handler
		var hosts []*genvhost.Host
		for range soakHosts {
			h := genvhost.New(honest())
			hosts, handlers = append(hosts, h), append(handlers, h)
		}
		f := genvhost.Start(t, timeout, handlers...)
		f.Streams.Fanout = 64
		c := controllerOfFleet(f, soakHosts)
		require.Len(t, c.Collect(t.Context()).Answered(), soakHosts)
		for _, h := range hosts {
			h.KeepTimes()
		}
		for i := range dead {
			hosts[i].Behave(func(string) genvhost.Behavior { return genvhost.Behavior{Freeze: true} })
			require.NoError(t, f.Hosts()[i].Inject(inprocess.Faults{Silent: true}))
		}
		begun := time.Now()
		answered := c.Collect(t.Context()).Answered()
		took := time.Since(begun)
		var last time.Duration
		for _, h := range hosts[dead:] {
			times := h.TakeAnswered()
			require.NotEmpty(t, times)
			last = max(last, times[0].Sub(begun))
		}
		second := time.Now()
		require.Len(t, c.Collect(t.Context()).Answered(), soakHosts-dead)
		t.Logf("%d of %d hosts dead: the last of the others was asked after %v, the cycle took %v, the next one %v",
			dead, soakHosts, last, took, time.Since(second))
		require.Len(t, answered, soakHosts-dead)
		require.LessOrEqual(t, took, timeout+time.Second)
		require.LessOrEqual(t, last, time.Second)
		require.LessOrEqual(t, time.Since(second), time.Second, "dead hosts are looked for in the background")
	}
}
