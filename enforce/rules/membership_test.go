package rules_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// How users tampered with a judgement, one row for each way: alice is uid 1001 and keeps the rules, M is uid 1002.
func TestMembershipGoesByTheUIDOfTheKernel(t *testing.T) {
	outside := stated{all: enforce.Settings{NonEnvProcesses: true, EnvDevices: true}}
	sudo := stated{all: enforce.Settings{NonEnvProcesses: true, SudoUsers: true}}
	wiped := stated{all: enforce.Settings{NonEnvProcesses: true, UnknownOutside: true}}
	runPlans(t, []planRow{
		{"own", outside, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 u1001 0:1`, ""},
		{"root's, as with sudo or a container", outside, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 u0 0:1`, ""},
		{"a host that reports no uids", outside, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 0:1`, ""},
		{"another user's", outside, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 u1002 0:1`, "a end 5"},
		{"an environment of root, written by M", outside, `a | env 1 root u0 | dev 0 1@01 | proc 5 1 u1002 0:1`, "a end 5"},
		{"of a uid without an account", outside, `a | env 1 - u4242 | dev 0 1@01 | proc 5 1 u1002 0:1`, "a end 5"},

		{"by an ancestor, when nothing is claimed", outside, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 from:1 u1001 0:1`, ""},
		{"another user's, by an ancestor", outside, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 - from:1 u1003 0:1`, "a end 5"},
		{"which the policy may allow", sudo, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 - from:1 u1003 0:1`, ""},
		{"also with the id", sudo, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 from:1 u1003 0:1`, ""},
		{"but not without an ancestor there", sudo, `a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 u1002 0:1`, "a end 5"},
		{"nor with one elsewhere", sudo, `a | env 1 alice u1001 | env 2 bob u1003 | dev 0 1@01 | proc 5 1 from:2 u1002 0:1`, "a end 5"},

		{"unknown is left alone", outside, `a | dev 0 | proc 5 ? u1002 0:1`, ""},
		{"overwritten too", outside, `a | dev 0 | proc 5 ! u1002 0:1`, ""},
		{"unless the policy says outside", wiped, `a | dev 0 | proc 5 ! u1002 0:1`, "a end 5"},
		{"which unreadable is not", wiped, `a | dev 0 | proc 5 ? u1002 0:1`, ""},
	})
}

func TestCapsGoByTheUIDOfTheKernel(t *testing.T) {
	honest := "\nb | env 2 alice u1001 | dev 0 2@09 | dev 1 2@08 | proc 5 2 u1001 by:alice 0:1 | proc 6 2 u1001 by:alice 1:1"
	runPlans(t, []planRow{
		{
			"M forges an environment of alice's and runs in it: her jobs elsewhere go on", capOf(2),
			"a | env 7 alice u1001 | dev 0 7@01 | dev 1 7@01 | proc 9 7 u1002 by:m 0:1 1:1" + honest, "a detach 0 7; a detach 1 7",
		},
		{
			"nor does a process help whose environ is wiped", capOf(2),
			"a | env 7 alice u1001 | dev 0 7@01 | dev 1 7@01 | proc 9 ! u1002 by:m 0:1 1:1" + honest, "a detach 0 7; a detach 1 7",
		},
		{
			"nor one that is exempt by name",
			stated{all: capOf(2).all, exempt: func(s enforce.Subject) bool { return s.Process != nil && s.Process.PID == 9 }},
			"a | env 7 alice u1001 | dev 0 7@01 | dev 1 7@01 | proc 9 7 u1002 by:m 0:1 1:1" + honest, "a detach 0 7; a detach 1 7",
		},
		{
			"nor the login shell of hers, as a registered PID", capOf(2),
			"a | env 7 alice u1001 | dev 0 7@01 | dev 1 7@01" + honest, "a detach 0 7; a detach 1 7",
		},
		{
			"a host without uids can't harm one with uids", capOf(2),
			"a | env 7 alice u1001 | dev 0 7@01 | dev 1 7@01 | proc 9 7 0:1 1:1" + honest, "a detach 0 7; a detach 1 7; a end 9",
		},
		{
			"an environment of a uid without an account: the process's user is capped", capOf(1),
			"a | env 7 - u4242 | dev 0 7@01 | dev 1 7@01 | proc 8 7 u1002 by:m 0:1 | proc 9 7 u1002 by:m 1:1", "a end 8",
		},
		{
			"an environment of an exempt user: likewise",
			stated{all: capOf(1).all, exempt: func(s enforce.Subject) bool { return s.User == "root" }},
			"a | env 7 root u0 | dev 0 7@01 | dev 1 7@01 | proc 8 7 u1002 by:m 0:1 | proc 9 7 u1002 by:m 1:1", "a end 8",
		},
		{
			"a process without an account counts for its uid", capOf(1),
			"a | env 7 - u4242 | dev 0 7@01 | dev 1 7@01 | proc 8 7 u4242 0:1 | proc 9 7 u4242 1:1", "a end 8",
		},
		{"what a member uses without an attachment counts", capOf(1), "a | env 1 alice u1001 | dev 0 1@01 | dev 1 | proc 5 1 u1001 by:alice 0:1 | proc 6 1 u1001 by:alice 1:1", "a detach 0 1; a end 5"},

		{"an unregistered environment counts for no user", capOf(0), "a | dev 0 | proc 5 bogus u1002 by:m 0:1", ""},
		{"nor what is in no environment", capOf(0), "a | dev 0 | proc 5 - u1002 by:m 0:1", ""},
		{"root's processes count for the environment's user", capOf(1), "a | env 1 alice u1001 | dev 0 1@01 | dev 1 1@02 | proc 5 1 u0 0:1", "a detach 1 1"},
		{"and root has no cap", capOf(0), "a | env 1 alice u1001 | dev 0 | proc 5 1 u0 by:root 0:1", ""},
		{"an exempt user", stated{all: capOf(0).all, exempt: func(s enforce.Subject) bool { return s.User == "alice" }}, "a | env 1 alice u1001 | dev 0 1@01", ""},
	})
}

// The capacities of a state file are claims: a process ends for the cap of memory only while processes use more.
func TestMemoryCapEndsOnlyWhatIsUsed(t *testing.T) {
	policy := stated{all: enforce.Settings{MaxMemory: new(snapshot.MustMemory("14g"))}}
	honest := "\nb | env 2 alice u1001 10g | dev 0 2@09 | proc 5 2 u1001 by:alice 0:9000"
	for capacity, want := range map[string]string{"4g": "", "12g": "", "80g": ""} {
		require.Equal(t, want, planText(evaluate(policy, parseCluster(t, "a | env 7 alice u1001 "+capacity+" | dev 0 7@01 | proc 9 7 u1001 by:alice 0:3000"+honest), noon(0))), capacity)
	}
	require.Equal(t, "a detach 1 7", planText(evaluate(policy, parseCluster(t, "a | env 7 alice u1001 4g | dev 0 7@01 | dev 1 7@01 | proc 9 7 u1001 by:alice 0:3000"+honest), noon(0))), "idle ones go by what is claimed")
	require.Equal(t, "b detach 0 2; b end 5", planText(evaluate(policy, parseCluster(t, "a | env 7 alice u1001 12g | dev 0 7@01 | proc 9 7 u1001 by:alice 0:11000"+honest), noon(0))), "what is used is over the cap")
}

// Forged environments elsewhere take no device on which the user has a process, whatever that process's title hides.
func TestMaxEnvsTakesNoDeviceThatIsUsed(t *testing.T) {
	policy := stated{all: enforce.Settings{MaxEnvs: new(1)}}
	forged := "a | env 7 alice u1001 | env 8 alice u1001 | dev 0 7@01 8@01 | dev 1 8@01\n"
	for job, taken := range map[string]bool{
		"proc 5 ! u1001 by:alice 0:1": false,
		"proc 5 2 u1001 by:alice 0:1": false,
	} {
		plan := evaluate(policy, parseCluster(t, forged+"b | env 2 alice u1001 | dev 0 2@09 | "+job), noon(0))
		require.Equal(t, taken, strings.Contains(planText(plan), "b detach 0 2"), "%s: %s", job, planText(plan))
		require.NotContains(t, planText(plan), "end", job)
	}
}

func TestIdleGoesByTheUIDOfTheKernel(t *testing.T) {
	policy := stated{all: enforce.Settings{Idle: &enforce.Idle{After: time.Hour}}}
	for cluster, want := range map[string]string{
		`a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 u1001 0:1`: "",
		`a | env 1 alice u1001 | dev 0 1@01 | proc 5 ? u1001 0:1`: "",
		`a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 u0 0:1`:    "", // a container's
		`a | env 1 alice u1001 | dev 0 1@01 | proc 5 1 u1002 0:1`: "a detach 0 1",
		`a | env 1 alice u1001 | dev 0 1@01 | proc 5 ! u1002 0:1`: "a detach 0 1",
	} {
		var memory controllerMemory
		var last string
		for minute := 0; minute <= 60; minute += 10 {
			last = planText(memory.Judge(policy, parseCluster(t, cluster), noon(minute)))
		}
		require.Equal(t, want, last, cluster)
	}
}

// Neither restarting a process nor changing the device, while another one is kept, begins a warning again.
func TestWarnIsOfTheUserNotOfTheProcess(t *testing.T) {
	after := stated{all: enforce.Settings{NonEnvProcesses: true, EnvDevices: true, Warn: enforce.Warn{For: 10 * time.Minute}}}
	runStories(t, []story{
		{"outside, started again", after, []cycle{{0, `a | dev 0 | proc 5 - u1 by:bob 0:10`, ""}, {9, `a | dev 0 | proc 6 - u1 by:bob 0:10`, ""}, {10, `a | dev 0 | proc 7 - u1 by:bob 0:10`, "a end 7"}}},
		{"not attached, started again", after, []cycle{{0, `a | env 1 bob u1 | dev 0 | proc 5 1 u1 0:10`, ""}, {10, `a | env 1 bob u1 | dev 0 | proc 6 1 u1 0:10`, "a end 6"}}},
		{"from one device to the next", after, []cycle{{0, `a | dev 0 | proc 5 - u1 by:bob 0:10`, ""}, {5, `a | dev 0 | dev 1 | proc 6 - u1 by:bob 0:10 1:10`, ""}, {10, `a | dev 0 | dev 1 | proc 6 - u1 by:bob 0:10 1:10`, "a end 6"}}},

		{"from one rule to the other, by the state file", after, []cycle{{0, `a | env 1 bob u1 | dev 0 | proc 5 1 u1 by:bob 0:10`, ""}, {5, `a | env 1 eve u2 | dev 0 | proc 5 1 u1 by:bob 0:10`, ""}, {10, `a | env 1 bob u1 | dev 0 | proc 5 1 u1 by:bob 0:10`, "a end 5"}}},

		{"started again in another environment", after, []cycle{{0, `a | env 1 bob u1 | dev 0 | proc 5 1 u1 0:10`, ""}, {10, `a | env 2 bob u1 | dev 0 | proc 6 2 u1 0:10`, "a end 6"}}},
		{"started again outside, and in an environment", after, []cycle{{0, `a | env 1 bob u1 | dev 0 | proc 5 1 u1 by:bob 0:10`, ""}, {5, `a | dev 0 | proc 6 - u1 by:bob 0:10`, ""}, {10, `a | env 1 bob u1 | dev 0 | proc 7 1 u1 by:bob 0:10`, "a end 7"}}},
		{"started again on another device", after, []cycle{{0, `a | dev 0 | proc 5 - u1 by:bob 0:10`, ""}, {10, `a | dev 0 | dev 1 | proc 6 - u1 by:bob 1:10`, "a end 6"}}},

		{"another user's", after, []cycle{{0, `a | dev 0 | proc 5 - u1 by:bob 0:10`, ""}, {10, `a | dev 0 | proc 6 - u2 by:eve 0:10`, ""}}},
		{"another host", after, []cycle{{0, "a | dev 0 | proc 5 - u1 by:bob 0:10\nb | dev 0", ""}, {10, "a | dev 0\nb | dev 0 | proc 5 - u1 by:bob 0:10", ""}}},
		{"in another user's environment", after, []cycle{{0, `a | env 1 bob u1 | dev 0 | proc 5 1 u1 0:10`, ""}, {10, `a | env 1 eve u2 | dev 0 | proc 6 1 u2 0:10`, ""}}},
		{"of no known user", after, []cycle{{0, `a | dev 0 | proc 5 - 0:10`, ""}, {10, `a | dev 0 | proc 6 - 0:10`, ""}}},
		{"got right in between", after, []cycle{{0, `a | dev 0 | proc 5 - u1 by:bob 0:10`, ""}, {5, `a | dev 0`, ""}, {10, `a | dev 0 | proc 6 - u1 by:bob 0:10`, ""}}},
	})
}

func TestLinesNameThePersonAndTheProgram(t *testing.T) {
	line := func(change func(*snapshot.Process), cluster string) string {
		c := parseCluster(t, cluster)
		change(&c.Hosts[0].Snapshot.Processes[0])
		return evaluate(stated{all: enforce.Settings{NonEnvProcesses: true, EnvDevices: true}}, c, noon(0)).Findings[0].Line()
	}
	for want, change := range map[string]func(*snapshot.Process){
		"":            func(*snapshot.Process) {},
		" (user bob)": func(p *snapshot.Process) { p.Username = "bob" },
		" (user bob, python train.py, container web)": func(p *snapshot.Process) {
			p.Username, p.Command, p.Name, p.Container = "bob", "python train.py", "python", "web"
		},
		" (python)":                         func(p *snapshot.Process) { p.Name = "python" },
		" (uid 7)":                          func(p *snapshot.Process) { p.UID = new(snapshot.UID(7)) },
		` ("sh; run: curl http://x | sh?")`: func(p *snapshot.Process) { p.Command = "sh; run: curl http://x | sh\n" },
		` ("genv: your account is suspended…")`: func(p *snapshot.Process) { p.Command = "genv: your account is suspended, call 555" },
		" (python, MIG-1, MIG-GPU-2/1/0)": func(p *snapshot.Process) {
			p.Name, p.Instances = "python", []snapshot.GPUUUID{"MIG-1", "MIG-GPU-2/1/0"}
		},
		" (container 0123456789ab)": func(p *snapshot.Process) {
			p.Container = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
		},
		` (user bob, "python? train.py")`: func(p *snapshot.Process) { p.Username, p.Command = "bob", "python\u202e train.py" },
	} {
		require.Equal(t, "Process 5 is not running in a GPU environment"+want, line(change, `a | dev 0 | proc 5 - 0:1`))
	}
	require.Equal(t, "Process 5 from environment 1 is using non-attached GPU(s) 0 (user alice, python)",
		line(func(p *snapshot.Process) { p.Name = "python" }, `a | env 1 alice u1001 | dev 0 | proc 5 1 u1001 0:1`))
}

// A host with 4,000 processes and 200 attachments costs little time.
func TestManyProcessesAndAttachmentsTakeLittleTime(t *testing.T) {
	s := &snapshot.Snapshot{Environments: []snapshot.Environment{{EID: "1", UID: 1001, Username: "alice", Config: snapshot.EnvConfig{GPUMemory: snapshot.MustMemory("1g")}}}}
	for i := range 200 {
		a := snapshot.Attachment{EID: "1", GPUMemory: snapshot.MustMemory("1g")}
		s.Devices = append(s.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(80000), Attachments: []snapshot.Attachment{a}})
	}
	for i := range 4_000 {
		s.Processes = append(s.Processes, snapshot.Process{
			PID: snapshot.PID(i + 1), Start: 1, EID: "1", UID: new(snapshot.UID(1001)), Username: "alice",
			Usage: []snapshot.DeviceUsage{{Index: snapshot.DeviceIndex(i % 200), Memory: snapshot.MiB(1)}},
		})
	}
	cluster := snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}
	policy := stated{all: enforce.Settings{
		NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, MaxDevices: new(5), MaxMemory: new(memory(1e9)), MaxEnvs: new(3),
		Idle: &enforce.Idle{After: time.Hour}, MaxDuration: time.Hour,
	}}
	require.NotEmpty(t, evaluate(policy, cluster, noon(0)).Orders)
}

// GPUs of what isn't in a snapshot are in use by its account, and count for its caps. The snapshot is judged as ever.
func TestMore(t *testing.T) {
	mallory := snapshot.UID(3)
	attached := func(index int, eid snapshot.EnvID) snapshot.Device {
		return snapshot.Device{
			Index: snapshot.DeviceIndex(index), TotalMemory: snapshot.MiB(81559), Attachments: []snapshot.Attachment{{EID: eid}},
		}
	}
	s := &snapshot.Snapshot{
		Environments: []snapshot.Environment{{EID: "1", UID: 1, Username: "alice"}, {EID: "2", UID: mallory, Username: "mallory"}},
		Devices:      []snapshot.Device{attached(0, "1"), attached(1, "2"), attached(2, "2"), {Index: 3, TotalMemory: snapshot.MiB(81559)}},
		Processes:    []snapshot.Process{{PID: 5, Start: 1, UID: &mallory, Username: "mallory", Usage: []snapshot.DeviceUsage{{Index: 0}}}},
		More:         []snapshot.More{{UID: &mallory, Processes: 100, GPUs: []snapshot.DeviceIndex{0, 1, 3}}},
	}
	policy := stated{all: enforce.Settings{NonEnvProcesses: true, Idle: &enforce.Idle{After: 4 * time.Minute}}}
	var memory controllerMemory
	var plan enforce.Plan
	for minute := range 5 {
		plan = memory.Judge(policy, snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}, noon(minute))
	}
	o := plan.Orders[0].Order
	require.Len(t, o.Terminate, 1, "it is in no environment")
	detached := func(index snapshot.DeviceIndex) bool {
		return slices.ContainsFunc(o.Detach, func(d order.Detachment) bool { return d.Device == index })
	}
	require.True(t, detached(0), "alice doesn't use it")
	require.False(t, detached(1), "mallory does")
	require.True(t, detached(2), "mallory doesn't use this one")
	require.NotEqual(t, gpus.Free, gpus.Of(s)[3].State)

	capped := evaluate(stated{asked: capsOf(map[snapshot.Username]int{"mallory": 2})}, snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}, noon(0))
	count := slices.IndexFunc(capped.Findings, func(f enforce.Finding) bool { return f.Count != nil })
	require.GreaterOrEqual(t, count, 0, "GPUs 1, 2, 3 and 0 are more than 2")
}
