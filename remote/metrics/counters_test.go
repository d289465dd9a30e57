package metrics_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// holders is a host on which each user has an environment and so many devices.
func holders(name snapshot.Hostname, users ...string) snapshot.Host {
	s := &snapshot.Snapshot{}
	for i, user := range users {
		eid := snapshot.EnvID(fmt.Sprint(i))
		s.Environments = append(s.Environments, snapshot.Environment{EID: eid, UID: snapshot.UID(1000 + i), Username: snapshot.Username(user)})
		s.Devices = append(s.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), Attachments: attached(eid)})
	}
	return snapshot.Host{Name: name, Snapshot: s}
}

func failed(name snapshot.Hostname) snapshot.Host {
	return snapshot.Host{Name: name, Err: errors.New("no answer")}
}

// cycleAt is a cycle some seconds after noon.
func cycleAt(seconds int, hosts ...snapshot.Host) *controller.Round {
	return &controller.Round{Start: noon.Add(time.Duration(seconds) * time.Second), Took: time.Second, Cluster: snapshot.Cluster{Hosts: hosts}}
}

func gpuSeconds(c *metrics.Counters) string {
	var b strings.Builder
	for line := range strings.Lines(samples(c.Users(nil))) {
		b.WriteString(strings.TrimPrefix(line, "user_gpu_seconds_total"))
	}
	return b.String()
}

func TestGPUSeconds(t *testing.T) {
	alice, aliceTwice, bob := holders("a", "alice"), holders("a", "alice", "alice"), holders("b", "bob")
	for name, row := range map[string]struct {
		cycles []*controller.Round
		want   string
	}{
		"nothing before the second look": {[]*controller.Round{cycleAt(0, alice)}, `{user="alice"} 0`},
		"from look to look":              {[]*controller.Round{cycleAt(0, alice), cycleAt(10, alice), cycleAt(20, alice)}, `{user="alice"} 20`},
		"two devices":                    {[]*controller.Round{cycleAt(0, aliceTwice), cycleAt(10, aliceTwice)}, `{user="alice"} 20`},
		"two hosts":                      {[]*controller.Round{cycleAt(0, alice, bob), cycleAt(10, alice, bob)}, `{user="alice"} 10|{user="bob"} 10`},
		"detached":                       {[]*controller.Round{cycleAt(0, alice), cycleAt(10, holders("a")), cycleAt(20, holders("a"))}, `{user="alice"} 10`},
		"a host that misses a cycle":     {[]*controller.Round{cycleAt(0, alice), cycleAt(10, failed("a")), cycleAt(20, alice)}, `{user="alice"} 20`},
		"a host that was lost":           {[]*controller.Round{cycleAt(0, alice), cycleAt(10, failed("a")), cycleAt(3600, alice), cycleAt(3610, alice)}, `{user="alice"} 10`},
		"a machine that slept":           {[]*controller.Round{cycleAt(0, alice), cycleAt(3600, alice)}, `{user="alice"} 0`},
		"a clock that is set back":       {[]*controller.Round{cycleAt(3600, alice), cycleAt(0, alice), cycleAt(10, alice)}, `{user="alice"} 10`},
		"a cycle that was stopped":       {[]*controller.Round{cycleAt(0, alice), {Stopped: true, Start: noon.Add(10 * time.Second), Cluster: snapshot.Cluster{Hosts: []snapshot.Host{alice}}}}, `{user="alice"} 0`},
		"a host that is removed":         {[]*controller.Round{cycleAt(0, alice), cycleAt(10), cycleAt(20, alice)}, `{user="alice"} 0`},
		"an environment that is gone":    {[]*controller.Round{cycleAt(0, orphaned()), cycleAt(10, orphaned())}, ``},
		"hostile names":                  {[]*controller.Round{cycleAt(0, holders("a", "a\"\n\\", strings.Repeat("y", 10<<10)))}, `{user="a\"\n\\"} 0|{user="` + strings.Repeat("y", 64) + `"} 0`},
	} {
		c := metrics.NewCounters(noon, 10*time.Second)
		for _, round := range row.cycles {
			c.Consume(round.AtEnd(), nil)
		}
		require.Equal(t, row.want, strings.ReplaceAll(strings.TrimSuffix(gpuSeconds(c), "\n"), "\n", "|"), name)
	}
}

func orphaned() snapshot.Host {
	h := holders("a", "alice")
	h.Snapshot.Environments = nil
	return h
}

// TestASharedDevice counts for each of its users, once.
func TestASharedDevice(t *testing.T) {
	h := holders("a", "alice", "alice", "bob")
	h.Snapshot.Devices = h.Snapshot.Devices[:1]
	h.Snapshot.Devices[0].Attachments = attached("0", "1", "2")
	c := metrics.NewCounters(noon, 10*time.Second)
	c.Consume(cycleAt(0, h).AtEnd(), nil)
	c.Consume(cycleAt(10, h).AtEnd(), nil)
	require.Equal(t, "{user=\"alice\"} 10\n{user=\"bob\"} 10\n", gpuSeconds(c))
}

// TestNamesThatAHostMakesUp: each cycle has others. Those of other hosts stay apart.
func TestNamesThatAHostMakesUp(t *testing.T) {
	c := metrics.NewCounters(noon, 10*time.Second)
	for i := range 10 {
		var users []string
		for j := range 100 {
			users = append(users, fmt.Sprintf("made-up-%d-%d", i, j))
		}
		c.Consume(cycleAt(10*i, holders("liar", users...), holders("honest", "alice", fmt.Sprint("user", i))).AtEnd(), nil)
	}
	text := gpuSeconds(c)
	require.Equal(t, 256, strings.Count(text, "made-up"))
	require.Contains(t, text, `{user="(other)"} `)
	require.Contains(t, text, `{user="alice"} 90`)
	require.Contains(t, text, `{user="user9"} 0`)
	users := samples(c.Users([]live.FleetUser{{Name: "alice", Attached: 1}, {Name: "made-up-9-8", Attached: 2, Idle: 1}, {Name: "made-up-9-9", Attached: 1}}))
	require.Contains(t, users, "user_devices{user=\"(other)\"} 3\nuser_devices{user=\"alice\"} 1\nuser_idle_devices{user=\"(other)\"} 1\nuser_idle_devices{user=\"alice\"} 0\n")
}

func TestDevicesOfUsers(t *testing.T) {
	c := metrics.NewCounters(noon, 10*time.Second)
	c.Consume(cycleAt(0, holders("a", "alice")).AtEnd(), nil)
	require.Equal(t, `user_devices{user="alice"} 3
user_idle_devices{user="alice"} 2
user_gpu_seconds_total{user="alice"} 0
`, samples(c.Users([]live.FleetUser{{Name: "alice", Attached: 3, Idle: 2}, {Name: "bob", Used: 1}})), "bob has nothing attached")
}

func newOrder() (order.Order, []order.Outcome) {
	process := func(pid snapshot.PID, because ...string) order.Termination {
		return order.Termination{Process: snapshot.Process{PID: pid}, Reasons: order.Reasons{Because: because}}
	}
	o := order.Order{
		Terminate: []order.Termination{process(1, "non-env-processes/a/1/5"), process(2, "idle/a/7/0/x", "non-env-processes/a/2/5"), process(4, "made-up/rule")},
		Detach: []order.Detachment{
			{Device: 0, Environment: snapshot.Environment{EID: "7"}, Reasons: order.Reasons{Because: []string{"max-devices-per-user/bob"}}},
			{Device: 1, Environment: snapshot.Environment{EID: "7"}, Reasons: order.Reasons{Because: []string{"max-devices-per-user/bob"}}},
		},
	}
	return o, []order.Outcome{
		{PID: 1, Status: order.StatusTerminated},
		{PID: 2, Status: order.StatusSurvived},
		{PID: 4, Status: "made up by the host"},
		{PID: 5, Status: order.StatusKilled},
		{Device: 0, EID: "7", Status: order.StatusDetached},
		{Device: 1, EID: "7", Status: order.StatusNotAttached},
	}
}

func TestOutcomes(t *testing.T) {
	c := metrics.NewCounters(noon, 10*time.Second)
	before := samples(c.Text(true))
	for _, line := range []string{`terminations_total{rule="idle",status="killed"} 0`, `detachments_total{rule="idle"} 0`, `warnings_total{rule="idle",delivered="false"} 0`} {
		require.Contains(t, before, line+"\n", "so that the first increase is seen")
	}
	o, outcomes := newOrder()
	c.Consume(&controller.Round{}, []enforce.Event{
		{Kind: enforce.EventNew}, {Kind: enforce.EventActing, Order: &o}, {Kind: enforce.EventOutcome, Order: &o, Outcomes: outcomes},
	})
	c.Consume(&controller.Round{Ended: true, Stopped: true, Notified: []controller.Notified{
		{UserMessage: notify.UserMessage{ID: "idle/a/7/0/x"}, Terminals: 2},
		{UserMessage: notify.UserMessage{ID: "idle/b/7/0/x"}},
		{UserMessage: notify.UserMessage{ID: "idle/b/7/0/y"}, Err: errors.New("no answer"), Terminals: 1},
	}}, nil)
	require.Equal(t, `terminations_total{rule="non-env-processes",status="terminated"} 1
terminations_total{rule="idle",status="survived"} 1
terminations_total{rule="other",status="killed"} 1
terminations_total{rule="other",status="unknown"} 1
detachments_total{rule="max-devices-per-user"} 1
warnings_total{rule="idle",delivered="true"} 1
warnings_total{rule="idle",delivered="false"} 2
`, aboveZero(samples(c.Text(true)), "_total"))
	require.NotContains(t, samples(c.Text(false)), "_total", "without enforcing there is nothing to count")
}

// aboveZero are the lines of some families that are not 0.
func aboveZero(text, family string) (lines string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, family) && !strings.HasSuffix(line, " 0\n") {
			lines += line
		}
	}
	return lines
}

func TestCycleDurations(t *testing.T) {
	c := metrics.NewCounters(noon, 10*time.Second)
	require.NotContains(t, string(c.Text(true)), "genv_last_cycle_timestamp_seconds", "there was none")
	for i, took := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 3 * time.Second, time.Hour} {
		c.Consume(&controller.Round{Ended: true, Number: i, Start: noon, Took: took, Earlier: i}, nil)
	}
	require.Contains(t, samples(c.Text(true)), "early_cycles_total 6\n")
	require.Equal(t, fmt.Sprintf(`cycle_interval_seconds 10
last_cycle_timestamp_seconds %d
cycle_duration_seconds_bucket{le="0.1"} 2
cycle_duration_seconds_bucket{le="0.25"} 2
cycle_duration_seconds_bucket{le="0.5"} 2
cycle_duration_seconds_bucket{le="1"} 2
cycle_duration_seconds_bucket{le="2.5"} 2
cycle_duration_seconds_bucket{le="5"} 3
cycle_duration_seconds_bucket{le="10"} 3
cycle_duration_seconds_bucket{le="30"} 3
cycle_duration_seconds_bucket{le="60"} 3
cycle_duration_seconds_bucket{le="120"} 3
cycle_duration_seconds_bucket{le="300"} 3
cycle_duration_seconds_bucket{le="+Inf"} 4
cycle_duration_seconds_sum 3603.15
cycle_duration_seconds_count 4
`, noon.Unix()+3600), samples(c.Text(false)))
}

func TestHealthy(t *testing.T) {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	c := metrics.NewCounters(noon, 10*time.Second)
	require.True(t, c.Healthy(at(300)), "the first cycle may take long")
	require.False(t, c.Healthy(at(3600)))
	require.False(t, c.Ready())
	c.Consume(cycleAt(3600, failed("a")).AtEnd(), nil)
	require.True(t, c.Healthy(at(3700)))
	require.True(t, c.Ready(), "also if hosts failed")
	require.False(t, c.Healthy(at(7200)))
	c.Consume(&controller.Round{Ended: true, Stopped: true, Start: at(7200)}, nil)
	require.False(t, c.Healthy(at(7200)), "a stopped cycle is none")
	c.Configure(time.Hour)
	require.True(t, c.Healthy(at(7200)), "an hour between cycles")
	require.True(t, metrics.NewCounters(noon, 0).Healthy(at(1e6)), "there is only one cycle")
}

func TestFindings(t *testing.T) {
	f := &live.FleetState{Enforcing: true, Cycle: 1}
	require.Empty(t, aboveZero(samples(metrics.Findings(f)), ""))
	require.Contains(t, samples(metrics.Findings(f)), "findings{rule=\"idle\",decision=\"stuck\"} 0\n")
	for _, decision := range []enforce.Decision{enforce.DecisionStuck, enforce.DecisionWait, enforce.DecisionWait} {
		f.Findings = append(f.Findings, live.Finding{Finding: enforce.Finding{Rule: enforce.RuleIdle}, Decision: decision})
	}
	f.HeldUsers, f.HeldHosts, f.Unrecorded, f.Hold = make([]safety.Held, 2), make([]safety.Held, 1), "disk full", &operator.OnHold{}
	require.Equal(t, `findings{rule="idle",decision="wait"} 2
findings{rule="idle",decision="stuck"} 1
held 3
rules_on_hold 1
unrecorded 1
`, aboveZero(samples(metrics.Findings(f)), ""))
	require.Empty(t, metrics.Findings(&live.FleetState{Cycle: 1}), "genv remote watch judges nothing")
	require.Empty(t, metrics.Findings(&live.FleetState{Enforcing: true}), "there was no cycle")
}

// TestCountersNeverDecrease: over a reload, and lost and removed hosts.
func TestCountersNeverDecrease(t *testing.T) {
	c := metrics.NewCounters(noon, 10*time.Second)
	before := make(map[string]float64)
	o, outcomes := newOrder()
	for i, hosts := range [][]snapshot.Host{
		{holders("a", "alice"), holders("b", "bob")}, {holders("a", "alice"), failed("b")}, {failed("a"), failed("b")}, {holders("b", "bob")}, {}, {holders("a", "alice")},
	} {
		if i == 3 {
			c.Configure(time.Minute)
		}
		round := cycleAt(10*i, hosts...)
		c.Consume(round, []enforce.Event{{Kind: enforce.EventOutcome, Order: &o, Outcomes: outcomes}})
		c.Consume(round.AtEnd(), nil)
		now := values(t, string(c.Text(true))+string(c.Users(nil)))
		for series, value := range before {
			if strings.Contains(series, "_total") || strings.Contains(series, "duration") {
				require.GreaterOrEqual(t, now[series], value, series)
			}
		}
		before = now
	}
	require.InDelta(t, 6, before[`genv_detachments_total{rule="max-devices-per-user"}`], 0)
}
