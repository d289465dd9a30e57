package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// The time of a finding goes on over a break of less than an eighth of its warning, and in whatever else the same
// person has on that host. A host that doesn't answer is no break and no presence.
func TestBreaksOfAWarning(t *testing.T) {
	const (
		outside = `a | dev 0 | dev 1 | proc 5 - u1 by:bob 0:10`
		right   = `a | dev 0 | dev 1`
		down    = `a | down`
		foreign = `a | env 1 bob u1 | dev 0 | dev 1 | proc 7 1 u1 by:bob 1:10`
		over0   = `a | env 1 bob 1g u1 | env 2 bob 1g u1 | dev 0 1@01 | dev 1 2@01 | proc 5 1 u1 by:bob 0:2000`
		over1   = `a | env 1 bob 1g u1 | env 2 bob 1g u1 | dev 0 1@01 | dev 1 2@01 | proc 6 2 u1 by:bob 1:2000`
	)
	rules := stated{all: enforce.Settings{NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, Warn: lasting(16)}}
	atIntervals := stated{all: rules.all, fleet: enforce.Fleet{Interval: 2 * time.Minute}}
	inCycles := stated{all: enforce.Settings{NonEnvProcesses: true, Warn: enforce.Warn{Cycles: 9}}}
	capped := stated{all: enforce.Settings{MaxDevices: new(0), Warn: lasting(16)}}
	runStories(t, []story{
		{"less than an eighth", rules, []cycle{{0, outside, ""}, {11, right, ""}, {12, outside, ""}, {15, outside, ""}, {16, outside, "a end 5"}}},
		{"again and again", rules, []cycle{{0, outside, ""}, {5, right, ""}, {6, outside, ""}, {12, right, ""}, {13, outside, ""}, {16, outside, "a end 5"}}},
		{"an eighth", rules, []cycle{{0, outside, ""}, {10, right, ""}, {12, outside, ""}, {16, outside, ""}, {27, outside, ""}, {28, outside, "a end 5"}}},
		{"several looks within an eighth", rules, []cycle{{0, outside, ""}, {10, right, ""}, {11, right, ""}, {12, outside, ""}, {27, outside, ""}, {28, outside, "a end 5"}}},
		{"in cycles", inCycles, each(outside, "a end 5", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)},
		{"in cycles, one of nine is less", inCycles, append([]cycle{{0, outside, ""}, {1, right, ""}}, each(outside, "a end 5", 2, 3, 4, 5, 6, 7, 8, 9, 10)...)},
		{"in cycles, two of nine are not", inCycles, append(
			[]cycle{{0, outside, ""}, {1, right, ""}, {2, right, ""}}, each(outside, "a end 5", 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)...)},
		{"in another process, on another GPU", rules, []cycle{{0, outside, ""}, {9, `a | dev 0 | dev 1 | proc 6 - u1 by:bob 1:10`, ""}, {16, `a | dev 0 | dev 1 | proc 7 - u1 by:bob 0:10`, "a end 7"}}},
		{"in an environment, on another GPU", rules, []cycle{{0, outside, ""}, {9, foreign, ""}, {16, foreign, "a end 7"}}},
		{"over memory in another environment", rules, []cycle{{0, over0, ""}, {9, over1, ""}, {16, over1, "a end 6"}}},
		{"of a cap", capped, []cycle{{0, busyDevice, ""}, {9, `a | env 1 alice | dev 0`, ""}, {10, busyDevice, ""}, {16, busyDevice, "a detach 0 1; a end 5"}}},
		{"of another person", rules, []cycle{{0, outside, ""}, {9, `a | dev 0 | dev 1 | proc 6 - u2 by:eve 0:10`, ""}, {16, `a | dev 0 | dev 1 | proc 6 - u2 by:eve 0:10`, ""}}},
		{"of unproved containers, on another GPU", rules, []cycle{
			{0, `a | dev 0 | dev 1 | proc 5 - u0 in:123 0:10`, ""}, {9, `a | dev 0 | dev 1 | proc 6 - u0 in:456 1:10`, ""}, {16, `a | dev 0 | dev 1 | proc 6 - u0 in:456 1:10`, ""},
		}},
		{"a host that doesn't answer is no break", rules, []cycle{{0, outside, ""}, {5, down, ""}, {6, outside, ""}, {16, outside, ""}, {17, outside, "a end 5"}}},
		{"and no presence", rules, []cycle{{0, outside, ""}, {5, down, ""}, {50, down, ""}, {55, outside, ""}, {65, outside, ""}, {66, outside, "a end 5"}}},
		{"nor part of a break", rules, []cycle{{0, outside, ""}, {5, right, ""}, {6, down, ""}, {50, down, ""}, {56, outside, ""}, {57, outside, ""}, {66, outside, "a end 5"}}},
		{"nor is a time in which it isn't asked, but for three intervals", atIntervals, []cycle{{0, outside, ""}, {5, outside, ""}, {50, outside, ""}, {54, outside, ""}, {55, outside, "a end 5"}}},
		{"of a cap neither", stated{all: capped.all, fleet: atIntervals.fleet}, []cycle{{0, busyDevice, ""}, {5, busyDevice, ""}, {50, busyDevice, ""}, {54, busyDevice, ""}, {55, busyDevice, "a detach 0 1; a end 5"}}},
		{"nor part of its break", stated{all: enforce.Settings{MaxDevices: new(0), Warn: lasting(64)}, fleet: atIntervals.fleet}, append([]cycle{{0, busyDevice, ""}, {5, busyDevice, ""}, {6, `a | env 1 alice | dev 0`, ""}}, each(busyDevice, "a detach 0 1; a end 5", 50, 56, 62, 68, 74, 80, 86, 92, 98, 102)...)},
		{"a host that comes back without it", rules, []cycle{{0, outside, ""}, {5, down, ""}, {55, right, ""}, {58, outside, ""}, {66, outside, ""}, {73, outside, ""}, {74, outside, "a end 5"}}},
	})
}

// A process that its host refused to end is tried again: what was refused may have passed.
func TestRefusedIsNotSparedForever(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true}}
	cluster := parseCluster(t, `a | dev 0 | proc 5 - u1 by:bob 0:10`)
	var memory controllerMemory
	plan := memory.Judge(policy, cluster, noon(0))
	require.Equal(t, "a end 5", planText(plan))
	memory.Learn("a", plan.Orders[0].Order, []order.Outcome{{PID: 5, Status: order.StatusRefused, Reason: "it is Xorg"}})
	plan = memory.Judge(policy, cluster, noon(0).Add(30*time.Second))
	require.Empty(t, planText(plan))
	require.Equal(t, "it is Xorg; it is tried again in 30s", plan.Findings[0].Stuck[0].Reason)
	for minute := 1; minute < 4; minute++ {
		plan = memory.Judge(policy, cluster, noon(minute))
		require.Equal(t, "a end 5", planText(plan), minute)
		memory.Learn("a", plan.Orders[0].Order, []order.Outcome{{PID: 5, Status: order.StatusRefused, Reason: "it is Xorg"}})
	}
}

// What was released for being idle stays so until it computes alone; then the warning of idle begins.
func TestReleasedUntilItComputes(t *testing.T) {
	const (
		held    = `a | env 1 alice u1 | dev 0 u4 1@01 | proc 5 1 u1 by:alice 0:10`
		idles   = `a | env 1 alice u1 | dev 0 u4 | proc 5 1 u1 by:alice 0:10`
		works   = `a | env 1 alice u1 | dev 0 u90 | proc 5 1 u1 by:alice 0:10`
		unknown = `a | env 1 alice u1 | dev 0 | proc 5 1 u1 by:alice 0:10`
		shared  = `a | env 1 alice u1 | dev 0 u90 | proc 5 1 u1 by:alice 0:10 | proc 6 - u2 by:bob 0:10`
		hidden  = `a | env 1 alice u1 | dev 0 u90 p? | proc 5 1 u1 by:alice 0:10`
		again   = `a | env 1 alice u1 | dev 0 u90 1@59 | proc 5 1 u1 by:alice 0:10`
		first   = 6
	)
	policy := stated{all: enforce.Settings{EnvDevices: true, Idle: &enforce.Idle{After: 4 * time.Minute, Below: 5, Warn: new(enforce.Warn{For: 2 * time.Minute})}}}
	noneOfIdle := stated{all: enforce.Settings{EnvDevices: true, Idle: &enforce.Idle{After: 4 * time.Minute, Below: 5, Warn: new(enforce.Warn{})}}}
	begin := func(rest ...cycle) []cycle { return append(each(held, "a detach 0 1", 0, 1, 2, 3, 4, 5, 6), rest...) }
	runStories(t, []story{
		{"while it is idle", policy, begin(cycle{7, idles, ""}, cycle{600, idles, ""})},
		{"and while that is unknown", policy, begin(cycle{7, unknown, ""}, cycle{600, unknown, ""})},
		{"or somebody else may compute", policy, begin(cycle{7, shared, ""}, cycle{600, shared, ""})},
		{"or what the driver doesn't show", policy, begin(cycle{7, hidden, ""}, cycle{600, hidden, ""})},
		{"what computes has the warning of idle", policy, begin(cycle{7, works, ""}, cycle{8, works, ""}, cycle{9, works, "a end 5"})},
		{"without a break by idling", policy, begin(cycle{7, works, ""}, cycle{8, idles, ""}, cycle{9, idles, "a end 5"})},
		{"attached again in time", policy, begin(cycle{7, works, ""}, cycle{8, again, ""}, cycle{9, again, ""}, cycle{60, again, ""})},
		{"without a warning of idle", noneOfIdle, append(each(held, "a detach 0 1", 0, 1, 2, 3, 4), cycle{5, idles, ""}, cycle{6, works, "a end 5"})},
		{"a new controller's own warning is enough", policy, []cycle{{0, idles, "a end 5"}}},
	})
	var memory controllerMemory
	for minute := range first + 1 {
		memory.Judge(policy, parseCluster(t, held), noon(minute))
	}
	var told []string
	for _, e := range memory.events {
		if e.Kind == enforce.EventDue {
			told = append(told, e.Finding.Advice(noEnvironment))
		}
	}
	require.Equal(t, []string{"Your processes stay until somebody else is given it, or until they compute there: then they end after 2m. Attach it again before that: genv attach."}, told)
}

// A GPU that a policy exempts by its index is the one that had this index at the first good look.
func TestAnExemptIndexIsAGPU(t *testing.T) {
	const (
		rogues = ` | proc 5 - 0:1 | proc 6 - 1:1`
		both   = `a | dev 0 GPU-a | dev 1 GPU-b` + rogues
		moved  = `a | dev 0 GPU-b | proc 6 - 0:1`
		turned = `a | dev 0 GPU-b | dev 1 GPU-a | proc 6 - 0:1 | proc 5 - 1:1`
		blind  = `a | dev 0 GPU-a | dev 1` + rogues
		alone  = `a | dev 0 GPU-a | proc 5 - 0:1`
		twice  = `a | dev 0 GPU-b | dev 1 GPU-b` + rogues
		old    = `a | dev 0 | dev 1` + rogues
	)
	policy := stated{all: enforce.Settings{NonEnvProcesses: true}, indices: []enforce.ExemptGPU{{Index: 1, Entry: "a:1"}}}
	runStories(t, []story{
		{"as it was", policy, []cycle{{0, both, "a end 5"}, {1, both, "a end 5"}}},
		{"when another one falls off the bus", policy, []cycle{{0, both, "a end 5"}, {1, moved, ""}, {2, turned, "a end 5"}}},
		{"when it is gone itself", policy, []cycle{{0, both, "a end 5"}, {1, `a | dev 0 GPU-a | dev 1 GPU-c` + rogues, "a end 5; a end 6"}}},
		{"when it may be one without a UUID", policy, []cycle{{0, both, "a end 5"}, {1, blind, "a end 5"}, {2, `a | dev 0 | dev 1 GPU-c` + rogues, "a end 6"}}},
		{"while the host doesn't answer", policy, []cycle{{0, both, "a end 5"}, {1, `a | down`, ""}, {2, turned, "a end 5"}}},
		{"no rule acts before it is known", policy, []cycle{{0, blind, ""}, {1, alone, ""}, {2, twice, ""}, {3, both, "a end 5"}}},
		{"hosts that report no UUIDs keep the index", policy, []cycle{{0, old, "a end 5"}, {1, old, "a end 5"}}},
	})
	var memory controllerMemory
	memory.Judge(policy, parseCluster(t, both), noon(0))
	require.Equal(t, map[snapshot.Hostname][]enforce.ExemptGPU{"a": {{Index: 1, Entry: "a:1", UUID: "GPU-b"}}}, memory.ExemptGPUs)
	changed := policy
	changed.indices = []enforce.ExemptGPU{{Index: 1, Entry: "a:[1-2]"}}
	require.Equal(t, "a end 6", planText(memory.Judge(changed, parseCluster(t, turned), noon(1))), "the entry changed")
	plan := memory.Judge(stated{all: policy.all, indices: []enforce.ExemptGPU{{Index: 3, Entry: "a:3"}}}, parseCluster(t, both), noon(2))
	require.Equal(t, []enforce.Note{{Host: "a", Text: "which GPU the exempt index 3 (a:3) is can't be told yet, so no rule acts on its GPUs"}}, plan.Notes)
}

// A host is told for which devices a process ends, if for nothing else, and over which format.
func TestAHostIsToldWhatIsNotAttached(t *testing.T) {
	const cluster = `a | env 1 alice u1 | dev 0 1@01 | dev 1 | dev 2 | proc 5 1 u1 started-at:9 0:1 1:1 2:1`
	for name, row := range map[string]struct {
		rules enforce.Settings
		want  []snapshot.DeviceIndex
	}{
		"unattached":     {enforce.Settings{EnvDevices: true}, []snapshot.DeviceIndex{1, 2}},
		"also too old":   {enforce.Settings{EnvDevices: true, MaxProcessAge: time.Hour}, nil},
		"only too old":   {enforce.Settings{MaxProcessAge: time.Hour}, nil},
		"over a cap too": {enforce.Settings{EnvDevices: true, MaxDevices: new(0)}, nil},
	} {
		plan := evaluate(stated{all: row.rules}, parseCluster(t, cluster), noon(0))
		require.Equal(t, row.want, proctest.Try(order.DecodeNative(proctest.Try(order.EncodeNative(plan.Orders[0].Order)).OK(t))).OK(t).Terminate[0].Unattached, name)
	}
}

// Nothing is due on an old look: what somebody did since then isn't in it.
func TestNothingIsDueOnAnOldLook(t *testing.T) {
	policy := stated{all: enforce.Settings{EnvDevices: true, Warn: lasting(10)}}
	const wrong = `a | env 1 alice u1 | dev 0 | proc 5 1 u1 0:10`
	for name, row := range map[string]struct {
		asked, took, now time.Duration // asked and now are after the warning is over
		isNew            bool
		want             string
		asks             bool
	}{
		"asked for before it was over":           {-time.Second, 0, 9 * time.Second, true, "", true},
		"judged before, and older than 2 s":      {0, 3 * time.Second, 3 * time.Second, false, "", true},
		"judged before, and no older":            {0, 0, 2 * time.Second, false, "a end 5", false},
		"a slow answer that was asked for since": {0, 8 * time.Second, 10 * time.Second, true, "a end 5", false},
		"an answer that waited for over 2 s":     {0, 7 * time.Second, 10 * time.Second, true, "", true},
	} {
		var memory controllerMemory
		cluster := parseCluster(t, wrong)
		h := &cluster.Hosts[0]
		h.AskedAt, h.Round, h.IsNew = noon(0), 1, true
		require.Empty(t, planText(memory.Judge(policy, cluster, noon(0))))
		h.AskedAt, h.Took, h.Round, h.IsNew = noon(10).Add(row.asked), row.took, 2, row.isNew
		plan := memory.Judge(policy, cluster, noon(10).Add(row.now))
		require.Equal(t, row.want, planText(plan), name)
		require.Equal(t, row.asks, len(plan.Ask) == 1, name)
	}
}
