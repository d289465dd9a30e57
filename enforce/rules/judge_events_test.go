package rules_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/rules"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// eventText lists events, as in "new 5 wait, host-lost a".
func eventText(events []enforce.Event) string {
	var list []string
	for _, e := range events {
		words := []string{string(e.Kind)}
		switch {
		case e.Finding != nil && e.Finding.PID != 0:
			words = append(words, fmt.Sprint(e.Finding.PID), string(e.Decision))
		case e.Finding != nil:
			words = append(words, string(e.Finding.User), string(e.Decision))
		case e.ID != "":
			words = append(words, e.ID)
		case e.Kind == enforce.EventNote:
			words = append(words, string(e.Host))
		case e.Host != "":
			words = append(words, string(e.Host))
		}
		if e.Resumed {
			words = append(words, "resumed")
		}
		list = append(list, strings.Join(words, " "))
	}
	return strings.Join(list, ", ")
}

// Each event comes once, when it happens.
func TestEvents(t *testing.T) {
	const outside, gone = `a | dev 0 | proc 5 - 0:10`, `a | dev 0`
	const two = outside + ` | proc 6 - 0:10`
	rule := enforce.Settings{NonEnvProcesses: true}
	waits := rule
	waits.Warn = enforce.Warn{Cycles: 1}
	type cycle struct{ cluster, events string }
	for _, tt := range []struct {
		name   string
		policy stated
		cycles []cycle
	}{
		{"acted on at once, in every cycle", stated{all: rule}, []cycle{
			{outside, "new 5 act, due 5 act"}, {outside, "due 5 act"}, {gone, "over non-env-processes/a/5/1"}, {gone, ""},
		}},
		{"a warning first", stated{all: waits}, []cycle{
			{outside, "new 5 wait"}, {outside, "changed 5 act, due 5 act"}, {gone, "over non-env-processes/a/5/1"},
		}},
		{"users are told of the warning and of the action", stated{all: waits, fleet: enforce.Fleet{NotifyUsers: true}}, []cycle{
			{outside, "new 5 wait, notify 5 wait"}, {outside, "changed 5 act, due 5 act, notify 5 act"}, {outside, "due 5 act"},
		}},
		{"a limit holds in every cycle, and users are not told", stated{all: rule, fleet: enforce.Fleet{NotifyUsers: true, Limits: safety.Limits{Fleet: safety.Limit{Terminations: 1}}}}, []cycle{
			{two, "new 5 hold, new 6 hold, held a"}, {two, "held a"}, {two, "held a"},
		}},
		{"a host is lost and comes back; what was found there is not over", stated{all: waits}, []cycle{
			{outside, "new 5 wait"}, {`a | down`, "host-lost a"}, {`a | down`, ""}, {outside, "host-back a, changed 5 act, due 5 act"},
		}},
		{"a host that was never there, and leaves the fleet", stated{all: rule}, []cycle{{`a | down`, "host-lost a"}, {`b | dev 0`, ""}}},
		{"nothing is wrong", stated{all: rule}, []cycle{{gone, ""}, {gone, ""}}},
		{"a rule that is off", stated{}, []cycle{{outside, ""}}},
		{"an exempt host that is down is lost all the same", stated{all: rule, exempt: func(s enforce.Subject) bool { return s.Host == "a" }}, []cycle{{`a | down`, "host-lost a"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var memory controllerMemory
			for i, c := range tt.cycles {
				memory.Judge(tt.policy, parseCluster(t, c.cluster), noon(i))
				require.Equal(t, c.events, eventText(memory.events), "cycle %d", i+1)
			}
		})
	}
}

// Judge changes neither the memory nor what it returned before: a cycle that does not count leaves no trace.
func TestACycleThatDoesNotCount(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true, Warn: enforce.Warn{Cycles: 1}}, fleet: enforce.Fleet{NotifyUsers: true}}
	cluster := parseCluster(t, `a | dev 0 | proc 5 - 0:10`)
	_, first, _ := rules.Judge(policy, cluster, enforce.Memory{}, noon(0))
	before := proctest.Try(json.Marshal(first)).OK(t)
	for range 3 {
		plan, _, events := rules.Judge(policy, cluster, first, noon(1))
		require.Equal(t, "a end 5", planText(plan))
		require.Equal(t, "changed 5 act, due 5 act, notify 5 act", eventText(events))
	}
	require.Equal(t, string(before), string(proctest.Try(json.Marshal(first)).OK(t)))
}

// A memory that was written and read again judges as the one that was kept.
func TestMemoryAsJSON(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true, Idle: &enforce.Idle{After: 30 * time.Minute}, Warn: enforce.Warn{Cycles: 2}}}
	cluster := func(minute int) snapshot.Cluster {
		text := `a | env 1 alice | dev 0 1@01 | proc 5 - 0:10`
		if minute%20 == 10 {
			text = "a | down"
		}
		return parseCluster(t, text)
	}
	var kept controllerMemory
	var read enforce.Memory
	for minute := 0; minute < 60; minute += 5 {
		kept.Judge(policy, cluster(minute), noon(minute))
		plan, next, _ := rules.Judge(policy, cluster(minute), read, noon(minute))
		text := proctest.Try(json.Marshal(next)).OK(t)
		read = enforce.Memory{}
		require.NoError(t, json.Unmarshal(text, &read))
		require.JSONEq(t, string(proctest.Try(json.Marshal(kept.Memory)).OK(t)), string(text), "minute %d: %s", minute, planText(plan))
	}
}

// What was known before a restart is shown once to displays that begin with it.
func TestEventsOfAResumedMemory(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true, Warn: enforce.Warn{Cycles: 9}}}
	cluster := parseCluster(t, "a | dev 0 | proc 5 - 0:10\nb | down")
	var memory controllerMemory
	memory.Judge(policy, cluster, noon(0))
	memory.Resumed = true
	memory.Judge(policy, cluster, noon(1))
	require.Equal(t, "host-lost b resumed, new 5 wait resumed", eventText(memory.events))
	memory.Judge(policy, cluster, noon(2))
	require.Empty(t, memory.events)

	for pid := range 300 {
		cluster.Hosts[0].Snapshot.Processes = append(cluster.Hosts[0].Snapshot.Processes, snapshot.Process{PID: snapshot.PID(100 + pid), Start: 1, Usage: []snapshot.DeviceUsage{{Index: 0}}})
	}
	memory.Judge(policy, cluster, noon(3))
	memory.Judge(policy, cluster, noon(4))
	memory.Resumed = true
	memory.Judge(policy, cluster, noon(5))
	require.Len(t, memory.events, 302, "all that is known, since it is shown only now")
}

// Two looks of one round are one cycle: another run that reads the memory of a loop goes on with its round.
func TestARoundIsOneCycle(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true, Warn: enforce.Warn{Cycles: 1}}}
	cluster := parseCluster(t, `a | dev 0 | proc 5 - 0:10 | proc 6 - 0:10`)
	var memory controllerMemory
	judge := func(round int, cluster snapshot.Cluster, now time.Time) enforce.Plan {
		cluster.Hosts[0].Round = round
		return memory.Judge(policy, cluster, now)
	}
	judge(1, parseCluster(t, `a | dev 0 | proc 5 - 0:10`), noon(0))
	require.Empty(t, planText(judge(1, cluster, noon(1))))
	cluster.Hosts[0].Round = 2
	require.Equal(t, "a end 5", planText(memory.Judge(policy, cluster, noon(2))), "6 counts from the next round on")
}

// A host that makes up findings fills neither a log nor a screen: the events about them come cycle by cycle.
func TestEventsOfAHostAreBounded(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true, Warn: enforce.Warn{Cycles: 9}}}
	text := "a | dev 0"
	for pid := range 600 {
		text += fmt.Sprintf(" | proc %d - 0:10", pid+1)
	}
	var memory controllerMemory
	for i, want := range []struct{ events, more int }{{257, 344}, {257, 88}, {88, 0}, {0, 0}} {
		memory.Judge(policy, parseCluster(t, text), noon(i))
		require.Len(t, memory.events, want.events, "cycle %d", i+1)
		at := slices.IndexFunc(memory.events, func(e enforce.Event) bool { return e.Kind == enforce.EventMore })
		require.Equal(t, want.more > 0, at >= 0)
		if at >= 0 {
			require.Equal(t, want.more, memory.events[at].Count)
		}
	}
}

// What an order under way is about is not judged again: it counts as ended, and nothing else ends in its place.
func TestOrdersUnderWay(t *testing.T) {
	for _, tt := range []struct {
		name     string
		settings enforce.Settings
		cluster  string
		first    string
		start    snapshot.StartTime // of the process in the second cycle
		second   string
		decision enforce.Decision
	}{
		{"a process", enforce.Settings{NonEnvProcesses: true}, `a | dev 0 | proc 5 - 0:10`, "a end 5", 1, "", enforce.DecisionUnderWay},
		{"another process of the same PID", enforce.Settings{NonEnvProcesses: true}, `a | dev 0 | proc 5 - 0:10`, "a end 5", 2, "a end 5", enforce.DecisionAct},
		{"memory: no other process ends in its place", enforce.Settings{EnvMemory: true}, `a | env 1 alice 1g | dev 0 1@01 | proc 5 1 0:900 | proc 6 1 0:800`, "a end 6", 1, "", enforce.DecisionUnderWay},
		{"a cap: no other device goes in its place", enforce.Settings{MaxDevices: new(1)}, `a | env 1 alice | dev 0 1@01 | dev 1 1@02`, "a detach 1 1", 1, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			policy := stated{all: tt.settings}
			var memory controllerMemory
			first := memory.Judge(policy, parseCluster(t, tt.cluster), noon(0))
			require.Equal(t, tt.first, planText(first))
			o := first.Orders[0]
			o.Order.ID = "r"
			memory.Memory = memory.Begin(o, noon(0))
			later := parseCluster(t, tt.cluster)
			for i := range later.Hosts[0].Snapshot.Processes {
				later.Hosts[0].Snapshot.Processes[i].Start = tt.start
			}
			second := memory.Judge(policy, later, noon(1))
			require.Equal(t, tt.second, planText(second))
			if tt.decision != "" {
				require.Equal(t, tt.decision, second.Findings[0].Decision())
			}
			memory.Memory = memory.Memory.Learn(order.OfHost{Host: "none", Order: order.Order{ID: "r"}}, nil, noon(1))
			require.Equal(t, tt.first, planText(memory.Judge(policy, parseCluster(t, tt.cluster), noon(2))), "it is still there when the order has ended")
		})
	}
}

// A look that was asked for before the outcome of an order shows what the order has changed: nothing is done on it.
func TestALookBeforeAnOutcome(t *testing.T) {
	for _, host := range []snapshot.Hostname{"a", ""} { // "" is this machine, where `genv enforce` runs
		for name, settings := range map[string]enforce.Settings{
			"a cap":   {MaxDevices: new(1)},
			"a rule":  {NonEnvProcesses: true},
			"several": {MaxDevices: new(1), EnvDevices: true, NonEnvProcesses: true},
			"warned":  {MaxDevices: new(1), NonEnvProcesses: true, Warn: enforce.Warn{For: time.Minute}},
		} {
			t.Run(string(host)+" "+name, func(t *testing.T) {
				policy := stated{all: settings}
				look := parseCluster(t, "a | env 1 alice u1001 | dev 0 1@01 | dev 1 1@02 | proc 5 - 0:10")
				look.Hosts[0].Name, look.Hosts[0].AskedAt, look.Hosts[0].Round = host, noon(0), 1
				plan, before, _ := rules.Judge(policy, look, enforce.Memory{}, noon(0))
				if len(plan.Orders) == 0 {
					look.Hosts[0].AskedAt, look.Hosts[0].Round = noon(1), 2
					plan, before, _ = rules.Judge(policy, look, before, noon(1))
				}
				require.Len(t, plan.Orders, 1)
				plan.Orders[0].Order.ID = "r"
				before = before.Begin(plan.Orders[0], noon(1))
				var events []enforce.Event
				for _, after := range []time.Duration{time.Second, 9 * time.Second} { // the process saves its work
					look.Hosts[0].AskedAt = noon(1).Add(after)
					plan, before, _ = rules.Judge(policy, look, before, noon(1).Add(after))
					require.Empty(t, plan.Orders)
				}
				before = before.Learn(order.OfHost{Host: host, Order: order.Order{ID: "r"}}, nil, noon(1).Add(10*time.Second))

				plan, before, events = rules.Judge(policy, look, before, noon(1).Add(11*time.Second))
				require.Empty(t, plan.Orders)
				for i := range events {
					require.NotEqual(t, enforce.EventNew, events[i].Kind, "what is gone isn't found again")
				}
				require.Empty(t, plan.Ask, "the next tick brings a look")

				look.Hosts[0].AskedAt, look.Hosts[0].Round = noon(3), 3
				_, before, _ = rules.Judge(policy, look, before, noon(3))
				look.Hosts[0].AskedAt, look.Hosts[0].Round = noon(4), 4
				plan, _, _ = rules.Judge(policy, look, before, noon(4))
				require.Len(t, plan.Orders, 1)
			})
		}
	}
}

// What an order left is found again at once, though the look is one from before its outcome.
func TestALookBeforeARefusal(t *testing.T) {
	policy := stated{all: enforce.Settings{MaxDevices: new(1)}}
	for status, found := range map[order.OutcomeStatus]int{order.StatusDetached: 0, order.StatusRefused: 1, order.StatusFailed: 1, order.StatusUnknown: 1} {
		look := parseCluster(t, "a | env 1 alice u1001 | dev 0 1@01 | dev 1 1@02")
		look.Hosts[0].AskedAt, look.Hosts[0].Round = noon(0), 1
		plan, before, _ := rules.Judge(policy, look, enforce.Memory{}, noon(0))
		plan.Orders[0].Order.ID = "r"
		before = before.Begin(plan.Orders[0], noon(0)).Learn(plan.Orders[0], []order.Outcome{{Status: status}}, noon(1))
		plan, _, _ = rules.Judge(policy, look, before, noon(1))
		require.Len(t, plan.Findings, found, status)
		require.Empty(t, plan.Orders)
	}
}

// What is remembered of a host goes with the host.
func TestHostsThatLeaveAreForgotten(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true}}
	cluster := parseCluster(t, `a | dev 0 | proc 5 - 0:10`)
	for _, outcome := range []order.Outcome{{PID: 5, Status: order.StatusRefused}, {PID: 5, Status: order.StatusSurvived}} {
		var memory controllerMemory
		plan := memory.Judge(policy, cluster, noon(0))
		memory.Learn("a", plan.Orders[0].Order, []order.Outcome{outcome})
		memory.Judge(policy, parseCluster(t, "a | down\nb | dev 0"), noon(1))
		require.NotZero(t, len(memory.Stuck)+len(memory.RetryAt), "it is only down")
		memory.Judge(policy, parseCluster(t, `b | dev 0`), noon(2))
		require.Zero(t, len(memory.Stuck)+len(memory.RetryAt))
		require.NotContains(t, memory.Hosts, snapshot.Hostname("a"))
	}
}

// Users over a cap on a host that makes them up don't use up the events of others.
func TestEventsOfCapsAreCountedByHost(t *testing.T) {
	text := "a | dev 0"
	for i := range 400 {
		text = fmt.Sprintf("%s | env %d made-up-%d", text, 1000+i, i)
	}
	text += " | dev 1"
	for i := range 400 {
		text += fmt.Sprintf(" %d@01", 1000+i)
	}
	text += "\nb | env 1 zoe | dev 0 1@01"
	policy := stated{all: enforce.Settings{MaxDevices: new(0), Warn: enforce.Warn{Cycles: 3}}, fleet: enforce.Fleet{NotifyUsers: true}}
	var memory controllerMemory
	memory.Judge(policy, parseCluster(t, text), noon(0))
	got := eventText(memory.events)
	require.Contains(t, got, "new zoe wait")
	require.Contains(t, got, "notify zoe wait")
	require.Len(t, memory.events, 2*256+1+2)
}

// A host with 16 orders under way gets no other, and its findings wait.
func TestOrdersOfAHostAreBounded(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true}}
	var memory controllerMemory
	for i := range 17 {
		text := "b | dev 0 | proc 5 - 0:10\na | dev 0"
		for pid := range i + 1 {
			text += fmt.Sprintf(" | proc %d - 0:10", pid+1)
		}
		plan := memory.Judge(policy, parseCluster(t, text), noon(i))
		if i == 16 {
			require.Equal(t, "b end 5", planText(plan))
			f := plan.Findings[len(plan.Findings)-1]
			require.Equal(t, enforce.DecisionWait, f.Decision())
			require.Equal(t, "16 orders are under way on the host", f.BlockedBy)
			break
		}
		for _, o := range plan.Orders {
			if o.Host == "a" {
				o.Order.ID = fmt.Sprint(i)
				memory.Memory = memory.Begin(o, noon(i))
			}
		}
	}
}

// A host that warns of something else at each look doesn't fill the screen: what is new of it waits for the next tick.
func TestTheNotesOfAnInterval(t *testing.T) {
	var memory enforce.Memory
	said := 0
	for look := range 10 {
		round := 1 + look/9
		s := &snapshot.Snapshot{}
		for i := range 100 {
			s.Warnings = append(s.Warnings, fmt.Sprint("warning ", look, " ", i))
		}
		hosts := []snapshot.Host{{Name: "a", Snapshot: s, Round: round, AskedAt: noon(look), IsNew: true}}
		var events []enforce.Event
		_, memory, events = rules.Judge(stated{}, snapshot.Cluster{Hosts: hosts}, memory, noon(look))
		said += len(events)
		require.Equal(t, []int{100, 200, 256, 256, 256, 256, 256, 256, 256, 356}[look], said, look)
	}
}
