package enforce_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// fullCycle is when the last full cycle was judged.
var fullCycle = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// earlyHost is a host with processes outside any environment, and an idle attachment of alice's.
func earlyHost(name string, pids ...snapshot.PID) snapshot.Host {
	uid := snapshot.UID(1001)
	s := &snapshot.Snapshot{
		Boot:         fullCycle.Add(-time.Hour),
		Environments: []snapshot.Environment{{EID: "7", UID: uid, Username: "alice"}},
		Devices:      []snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(100), Attachments: []snapshot.Attachment{{EID: "7", Since: 1}}}},
	}
	for _, pid := range pids {
		s.Processes = append(s.Processes, snapshot.Process{PID: pid, Start: 1, UID: &uid, Username: "alice", Usage: []snapshot.DeviceUsage{{Index: 0}}})
	}
	return snapshot.Host{Name: snapshot.Hostname(name), Snapshot: s}
}

func clusterOf(hosts ...snapshot.Host) snapshot.Cluster { return snapshot.Cluster{Hosts: hosts} }

func earlyEvents(events []enforce.Event) string {
	var list []string
	for _, e := range events {
		list = append(list, fmt.Sprintf("%s %s", e.Kind, e.ID))
	}
	return strings.Join(list, ", ")
}

func earlyPlan(p enforce.Plan) string {
	var list []string
	for _, o := range p.Orders {
		for _, t := range o.Order.Terminate {
			list = append(list, fmt.Sprintf("%s %d", o.Host, t.Process.PID))
		}
		for _, d := range o.Order.Detach {
			list = append(list, fmt.Sprintf("%s detach %d", o.Host, d.Device))
		}
	}
	return strings.Join(list, ", ")
}

func TestJudgeEarly(t *testing.T) {
	none, hour := 0, time.Hour
	outside := enforce.Settings{NonEnvProcesses: true}
	for name, row := range map[string]struct {
		settings enforce.Settings
		full     snapshot.Cluster // what the full cycle saw
		asked    snapshot.Cluster // 3 seconds later
		plan     string
		events   string
		known    int // findings in the memory after that
	}{
		"a process starts":                  {outside, clusterOf(earlyHost("a"), earlyHost("b")), clusterOf(earlyHost("a", 5)), "a 5", "new non-env-processes/a/5/1, due non-env-processes/a/5/1", 1},
		"nothing is new":                    {outside, clusterOf(earlyHost("a"), earlyHost("b")), clusterOf(earlyHost("a")), "", "", 0},
		"a process has ended":               {outside, clusterOf(earlyHost("a", 5), earlyHost("b", 6)), clusterOf(earlyHost("a")), "", "over non-env-processes/a/5/1", 1},
		"one that is known is due again":    {outside, clusterOf(earlyHost("a", 5), earlyHost("b", 6)), clusterOf(earlyHost("a", 5)), "a 5", "due non-env-processes/a/5/1", 2},
		"another host stays as it is":       {outside, clusterOf(earlyHost("a"), earlyHost("b", 6)), clusterOf(earlyHost("a")), "", "", 1},
		"a cap":                             {enforce.Settings{MaxDevices: &none}, clusterOf(earlyHost("a")), clusterOf(earlyHost("a")), "", "", 1},
		"a cap of environments":             {enforce.Settings{MaxEnvs: &none}, clusterOf(earlyHost("a")), clusterOf(earlyHost("a")), "", "", 1},
		"a lease":                           {enforce.Settings{MaxDuration: 1}, clusterOf(earlyHost("a")), clusterOf(earlyHost("a")), "", "", 1},
		"an idle device":                    {enforce.Settings{Idle: &enforce.Idle{After: 0}}, clusterOf(earlyHost("a")), clusterOf(earlyHost("a")), "", "", 1},
		"a warning for a time":              {enforce.Settings{NonEnvProcesses: true, Warn: enforce.Warn{For: hour}}, clusterOf(earlyHost("a")), clusterOf(earlyHost("a", 5)), "", "new non-env-processes/a/5/1", 1},
		"a warning for a time that is over": {enforce.Settings{NonEnvProcesses: true, Warn: enforce.Warn{For: 2 * time.Second}}, clusterOf(earlyHost("a", 5)), clusterOf(earlyHost("a", 5)), "a 5", "changed non-env-processes/a/5/1, due non-env-processes/a/5/1", 1},
		"a warning for cycles":              {enforce.Settings{NonEnvProcesses: true, Warn: enforce.Warn{Cycles: 1}}, clusterOf(earlyHost("a", 5)), clusterOf(earlyHost("a", 5)), "", "", 1},
		"a process that is in order":        {enforce.Settings{EnvDevices: true}, clusterOf(earlyHost("a")), clusterOf(earlyHost("a", 5)), "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := stated{all: row.settings}
			_, before, _ := enforce.Judge(p, row.full, enforce.Memory{}, fullCycle)
			plan, after, events := enforce.JudgeEarly(p, row.asked, before, fullCycle.Add(3*time.Second))
			require.Equal(t, row.plan, earlyPlan(plan))
			require.Equal(t, row.events, earlyEvents(events))
			require.Len(t, after.Findings, row.known)
			require.Equal(t, before.Time, after.Time)
			require.Equal(t, before.Present, after.Present, "no time begins or ends")
			require.Equal(t, before.Idle, after.Idle)
			require.Equal(t, before.Hosts, after.Hosts)

			again, unchanged, events := enforce.JudgeEarly(p, row.asked, after, fullCycle.Add(4*time.Second))
			require.Equal(t, row.plan, earlyPlan(again))
			require.NotContains(t, earlyEvents(events), "new", "it is said once")
			require.Equal(t, after.Findings, unchanged.Findings)

			_, _, events = enforce.Judge(p, row.full, before, fullCycle.Add(10*time.Second))
			_, _, late := enforce.Judge(p, row.full, after, fullCycle.Add(10*time.Second))
			if row.events == "" {
				require.Equal(t, earlyEvents(events), earlyEvents(late), "the next full cycle is as without it")
			}
		})
	}
}

func TestWhatIsKnownOfOtherHostsStays(t *testing.T) {
	p := stated{all: enforce.Settings{NonEnvProcesses: true}}
	_, before, _ := enforce.Judge(p, clusterOf(earlyHost("a", 5), earlyHost("b", 6)), enforce.Memory{}, fullCycle)
	on := func(name snapshot.Hostname, pid snapshot.PID) snapshot.ProcessKey {
		return snapshot.ProcessKey{Host: name, PID: pid, Start: 1}
	}
	before.Stuck = map[snapshot.ProcessKey]string{on("a", 5): "D", on("b", 6): "D"}
	before.LeftAlone = map[snapshot.ProcessKey]time.Time{on("a", 5): fullCycle, on("b", 6): fullCycle}
	before.Released = map[snapshot.AttachmentKey]bool{{Host: "a", Device: "1", EID: "7"}: true, {Host: "b", Device: "1", EID: "7"}: true}
	_, after, _ := enforce.JudgeEarly(p, clusterOf(earlyHost("a")), before, fullCycle.Add(time.Second))
	require.Equal(t, map[snapshot.ProcessKey]string{on("b", 6): "D"}, after.Stuck)
	require.Equal(t, map[snapshot.ProcessKey]time.Time{on("b", 6): fullCycle}, after.LeftAlone)
	require.Equal(t, map[snapshot.AttachmentKey]bool{{Host: "b", Device: "1", EID: "7"}: true}, after.Released)
	require.Len(t, before.Stuck, 2, "the memory before is not changed")
}

func TestEarlyPlan(t *testing.T) {
	last := enforce.Plan{
		Findings: []enforce.Finding{
			{ID: "1", Rule: enforce.RuleNonEnvProcesses, Host: "a"},
			{ID: "2", Rule: enforce.RuleNonEnvProcesses, Host: "b"},
			{ID: "3", Rule: enforce.RuleIdle, Host: "a"},
			{ID: "4", Rule: enforce.RuleMaxDevicesPerUser},
		},
		Orders: []order.OfHost{{Host: "b"}},
	}
	of := enforce.Plan{Findings: []enforce.Finding{{ID: "5", Rule: enforce.RuleEnvDevices, Host: "a"}}, Orders: []order.OfHost{{Host: "a"}}}
	whole := last.With(of, func(h snapshot.Hostname) bool { return h == "a" })
	ids := ""
	for _, f := range whole.Findings {
		ids += f.ID
	}
	require.Equal(t, "2345", ids)
	require.Equal(t, of.Orders, whole.Orders)
	require.Len(t, last.Findings, 4)
}

func TestLimitsHoldForAllSinceTheFullCycle(t *testing.T) {
	p := stated{all: enforce.Settings{NonEnvProcesses: true}}
	plan := func(hosts ...snapshot.Host) *enforce.Plan {
		made, _, _ := enforce.Judge(p, clusterOf(hosts...), enforce.Memory{}, fullCycle)
		return &made
	}
	for name, row := range map[string]struct {
		limits safety.Limits
		full   *enforce.Plan
		plans  []*enforce.Plan
		want   string
	}{
		"no limit":                {safety.Limits{}, plan(earlyHost("a", 5)), []*enforce.Plan{plan(earlyHost("b", 5)), plan(earlyHost("b", 6))}, "yy"},
		"within":                  {safety.Limits{Fleet: safety.Limit{Terminations: 3}}, plan(earlyHost("a", 5)), []*enforce.Plan{plan(earlyHost("b", 5)), plan(earlyHost("b", 6))}, "yy"},
		"beyond":                  {safety.Limits{Fleet: safety.Limit{Terminations: 2}}, plan(earlyHost("a", 5)), []*enforce.Plan{plan(earlyHost("b", 5)), plan(earlyHost("b", 6))}, "yn"},
		"nothing to do is no act": {safety.Limits{Fleet: safety.Limit{Terminations: 1}}, plan(earlyHost("a", 5)), []*enforce.Plan{plan(earlyHost("b")), plan(earlyHost("b", 6))}, "yn"},
		"for a user":              {safety.Limits{PerUser: safety.Limit{Terminations: 1}}, plan(earlyHost("a", 5)), []*enforce.Plan{plan(earlyHost("a", 6)), plan(earlyHost("b", 5))}, "ny"},
		"for a host":              {safety.Limits{PerHost: safety.Limit{Terminations: 1}}, plan(earlyHost("a", 5)), []*enforce.Plan{plan(earlyHost("a", 6)), plan(earlyHost("b", 6))}, "ny"},
		"what was not done doesn't count": {safety.Limits{Fleet: safety.Limit{Terminations: 2}}, plan(), []*enforce.Plan{
			plan(earlyHost("a", 5, 6, 7)), plan(earlyHost("b", 5)), plan(earlyHost("b", 6)),
		}, "nyy"},
		"throttled": {safety.Limits{Fleet: safety.Limit{Terminations: 2}, Throttle: true}, plan(earlyHost("a", 5)), []*enforce.Plan{plan(earlyHost("b", 5, 6))}, "n"},
		"on hold":   {safety.Limits{Paused: "maintenance"}, plan(), []*enforce.Plan{plan()}, "n"},
	} {
		t.Run(name, func(t *testing.T) {
			var spent safety.Spent
			spent.Begin(row.full.Actions())
			got := ""
			for _, p := range row.plans {
				if !p.Held() && spent.Allow(row.limits, p.Actions(), nil) {
					got += "y"
				} else {
					got += "n"
				}
			}
			require.Equal(t, row.want, got)
		})
	}
}

// What ends in containers of unknown users is directed against no user, whatever user the
// finding or the environment is of.
func TestUnprovedContainersAreSpentOnNoUser(t *testing.T) {
	uid, zero := snapshot.UID(1001), snapshot.UID(0)
	limits := safety.Limits{PerUser: safety.Limit{Terminations: 1}}
	for name, row := range map[string]struct {
		process snapshot.Process
		want    bool
	}{
		"as alice":            {snapshot.Process{UID: &uid, Username: "alice", ContainerInfo: &snapshot.ContainerInfo{}}, true},
		"as root":             {snapshot.Process{UID: &zero, Username: "root", ContainerInfo: &snapshot.ContainerInfo{}}, true},
		"an older host's":     {snapshot.Process{UID: &zero, Username: "root"}, true},
		"alice's, proved":     {snapshot.Process{UID: &zero, ContainerInfo: &snapshot.ContainerInfo{UID: &uid, User: "alice", Proof: snapshot.ProofRecord}}, false},
		"alice's, her engine": {snapshot.Process{UID: &uid, ContainerInfo: &snapshot.ContainerInfo{UID: &uid, User: "alice", Proof: snapshot.ProofRootless}}, false},
	} {
		row.process.Container = "web"
		plan := enforce.Plan{Findings: []enforce.Finding{{ID: "x", User: "alice"}}, Orders: []order.OfHost{{Host: "a"}}}
		own := plan
		own.Orders = []order.OfHost{{Host: "a", Order: order.Order{Terminate: []order.Termination{{Process: earlyHost("a", 5).Snapshot.Processes[0], Because: []string{"x"}}}}}}
		for pid := range snapshot.PID(3) {
			row.process.PID = 6 + pid
			plan.Orders[0].Order.Terminate = append(plan.Orders[0].Order.Terminate, order.Termination{Process: row.process, Because: []string{"x"}})
		}
		var spent safety.Spent
		spent.Begin(plan.Actions())
		require.Equal(t, row.want, spent.Allow(limits, own.Actions(), nil), name)
	}
}

func TestEarlyEventsOfAHostAreBounded(t *testing.T) {
	var spent safety.Spent
	spent.Begin(nil)
	of := func(host snapshot.Hostname, n int) map[snapshot.Hostname]int {
		return map[snapshot.Hostname]int{host: n}
	}
	require.True(t, spent.Allow(safety.Limits{}, nil, of("a", safety.MaxEventsPerHost)))
	require.False(t, spent.Allow(safety.Limits{}, nil, of("a", 1)))
	require.True(t, spent.Allow(safety.Limits{}, nil, of("b", 1)))
	spent.Begin(nil)
	require.True(t, spent.Allow(safety.Limits{}, nil, of("a", 1)))
}
