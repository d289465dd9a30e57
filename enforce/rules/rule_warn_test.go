package rules_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// lasting is a warning of some minutes.
func lasting(minutes int) enforce.Warn {
	return enforce.Warn{For: time.Duration(minutes) * time.Minute}
}

// each is the same cluster at several minutes, with what is done at the last of them.
func each(cluster, want string, minutes ...int) []cycle {
	cycles := make([]cycle, len(minutes))
	for i, minute := range minutes {
		cycles[i] = cycle{minute, cluster, ""}
	}
	cycles[len(cycles)-1].want = want
	return cycles
}

func TestWarnOfARule(t *testing.T) {
	const (
		outside  = `a | dev 0 | proc 5 - u1 by:bob 0:10`
		foreign  = `a | env 1 bob u1 | dev 0 | proc 5 1 u1 by:bob 0:10`
		overfull = `a | env 1 alice 1g | dev 0 1@01 | proc 5 1 0:2000`
		old      = `a | dev 0 | proc 5 - u1 started-at:9 by:bob 0:10`
		unused   = `a | env 1 alice | dev 0 1@01`
	)
	rules := enforce.Settings{NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, Warn: lasting(10)}
	own := func(warns map[enforce.Rule]enforce.Warn, changes ...func(*enforce.Settings)) stated {
		policy := stated{all: rules}
		policy.all.RuleWarns = warns
		for _, change := range changes {
			change(&policy.all)
		}
		return policy
	}
	outsiders := own(map[enforce.Rule]enforce.Warn{enforce.RuleNonEnvProcesses: lasting(30)})
	cap0 := func(s *enforce.Settings) { s.MaxDevices = new(0) }
	aged := func(s *enforce.Settings) { s.MaxProcessAge = 12 * time.Hour }
	idle := func(warn *enforce.Warn) stated {
		return own(nil, func(s *enforce.Settings) { s.Idle = &enforce.Idle{After: 4 * time.Minute, Warn: warn} })
	}
	ofBob := stated{all: rules, asked: ofUser("bob", func(s *enforce.Settings) {
		s.RuleWarns = map[enforce.Rule]enforce.Warn{enforce.RuleNonEnvProcesses: lasting(30)}
	})}
	runStories(t, []story{
		{"longer than that of all rules", outsiders, each(outside, "a end 5", 0, 10, 29, 30)},
		{"another rule has that of all rules", outsiders, each(foreign, "a end 5", 0, 9, 10)},
		{"shorter", own(map[enforce.Rule]enforce.Warn{enforce.RuleMaxDevicesPerUser: lasting(5)}, cap0), each(busyDevice, "a detach 0 1; a end 5", 0, 4, 5)},
		{"of memory", own(map[enforce.Rule]enforce.Warn{enforce.RuleEnvMemory: lasting(20)}), each(overfull, "a end 5", 0, 10, 19, 20)},
		{"in cycles", own(map[enforce.Rule]enforce.Warn{enforce.RuleNonEnvProcesses: {Cycles: 2}}), each(outside, "a end 5", 0, 1, 2)},
		{"none", own(map[enforce.Rule]enforce.Warn{enforce.RuleNonEnvProcesses: {}}), each(outside, "a end 5", 0)},
		{"none for another rule", own(map[enforce.Rule]enforce.Warn{enforce.RuleEnvDevices: {}}), each(outside, "a end 5", 0, 9, 10)},
		{"of the user of the process", ofBob, each(outside, "a end 5", 0, 10, 29, 30)},
		{"not of another user", ofBob, each(`a | dev 0 | proc 5 - u2 by:eve 0:10`, "a end 5", 0, 9, 10)},

		{"idle, its own", idle(new(lasting(3))), each(unused, "a detach 0 1", 0, 1, 2, 3, 4, 5, 6, 7)},
		{"idle, none", idle(new(enforce.Warn{})), each(unused, "a detach 0 1", 0, 1, 2, 3, 4)},
		{"idle, that of all rules", idle(nil), each(unused, "a detach 0 1", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)},

		{"under two rules, whichever is due first", own(map[enforce.Rule]enforce.Warn{enforce.RuleMaxProcessAge: lasting(20), enforce.RuleNonEnvProcesses: lasting(30)}, aged), each(old, "a end 5", 0, 10, 19, 20)},
		{"from one rule to a shorter one, whose time begins", outsiders, []cycle{{0, outside, ""}, {12, foreign, ""}, {21, foreign, ""}, {22, foreign, "a end 5"}}},
		{"from one rule to a longer one, from the first on", outsiders, []cycle{{0, foreign, ""}, {9, outside, ""}, {29, outside, ""}, {30, outside, "a end 5"}}},
		{"from rule to rule, within the longest", outsiders, []cycle{
			{0, foreign, ""}, {9, outside, ""}, {18, foreign, ""}, {27, outside, ""}, {29, foreign, ""}, {30, foreign, "a end 5"},
		}},
		{"from rule to rule, started again each time", outsiders, []cycle{
			{0, `a | env 1 bob u1 | dev 0 | proc 5 1 u1 by:bob 0:10`, ""},
			{9, `a | dev 0 | proc 6 - u1 by:bob 0:10`, ""},
			{18, `a | env 2 bob u1 | dev 0 | proc 7 2 u1 by:bob 0:10`, ""},
			{27, `a | dev 0 | proc 8 - u1 by:bob 0:10`, ""},
			{30, `a | env 3 bob u1 | dev 0 | proc 9 3 u1 by:bob 0:10`, "a end 9"},
		}},
		{"from device to device", outsiders, []cycle{
			{0, `a | env 1 bob u1 | dev 0 | dev 1 | proc 5 1 u1 by:bob 0:10`, ""}, {10, `a | env 1 bob u1 | dev 0 | dev 1 | proc 5 1 u1 by:bob 1:10`, "a end 5"},
		}},
		{"got right in between", outsiders, []cycle{{0, outside, ""}, {25, `a | dev 0`, ""}, {30, outside, ""}, {59, outside, ""}, {60, outside, "a end 5"}}},
	})
}

// What is said of the time is what happens.
func TestDueBetweenTwoRules(t *testing.T) {
	var memory controllerMemory
	policy := stated{all: enforce.Settings{
		NonEnvProcesses: true, EnvDevices: true, Warn: lasting(10), RuleWarns: map[enforce.Rule]enforce.Warn{enforce.RuleNonEnvProcesses: lasting(30)},
	}}
	for _, step := range []struct {
		minute  int
		cluster string
		due     int
	}{
		{0, `a | dev 0 | proc 5 - u1 by:bob 0:10`, 30},
		{12, `a | env 1 bob u1 | dev 0 | proc 5 1 u1 by:bob 0:10`, 22},
		{15, `a | dev 0 | proc 5 - u1 by:bob 0:10`, 30},
		{25, `a | env 1 bob u1 | dev 0 | proc 5 1 u1 by:bob 0:10`, 30},
	} {
		f := memory.Judge(policy, parseCluster(t, step.cluster), noon(step.minute)).Findings[0]
		require.True(t, f.Pending)
		require.Equal(t, noon(step.due), f.Due)
	}
}

// The rules between which a user can move a process have a time in common. Each rule must be here.
func TestRulesWithATimeInCommon(t *testing.T) {
	const (
		outside  = `a | dev 0 | proc 5 - u1 by:bob 0:10`
		foreign  = `a | env 1 bob u1 | dev 0 | proc 5 1 u1 by:bob 0:10`
		attached = `a | env 1 bob u1 1g | dev 0 1@01 | proc 5 1 u1 by:bob started-at:9 0:2000`
		unused   = `a | env 1 bob u1 | dev 0 1@01`
	)
	all := enforce.Settings{
		NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, EndUnreadable: true, MaxProcessAge: 12 * time.Hour, MaxDuration: time.Hour,
		Idle: &enforce.Idle{}, MaxDevices: new(0), MaxMemory: new(snapshot.MiB(1)), MaxEnvs: new(0), Warn: lasting(10),
	}
	rows := map[enforce.Rule]struct {
		cluster  string
		inCommon bool
	}{
		enforce.RuleNonEnvProcesses: {outside, true},
		enforce.RuleUnreadable:      {`a | dev 0 | proc 5 - u1 by:bob stalled:user 0:10`, true},
		enforce.RuleEnvDevices:      {foreign, true},

		enforce.RuleEnvMemory:         {attached, false},
		enforce.RuleMaxProcessAge:     {attached, false},
		enforce.RuleMaxDuration:       {unused, false},
		enforce.RuleIdle:              {unused, false},
		enforce.RuleMaxDevicesPerUser: {unused, false},
		enforce.RuleMaxMemoryPerUser:  {unused, false},
		enforce.RuleMaxEnvsPerUser:    {unused, false},
	}
	for _, rule := range enforce.Rules() {
		if rule == enforce.RuleCaps || rule == enforce.RuleReservations { // whose lists are no settings
			continue
		}
		row, known := rows[rule]
		require.True(t, known, rule)
		var memory controllerMemory
		found := memory.Judge(stated{all: all}, parseCluster(t, row.cluster), noon(0)).Findings
		require.True(t, slices.ContainsFunc(found, func(f enforce.Finding) bool { return f.Rule == rule }), rule)
		ofProcess := func(key string) bool { return strings.HasPrefix(key, "process/") }
		require.Equal(t, row.inCommon, slices.ContainsFunc(slices.Collect(maps.Keys(memory.Present)), ofProcess), rule)
		if row.inCommon { // the keys of a process go with it: there may be many
			others := all
			others.RuleWarns = map[enforce.Rule]enforce.Warn{enforce.RuleNonEnvProcesses: lasting(30), enforce.RuleEnvDevices: lasting(30), rule: lasting(10)}
			memory.Judge(stated{all: others}, parseCluster(t, row.cluster), noon(1))
			require.Contains(t, memory.Present, string(rule)+"/a/5/1")
			memory.Judge(stated{all: others}, parseCluster(t, "a | dev 0"), noon(2))
			require.NotContains(t, memory.Present, string(rule)+"/a/5/1")
		}

		longer := all
		longer.RuleWarns = map[enforce.Rule]enforce.Warn{rule: lasting(30)}
		memory = controllerMemory{}
		memory.Judge(stated{all: longer}, parseCluster(t, foreign), noon(0))
		plan := memory.Judge(stated{all: longer}, parseCluster(t, outside), noon(10))
		require.Equal(t, row.inCommon, plan.Findings[0].Pending, "%s has the time of the longest of them", rule)
	}
}

// A reload with a shorter warning keeps the time that people were told; whoever is found later has the shorter one.
func TestAShorterWarningKeepsWhatWasTold(t *testing.T) {
	const alice, both = `a | dev 0 | dev 1 | proc 5 - u1001 by:alice 0:10`, `a | dev 0 | dev 1 | proc 5 - u1001 by:alice 0:10 | proc 6 - u1002 by:bob 1:10`
	scheduled := func(c *enforce.Cap) { c.Scheduled = true }
	for _, row := range []struct {
		rule      bool // not a cap
		change    []func(*enforce.Cap)
		five, six int // the minutes in which the two end
	}{{true, nil, 60, 31}, {false, nil, 60, 31}, {false, []func(*enforce.Cap){scheduled}, 46, 30}, {false, []func(*enforce.Cap){together}, 60, 60}, {false, []func(*enforce.Cap){together, scheduled}, 46, 51}} {
		var memory controllerMemory
		policy := stated{all: enforce.Settings{NonEnvProcesses: row.rule, CountOutside: !row.rule, Warn: lasting(60)}, list: capList{listed("none", 0, row.change...)}}
		ended := map[string]int{}
		for minute := range 70 {
			cluster := alice
			if minute > 20 {
				cluster, policy.all.Warn = both, lasting(10)
			}
			for _, did := range items(memory.Judge(policy, parseCluster(t, cluster), noon(minute))) {
				ended[did] = cmp.Or(ended[did], minute)
			}
		}
		require.Equal(t, map[string]int{"a end 5": row.five, "a end 6": row.six}, ended)
	}
}
