package rules_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// A process in a container of root's runtime counts for the user who started the
// container, if that is proved, and otherwise for no user, whatever its uid. alice is uid
// 1001, bob 1002; "in:" is a container on a host with an older genv.
func TestContainersCountForWhoStartedThem(t *testing.T) {
	outside := stated{all: enforce.Settings{NonEnvProcesses: true, EnvDevices: true}}
	memory := stated{all: enforce.Settings{EnvMemory: true}}
	bytes := snapshot.MustMemory("10gi")
	gib := stated{all: enforce.Settings{MaxMemory: &bytes}}
	runPlans(t, []planRow{
		{"in no environment", outside, `a | dev 0 | proc 5 - u0 started:? 0:1`, "a end 5"},
		{"in no environment, of a known user", outside, `a | dev 0 | proc 5 - u0 started:1001 0:1`, "a end 5"},
		{"the shim's: an environment alone", outside, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 u0 started:? 0:1`, ""},
		{"the hook's", outside, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 u0 started:1001 0:1`, ""},
		{"the hook's, as any uid", outside, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 u1003 started:1001 0:1`, ""},
		{"an environment that is not registered", outside, `a | dev 0 | proc 5 7 u0 started:? 0:1`, "a end 5"},
		{"of another user, proved", outside, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 u0 started:1002 0:1`, "a end 5"},
		{"of another user, proved, as alice", outside, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 u1001 started:1002 0:1`, "a end 5"},
		{"on a device of others", outside, `a | env 1 alice u1001 | dev 0 1@01 | dev 1 | proc 5 1 u0 started:? 1:1`, "a end 5"},

		{"a stranger's with alice's id, within her capacity", memory, `a | env 1 alice u1001 4g | dev 0 1@01 | proc 5 1 u1001 0:3000 | proc 6 1 u0 started:? 0:9`, ""},
		{"is the one to end beyond it", memory, `a | env 1 alice u1001 4g | dev 0 1@01 | proc 5 1 u1001 0:3000 | proc 6 1 u0 started:? 0:1000`, "a end 6"},
		{"as alice's own uid too", memory, `a | env 1 alice u1001 4g | dev 0 1@01 | proc 5 1 u1001 0:3000 | proc 6 1 u1001 started:? 0:1000`, "a end 6"},
		{"on a host with an older genv", memory, `a | env 1 alice u1001 4g | dev 0 1@01 | proc 5 1 u1001 0:1000 | proc 6 1 u0 in:web 0:3000`, "a end 6"},
		{"the larger one, and alice's stays", memory, `a | env 1 alice u1001 4g | dev 0 1@01 | proc 5 1 u1001 0:1000 | proc 6 1 u0 started:? 0:3000`, "a end 6"},
		{"alice's ends for what it uses alone", memory, `a | env 1 alice u1001 4g | dev 0 1@01 | proc 5 1 u1001 0:5000 | proc 6 1 u0 started:? 0:9`, "a end 5; a end 6"},
		{"alice's container is alice's", memory, `a | env 1 alice u1001 4g | dev 0 1@01 | proc 5 1 u1001 0:1000 | proc 6 1 u0 started:1001 0:3000`, "a end 5"},

		{"counts for no cap of alice's", capOf(1), `a | env 1 alice u1001 | dev 0 1@01 | dev 1 | proc 5 1 u0 started:? 1:1`, ""},
		{"as alice's own uid either", capOf(1), `a | env 1 alice u1001 | dev 0 1@01 | dev 1 | proc 5 1 u1001 started:? 1:1`, ""},
		{"a proved one does", capOf(1), `a | env 1 alice u1001 | dev 0 1@01 | dev 1 | proc 5 1 u0 started:1001 1:1`, "a detach 0 1"},
		{"the shim's counts by its attachment", capOf(1), `a | env 1 alice u1001 | dev 0 1@01 | dev 1 1@02 | proc 5 1 u0 started:? 0:1`, "a detach 1 1"},
		{"nor for one of memory", gib, `a | env 1 alice u1001 4g | dev 0 1@01 | dev 1 1@02 | proc 5 1 u0 started:? 0:9000 | proc 6 1 u1001 by:alice 1:100`, ""},
		{"nor on a host with an older genv", gib, `a | env 1 alice u1001 4g | dev 0 1@01 | dev 1 1@02 | proc 5 1 u0 in:web 0:9000 | proc 6 1 u1001 by:alice 1:100`, ""},
		{
			"is no proof that alice's device is busy: her job on another host goes on", capOf(1),
			"a | env 7 alice u1001 | dev 0 7@01 | proc 9 7 u1001 started:? 0:1\nb | env 2 alice u1001 | dev 0 2@09 | proc 5 2 u1001 by:alice 0:1",
			"a detach 0 7; a end 9",
		},
	})
}

// TestFindingsNameTheContainer: and no user who may not have started it.
func TestFindingsNameTheContainer(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true}}
	for words, want := range map[string]struct {
		user snapshot.Username
		uid  *snapshot.UID
		line string
	}{
		"u0 by:root started:?":        {"root", new(snapshot.UID(0)), " (user root, container web, started by an unknown user)"},
		"u0 by:root started:1002":     {"bob", new(snapshot.UID(1002)), " (user bob, container web, started by bob)"},
		"u1001 by:alice started:1002": {"bob", new(snapshot.UID(1002)), " (user bob, container web, started by bob)"},
		"u1001 by:alice started:?":    {"", nil, " (container web, started by an unknown user)"},
		"u1001 by:alice":              {"alice", new(snapshot.UID(1001)), " (user alice)"},
	} {
		plan := evaluate(policy, parseCluster(t, "a | dev 0 | proc 5 - "+words+" 0:1"), noon(0))
		require.Len(t, plan.Findings, 1, words)
		f := plan.Findings[0]
		require.Equal(t, want.user, f.User, words)
		require.Equal(t, want.uid, f.UID, words)
		require.Equal(t, "Process 5 is not running in a GPU environment"+want.line, f.Line(), words)
	}
}

// Notices in each form name the container to the user who is proved to have started it, and to no other user.
func TestNoticesNameTheContainer(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true}}
	cluster := parseCluster(t, "a | dev 0 | proc 5 - u1001 by:alice started:1002 0:1 | proc 6 - u1001 by:alice started:? 0:1")
	cluster.Hosts[0].Snapshot.Processes[0].ContainerInfo.Image = "lab/<x>:1"
	plan := evaluate(policy, cluster, noon(0))
	require.Len(t, plan.Findings, 2)
	owners := notify.NewRecipients(cluster)
	require.Empty(t, notify.Messages(&plan.Findings[1], owners, noon(0)), "alice may not know of it")
	notices := notify.Messages(&plan.Findings[0], owners, noon(0))
	require.Len(t, notices, 1)
	require.Equal(t, snapshot.UID(1002), notices[0].UID)
	const want = "Process 5 is not running in a GPU environment (user bob, container web (\"lab/<x>:1\"), started by bob)."
	_, body := (&mail.Letter{User: "bob", Items: notices}).Compose("help@example.org")
	require.Contains(t, notices[0].Line, want)
	require.Contains(t, body, "* a: "+want+"\n")
	data, err := json.Marshal(plan.Findings[0])
	require.NoError(t, err)
	require.Contains(t, string(data), `"container":"web","container_info":{"name":"web","image":"lab/\u003cx\u003e:1","started_by_uid":1002,"started_by":"bob","proof":"record"}`)
}

// TestAnUnprovedContainerHasNoSettingsOfAUser: running as alice doesn't give it hers.
func TestAnUnprovedContainerHasNoSettingsOfAUser(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true}, asked: ofUser("alice", func(s *enforce.Settings) { s.Warn.Cycles = 100 })}
	for words, want := range map[string]string{
		"u1001 by:alice": "", "u0 started:1001": "", "u1001 by:alice started:?": "a end 5", "u1001 by:alice started:1002": "a end 5",
	} {
		require.Equal(t, want, planText(evaluate(policy, parseCluster(t, "a | dev 0 | proc 5 - "+words+" 0:1"), noon(0))), words)
	}
}

// idleFor are cycles over an hour in which a host says the same, and what the last one does.
func idleFor(host, last string) (list []cycle) {
	for minute := 0; minute < 60; minute += 15 {
		list = append(list, cycle{minute, host, ""})
	}
	return append(list, cycle{60, host, last})
}

// A container from the docker shim has no proof of its user and uses the device of its
// environment: the device isn't idle, or the shim's users would lose what they use. That is
// no proof for a cap, which takes it before one that alice is proved to use.
func TestAContainerKeepsADeviceOfItsEnvironmentFromBeingIdle(t *testing.T) {
	hour := stated{all: enforce.Settings{Idle: &enforce.Idle{After: time.Hour}}}
	five := stated{all: enforce.Settings{Idle: &enforce.Idle{After: time.Hour, Below: 5}}}
	leave := stated{all: enforce.Settings{Idle: &enforce.Idle{After: time.Hour}, LeaveContainers: true}}
	both := stated{all: enforce.Settings{Idle: &enforce.Idle{After: time.Hour}, MaxDevices: new(1)}}
	const (
		alice    = "a | env 1 alice u1001 | dev 0 1@01"
		detached = "a detach 0 1"
	)
	runStories(t, []story{
		{"the shim's, as root", hour, idleFor(alice+" | proc 6 1 u0 started:? 0:1", "")},
		{"as another uid", hour, idleFor(alice+" | proc 6 1 u1003 started:? 0:1", "")},
		{"on a host with an older genv", hour, idleFor(alice+" | proc 6 1 u0 in:web 0:1", "")},
		{"alice's, proved", hour, idleFor(alice+" | proc 6 1 u0 started:1001 0:1", "")},
		{"its environment unknown", hour, idleFor(alice+" | proc 6 ? u0 started:? 0:1", "")},
		{"computing enough", five, idleFor("a | env 1 alice u1001 | dev 0 u5 1@01 | proc 6 1 u0 started:? 0:1", "")},
		{"left alone by policy", leave, idleFor(alice+" | proc 6 1 u0 started:? 0:1", "")},

		{"of another user, proved, with alice's id", hour, idleFor(alice+" | proc 6 1 u0 started:1002 0:1", detached)},
		{"of another user, proved, as alice", hour, idleFor(alice+" | proc 6 1 u1001 started:1002 0:1", detached)},
		{"in no environment", hour, idleFor(alice+" | proc 6 - u0 started:? 0:1", detached)},
		{"in no environment, as alice", hour, idleFor(alice+" | proc 6 - u1001 started:? 0:1", detached)},
		{"in one that isn't registered", hour, idleFor(alice+" | proc 6 7 u1001 started:? 0:1", detached)},
		{"in another environment of alice's", hour, idleFor("a | env 1 alice u1001 | env 2 alice u1001 | dev 0 1@01 | proc 6 2 u0 started:? 0:1", detached)},
		{"on another device", hour, idleFor("a | env 1 alice u1001 | dev 0 1@01 | dev 1 | proc 6 1 u0 started:? 1:1", detached)},
		{"computing next to nothing", five, idleFor("a | env 1 alice u1001 | dev 0 u4 1@01 | proc 6 1 u0 started:? 0:1", detached)},
		{"gone", hour, append(idleFor(alice+" | proc 6 1 u0 started:? 0:1", ""), cycle{75, alice, ""}, cycle{90, alice, ""}, cycle{105, alice, ""}, cycle{120, alice, ""}, cycle{135, alice, detached})},
		{"it isn't busy for a cap", both, []cycle{{0, "a | env 1 alice u1001 | dev 0 1@01 | dev 1 1@02 | proc 5 1 u1001 by:alice 1:1 | proc 6 1 u0 started:? 0:1", "a detach 0 1; a end 6"}}},
	})
}

// With containers: leave, what runs in a container of root's engine is left alone, and its memory counts against
// nothing.
func TestContainersThatAreLeftAlone(t *testing.T) {
	settings := enforce.Settings{NonEnvProcesses: true, EnvDevices: true, EnvMemory: true}
	judge, leave := stated{all: settings}, stated{all: settings}
	leave.all.LeaveContainers = true
	for _, row := range []struct{ cluster, judged, left string }{
		{`a | dev 0 | proc 5 - u0 started:? 0:1`, "a end 5", ""},
		{`a | dev 0 | proc 5 - u0 started:1001 0:1`, "a end 5", ""},
		{`a | env 1 alice u1001 | dev 0 | proc 5 1 u0 started:? 0:1`, "a end 5", ""},
		{`a | env 1 alice u1001 4g | dev 0 1@01 | proc 5 1 u0 started:1001 0:5000`, "a end 5", ""},
		{`a | env 1 alice u1001 4g | dev 0 1@01 | proc 5 1 u1001 by:alice 0:3000 | proc 6 1 u0 started:1001 0:9000`, "a end 6", ""},

		{`a | dev 0 | proc 5 - u1001 by:alice 0:1`, "a end 5", "a end 5"},
		{`a | dev 0 | proc 5 - u0 by:root 0:1`, "a end 5", "a end 5"},
		{`a | dev 0 | proc 5 - u0 in:web 0:1`, "a end 5", "a end 5"}, // an older genv doesn't say in what container
		{`a | dev 0 | proc 5 - u1001 by:alice rootless:1001 0:1`, "a end 5", "a end 5"},
		{`a | env 1 alice u1001 4g | dev 0 1@01 | proc 5 1 u1001 by:alice 0:5000 | proc 6 1 u0 started:? 0:9000`, "a end 5; a end 6", "a end 5"},
	} {
		require.Equal(t, row.judged, planText(evaluate(judge, parseCluster(t, row.cluster), noon(0))), row.cluster)
		require.Equal(t, row.left, planText(evaluate(leave, parseCluster(t, row.cluster), noon(0))), row.cluster)
	}
}

// Someone who starts containers with alice's id doesn't have her actions held back: they are directed against no user.
func TestUnprovedContainersUseUpNoUsersLimit(t *testing.T) {
	policy := stated{all: enforce.Settings{EnvDevices: true, EnvMemory: true}, fleet: enforce.Fleet{Limits: safety.Limits{PerUser: safety.Limit{Terminations: 1}}}}
	const own = `a | env 1 alice u1001 4g | dev 0 1@01 | dev 1 | proc 5 1 u1001 by:alice 1:1`
	for cluster, want := range map[string]string{
		own: "a end 5",
		own + ` | proc 6 1 u0 by:root started:? 1:1 | proc 7 1 u1001 by:alice started:? 1:1 | proc 8 1 u0 in:web 1:1`: "a end 5; a end 6; a end 7; a end 8",
		own + ` | proc 6 1 u1001 started:? 0:5000 | proc 7 1 u0 started:? 0:5000`:                                     "a end 5; a end 6; a end 7",

		own + ` | proc 6 1 u0 started:1001 1:1`:   "",
		own + ` | proc 6 1 u1001 by:alice 0:5000`: "",
		own + ` | proc 6 1 u0 by:root 1:1`:        "", // what she started with sudo
	} {
		require.Equal(t, want, planText(evaluate(policy, parseCluster(t, cluster), noon(0))), cluster)
	}
}

// An exempt environment is so with its members, with containers that carry its id, but not with proved ones of others.
func TestContainersInAnExemptEnvironment(t *testing.T) {
	policy := stated{
		all: enforce.Settings{NonEnvProcesses: true, EnvDevices: true, EnvMemory: true},
		exempt: func(s enforce.Subject) bool {
			return s.Process == nil && s.Environment != nil && s.Environment.EID == "1"
		},
	}
	const host = "a | env 1 alice u1001 4g | env 2 alice u1001 | dev 0 | dev 1 1@01 | proc 5 "
	for process, want := range map[string]string{
		"1 u0 started:? 0:1": "", "1 u1001 started:? 1:5000": "", "1 u0 started:1001 0:1": "",
		"1 u0 started:1002 0:1": "a end 5", "1 u1001 started:1002 1:1": "a end 5", "2 u0 started:? 0:1": "a end 5", "- u1001 started:? 1:1": "a end 5",
	} {
		require.Equal(t, want, planText(evaluate(policy, parseCluster(t, host+process), noon(0))), process)
	}
}
