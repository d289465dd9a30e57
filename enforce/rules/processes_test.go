package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestOutside(t *testing.T) {
	for _, tt := range []struct {
		name    string
		eid     snapshot.EnvID
		because []string
		want    bool
	}{
		{"by the id of the finding", "1102", []string{"non-env-processes/a/7/1"}, true},
		{"by another finding", "1102", []string{"env-devices/a/7/1"}, false},
		{"in one through sudo, without an id", "", []string{"env-devices/a/7/1"}, false},
		{"for 1.4.3, with an id", "1102", nil, false},
		{"for 1.4.3, without an id", "", nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			item := order.Termination{Process: snapshot.Process{PID: 7, EID: tt.eid}, Reasons: order.Reasons{Because: tt.because}}
			require.Equal(t, tt.want, item.Outside())
		})
	}
}

func TestANoteQuotesTheEnvironment(t *testing.T) {
	used := []snapshot.DeviceUsage{{Index: 0}}
	s := &snapshot.Snapshot{
		Processes:    []snapshot.Process{{PID: 7, EID: persuasion, Usage: used}},
		Environments: []snapshot.Environment{{EID: persuasion, Username: "alice"}},
		Devices:      []snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(81559), Attachments: []snapshot.Attachment{{EID: persuasion, GPUMemory: snapshot.MiB(1)}}}},
	}
	c := snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}
	plan := evaluate(stated{all: enforce.Settings{EnvMemory: true}}, c, time.Time{})
	require.Len(t, plan.Notes, 1)
	require.Contains(t, plan.Notes[0].Text, `of environment "1 - run: curl x|sh" use on GPU 0`)
}

// TestUnreadableProcesses: they are findings, and end only if their user has caused it and the policy says so.
func TestUnreadableProcesses(t *testing.T) {
	const line = "Process 5 can't be judged: its memory does not answer"
	end := enforce.Settings{NonEnvProcesses: true, EndUnreadable: true}
	warn := end
	warn.Warn = enforce.Warn{Cycles: 2}
	for name, tt := range map[string]struct {
		settings enforce.Settings
		host     string
		decision enforce.Decision // of the finding; empty for none
	}{
		"reported":                   {enforce.Settings{NonEnvProcesses: true}, "a | dev 0 | proc 5 - u1002 0:1 stalled:user", enforce.DecisionNone},
		"without any rule":           {enforce.Settings{}, "a | dev 0 | proc 5 - u1002 0:1 stalled:user", enforce.DecisionNone},
		"ended":                      {end, "a | dev 0 | proc 5 - u1002 0:1 stalled:user", enforce.DecisionAct},
		"warned first":               {warn, "a | dev 0 | proc 5 - u1002 0:1 stalled:user", enforce.DecisionWait},
		"held by root's file system": {end, "a | dev 0 | proc 5 - u1002 0:1 stalled:nfs", enforce.DecisionNone},
		"of root":                    {end, "a | dev 0 | proc 5 - u0 0:1 stalled:user", enforce.DecisionNone},
		"of an unknown user":         {end, "a | dev 0 | proc 5 - 0:1 stalled:user", enforce.DecisionNone},
		"not read yet":               {end, "a | dev 0 | proc 5 ? u1002 0:1", ""},
		"overwritten":                {end, "a | dev 0 | proc 5 ! u1002 0:1", ""},
		"readable":                   {enforce.Settings{EndUnreadable: true}, "a | dev 0 | proc 5 - u1002 0:1", ""},
		"of an exempt user":          {end, "a | dev 0 | proc 5 - u1002 0:1 stalled:user by:exempted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			policy := stated{all: tt.settings, exempt: func(s enforce.Subject) bool { return s.Process != nil && s.Process.Username == "exempted" }}
			policy.fleet.NotifyUsers = true
			memory := controllerMemory{}
			plan := memory.Judge(policy, parseCluster(t, tt.host), time.Time{}.Add(time.Hour))
			if tt.decision == "" {
				require.Empty(t, plan.Findings)
				require.Empty(t, plan.Orders)
				return
			}
			require.Len(t, plan.Findings, 1)
			f := plan.Findings[0]
			require.Equal(t, enforce.RuleUnreadable, f.Rule)
			require.Equal(t, tt.decision, f.Decision())
			require.Equal(t, line, f.String())
			require.Equal(t, snapshot.PID(5), f.PID)
			require.Equal(t, tt.decision == enforce.DecisionAct, len(plan.Orders) == 1)
			notified := false
			for _, e := range memory.events {
				notified = notified || e.Kind == enforce.EventNotify
			}
			require.Equal(t, tt.decision != enforce.DecisionNone, notified, "an order alone is for the administrator")
		})
	}
}

// The hosts were booted 36 hours before noon.
func TestMaxProcessAge(t *testing.T) {
	all := enforce.Settings{MaxProcessAge: 12 * time.Hour}
	twelve := stated{all: all}
	with := func(change func(*enforce.Settings)) stated {
		policy := twelve
		change(&policy.all)
		return policy
	}
	exempt := func(s enforce.Subject) bool {
		if s.Process == nil {
			return false
		}
		user, _ := s.Process.CountsFor()
		return user == "bob"
	}
	outside := with(func(s *enforce.Settings) { s.UnknownOutside = true })
	ofBob := stated{asked: ofUser("bob", func(s *enforce.Settings) { s.MaxProcessAge = 12 * time.Hour })}
	unlessBob := stated{all: all, asked: ofUser("bob", func(s *enforce.Settings) { s.MaxProcessAge = 0 })}
	const bobs = `a | dev 0 | proc 5 - u1002 by:bob 0:1`
	runStories(t, []story{
		{"older than allowed", twelve, []cycle{{0, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 u1001 by:alice 0:1`, "a end 5"}}},
		{"a minute too old", twelve, []cycle{{1, `a | dev 0 | proc 5 - started-at:24 0:1`, "a end 5"}}},
		{"outside of any environment", twelve, []cycle{{0, bobs, "a end 5"}}},
		{"root's", twelve, []cycle{{0, `a | dev 0 | proc 5 - u0 by:root 0:1`, "a end 5"}}},
		{"each process for itself", twelve, []cycle{{0, `a | dev 0 | proc 5 - started-at:9 0:1 | proc 6 - started-at:30 0:1`, "a end 5"}}},
		{"of the user who has the limit", ofBob, []cycle{{0, bobs + ` | proc 6 - u1001 by:alice 0:1`, "a end 5"}}},
		{"in the environment of another user", ofBob, []cycle{{0, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 u1002 by:bob 0:1`, "a end 5"}}},
		{"an overwritten environ, if that is outside", outside, []cycle{{0, `a | dev 0 | proc 5 ! 0:1`, "a end 5"}}},
		{"after a warning of its own", with(func(s *enforce.Settings) { s.Warn.For = 10 * time.Minute }), []cycle{
			{0, `a | dev 0 | proc 5 - started-at:9 0:1 | proc 6 - started-at:24 0:1`, ""},
			{10, `a | dev 0 | proc 5 - started-at:9 0:1 | proc 6 - started-at:24 0:1`, "a end 5"},
			{20, `a | dev 0 | proc 6 - started-at:24 0:1`, "a end 6"},
		}},
		{"its memory is free then", with(func(s *enforce.Settings) { s.EnvMemory = true }), []cycle{
			{0, `a | env 1 alice 4g | dev 0 1@01 | proc 5 1 0:3000 | proc 6 1 started-at:30 0:3000`, "a end 5"},
		}},

		{"as old as allowed", twelve, []cycle{{0, `a | dev 0 | proc 5 - started-at:24 0:1`, ""}}},
		{"started in the future", twelve, []cycle{{0, `a | dev 0 | proc 5 - started-at:40 0:1`, ""}}},
		{"of unknown age", twelve, []cycle{{0, `a | dev 0 | proc 5 - started-at:? 0:1`, ""}}},
		{"no limit", stated{}, []cycle{{600, bobs, ""}}},
		{"no limit for the user", unlessBob, []cycle{{0, bobs, ""}}},
		{"an unknown environment", outside, []cycle{{0, `a | dev 0 | proc 5 ? 0:1`, ""}}},
		{"an overwritten environ", twelve, []cycle{{0, `a | dev 0 | proc 5 ! 0:1`, ""}}},
		{"an unreadable process", twelve, []cycle{{0, `a | dev 0 | proc 5 - stalled:user u1002 by:bob 0:1`, ""}}},
		{"a desktop's", twelve, []cycle{{0, `a | dev 0 screen | proc 5 - 0:1:G`, ""}}},
		{"exempt", stated{all: all, exempt: exempt}, []cycle{{0, bobs, ""}}},
		{"on an exempt GPU", stated{all: all, exempt: func(s enforce.Subject) bool { return s.Device != nil }}, []cycle{{0, bobs, ""}}},
		{"in a container that is left alone", with(func(s *enforce.Settings) { s.LeaveContainers = true }), []cycle{{0, `a | dev 0 | proc 5 - u1002 started:1002 0:1`, ""}}},
		{"another user's limit is not that of an unproved container", ofBob, []cycle{{0, `a | dev 0 | proc 5 - u1002 by:bob started:? 0:1`, ""}}},
		{"a host that is down", twelve, []cycle{{0, `a | down`, ""}}},
	})

	unknown := parseCluster(t, bobs)
	unknown.Hosts[0].Snapshot.Boot = time.Time{}
	require.Empty(t, evaluate(twelve, unknown, noon(0)).Orders, "when the host was booted is unknown")
	unknown = parseCluster(t, bobs)
	unknown.Hosts[0].Snapshot.Processes[0].NodeMissing = true
	require.Empty(t, evaluate(twelve, unknown, noon(0)).Orders, "the PID may be another process")
	guarded := parseCluster(t, bobs)
	guarded.Hosts[0].Snapshot.Processes[0].Protected = "sshd"
	require.Empty(t, evaluate(twelve, guarded, noon(0)).Orders, "a daemon")
}

func TestMaxProcessAgeIsSaid(t *testing.T) {
	f := evaluate(stated{all: enforce.Settings{MaxProcessAge: 12 * time.Hour}}, parseCluster(t, `a | dev 0 | proc 5 - u1002 by:bob 0:1`), noon(0)).Findings[0]
	require.Equal(t, "Process 5 has been running for 1d12h, and 12h are allowed (user bob)", f.Line())
	require.Equal(t, snapshot.Username("bob"), f.User)
	require.Contains(t, f.Advice(noEnvironment), "checkpoint")
}
