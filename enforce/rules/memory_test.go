package rules_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestWarn(t *testing.T) {
	outside := `a | dev 0 | proc 5 - 0:10`
	after := func(w enforce.Warn) stated { return stated{all: enforce.Settings{NonEnvProcesses: true, Warn: w}} }
	runStories(t, []story{
		{"at once", after(enforce.Warn{}), []cycle{{0, outside, "a end 5"}}},
		{"after a time", after(enforce.Warn{For: 10 * time.Minute}), []cycle{{0, outside, ""}, {9, outside, ""}, {10, outside, "a end 5"}, {11, outside, "a end 5"}}},
		{"after cycles", after(enforce.Warn{Cycles: 2}), []cycle{{0, outside, ""}, {1, outside, ""}, {2, outside, "a end 5"}}},
		{"after both", after(enforce.Warn{Cycles: 1, For: 10 * time.Minute}), []cycle{{0, outside, ""}, {1, outside, ""}, {10, outside, "a end 5"}}},

		{"a violation that ended in between starts over", after(enforce.Warn{For: 10 * time.Minute}), []cycle{{0, outside, ""}, {5, `a | dev 0`, ""}, {10, outside, ""}, {20, outside, "a end 5"}}},
		{"another process has its own time", after(enforce.Warn{For: 10 * time.Minute}), []cycle{{0, outside, ""}, {10, `a | dev 0 | proc 6 - 0:10`, ""}}},
		{"a host that did not answer in between", after(enforce.Warn{For: 10 * time.Minute}), []cycle{{0, outside, ""}, {5, `a | down`, ""}, {10, outside, ""}}},
		{"a cap", stated{all: enforce.Settings{MaxDevices: new(0), Warn: enforce.Warn{Cycles: 1}}}, []cycle{{0, busyDevice, ""}, {1, busyDevice, "a detach 0 1; a end 5"}}},
		{"memory", stated{all: enforce.Settings{EnvMemory: true, Warn: enforce.Warn{Cycles: 1}}}, []cycle{
			{0, `a | env 1 alice 1g | dev 0 1@01 | proc 5 1 0:2000`, ""}, {1, `a | env 1 alice 1g | dev 0 1@01 | proc 5 1 0:2000`, "a end 5"},
		}},
	})
}

// An earlier version kept indices.
func TestReleasedDevicesOfAnEarlierVersion(t *testing.T) {
	var memory controllerMemory
	require.NoError(t, json.Unmarshal([]byte(`{"time": "2026-11-20T11:00:00Z", "hosts": {"a": {"answered": true}}, "released": {"a/1/1": true}}`), &memory.Memory))
	policy := stated{all: enforce.Settings{EnvDevices: true}}
	for minute, cluster := range []string{
		`a | env 1 alice | dev 1 GPU-b u0 | proc 5 1 1:10`, `a | down`, `a | env 1 alice | dev 0 GPU-b u0 | proc 5 1 0:10`,
	} {
		require.Empty(t, memory.Judge(policy, parseCluster(t, cluster), noon(minute)).Orders, cluster)
	}
	require.Equal(t, map[snapshot.AttachmentKey]bool{{Host: "a", Device: "GPU-b", EID: "1"}: true}, memory.IdleDetached)
}

func TestAFindingThatWaitsSaysSo(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true, Warn: enforce.Warn{For: 10 * time.Minute}}}
	var memory controllerMemory
	cluster := parseCluster(t, `a | dev 0 | proc 5 - 0:10`)
	memory.Judge(policy, cluster, noon(0))
	f := memory.Judge(policy, cluster, noon(4)).Findings[0]
	require.True(t, f.Pending)
	require.Equal(t, 2, f.Cycles)
	require.Equal(t, noon(0), f.Since)
	require.Equal(t, noon(10), f.Due)
	require.Equal(t, []enforce.ProcessRef{{Host: "a", PID: 5}}, f.Terminate, "what will be done")
}

func TestMissingHosts(t *testing.T) {
	over := "a | env 1 alice | dev 0 1@01 | dev 1 1@02\nb | down"
	ignore := stated{all: enforce.Settings{MaxDevices: new(1)}}
	hold := stated{all: ignore.all, fleet: enforce.Fleet{PauseCaps: true}}
	spared := stated{all: ignore.all, fleet: hold.fleet, exempt: func(s enforce.Subject) bool { return s.Host == "b" && s.Process == nil }}
	runStories(t, []story{
		{"do not count", ignore, []cycle{{0, over, "a detach 1 1"}}},
		{"have caps wait", hold, []cycle{{0, over, ""}, {1, "a | env 1 alice | dev 0 1@01 | dev 1 1@02\nb", "a detach 1 1"}}},
		{
			"have nothing else wait",
			stated{all: enforce.Settings{NonEnvProcesses: true, MaxDuration: time.Hour}, fleet: hold.fleet},
			[]cycle{{9, "a | env 1 alice | dev 0 1@01 | proc 5 - 0:1\nb | down", "a detach 0 1; a end 5"}},
		},
		{"are waited for only if they matter", spared, []cycle{{0, over, "a detach 1 1"}}},
	})
	for _, policy := range []stated{ignore, hold} {
		plan := evaluate(policy, parseCluster(t, over), noon(0))
		require.Equal(t, 1, plan.Findings[0].HostsMissing, "it is in the finding either way")
		require.Equal(t, policy.fleet.PauseCaps, plan.Findings[0].Pending)
		require.Equal(t, policy.fleet.PauseCaps, plan.Findings[0].BlockedBy != "")
		require.Len(t, plan.Notes, 1)
	}
	require.Empty(t, evaluate(stated{}, parseCluster(t, over), noon(0)).Notes, "without caps nothing is said")
}

func TestLimits(t *testing.T) {
	three := "a | dev 0 | proc 5 - 0:1 | proc 6 - 0:1 | proc 7 - 0:1 | env 1 alice | dev 1 1@01 | proc 8 1 1:1"
	for _, tt := range []struct {
		name   string
		limits safety.Limits
		held   bool
	}{
		{"none", safety.Limits{}, false},
		{"as many as allowed", safety.Limits{Fleet: safety.Limit{Terminations: 3}}, false},
		{"more than allowed", safety.Limits{Fleet: safety.Limit{Terminations: 2}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			policy := stated{all: enforce.Settings{NonEnvProcesses: true}, fleet: enforce.Fleet{Limits: tt.limits}}
			plan := evaluate(policy, parseCluster(t, three), noon(0))
			require.Equal(t, tt.held, plan.Held(), plan.HeldHosts)
		})
	}
}

func TestExempt(t *testing.T) {
	all := enforce.Settings{NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, MaxDevices: new(0), MaxMemory: new(memory(0)), MaxEnvs: new(0), MaxDuration: time.Minute}
	text := `a | env 1 alice 1g | dev 0 1@01 | dev 1 | proc 5 1 0:2000 | proc 6 - 1:5 | proc 7 1 1:5`
	everything := "a detach 0 1; a end 5; a end 6; a end 7"
	for _, tt := range []struct {
		name   string
		exempt func(enforce.Subject) bool
		want   string
	}{
		{"nothing", func(enforce.Subject) bool { return false }, everything},
		{"another host", func(s enforce.Subject) bool { return s.Host == "b" }, everything},
		{"another process", func(s enforce.Subject) bool { return s.Process != nil && s.Process.PID == 9 }, everything},
		{"another environment", func(s enforce.Subject) bool { return s.Environment != nil && s.Environment.EID == "9" }, everything},
		{"another device", func(s enforce.Subject) bool { return s.Device != nil && s.Device.Index == 9 }, everything},

		{"the host", func(s enforce.Subject) bool {
			return s.Host == "a" && s.Process == nil && s.Environment == nil && s.Device == nil
		}, ""},
		{"the process outside", func(s enforce.Subject) bool { return s.Process != nil && s.Process.PID == 6 }, "a detach 0 1; a end 5; a end 7"},
		{"a process on another device", func(s enforce.Subject) bool { return s.Process != nil && s.Process.PID == 7 }, "a detach 0 1; a end 5; a end 6"},
		{"a process keeps its device", func(s enforce.Subject) bool { return s.Process != nil && s.Process.PID == 5 }, "a end 6; a end 7"},
		{"the environment with its processes", func(s enforce.Subject) bool { return s.Environment != nil && s.Environment.EID == "1" }, "a end 6"},
		{"the device, with what uses nothing else", func(s enforce.Subject) bool { return s.Device != nil && s.Device.Index == 1 }, "a detach 0 1; a end 5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			policy := stated{all: all, exempt: tt.exempt}
			require.Equal(t, tt.want, planText(evaluate(policy, parseCluster(t, text), noon(0))))
		})
	}
}

// An exempt process keeps its device from the caps.
func TestAnExemptProcessKeepsItsDeviceFromTheCaps(t *testing.T) {
	policy := stated{
		all:    enforce.Settings{MaxDevices: new(0), MaxMemory: new(memory(0)), MaxEnvs: new(0)},
		exempt: func(s enforce.Subject) bool { return s.Process != nil },
	}
	require.Empty(t, planText(evaluate(policy, parseCluster(t, busyDevice), noon(0))))
}

func TestProtectedDaemons(t *testing.T) {
	cluster := parseCluster(t, `a | dev 0 | proc 5 - 0:1 | proc 6 - 0:1`)
	cluster.Hosts[0].Snapshot.Processes[0].Protected = "nvidia-cuda-mps-server"
	policy := stated{all: enforce.Settings{NonEnvProcesses: true}}
	plan := evaluate(policy, cluster, noon(0))
	require.Equal(t, "a end 6", planText(plan))
	require.Len(t, plan.Findings, 1, "and nothing is said of it, cycle after cycle")
	policy.fleet.Unprotected = []string{"sshd"}
	require.Equal(t, "a end 6", planText(evaluate(policy, cluster, noon(0))), "another name")
	policy.fleet.Unprotected = []string{"nvidia-cuda-mps-server"}
	plan = evaluate(policy, cluster, noon(0))
	require.Equal(t, "a end 5; a end 6", planText(plan))
	require.Equal(t, policy.fleet.Unprotected, plan.Orders[0].Order.Unprotected, "or the host would refuse")
}

func TestWhatCannotBeEndedIsNotTriedAgain(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true, EnvMemory: true, MaxDevices: new(0), Kill: true, Grace: time.Second}}
	text := `a | env 1 alice | dev 0 1@01 | proc 5 - 0:1 | proc 6 1 0:1`
	for _, tt := range []struct {
		name    string
		kill    bool
		outcome order.Outcome
		again   string
	}{
		{"it survived SIGKILL", true, order.Outcome{PID: 5, Status: order.StatusSurvived, Reason: "hangs"}, "a detach 0 1; a end 6"},
		{"its host refused", false, order.Outcome{PID: 5, Status: order.StatusRefused}, "a detach 0 1; a end 5; a end 6"},
		{"it survived SIGTERM, and may have needed longer", false, order.Outcome{PID: 5, Status: order.StatusSurvived}, "a detach 0 1; a end 5; a end 6"},
		{"it was another", true, order.Outcome{PID: 5, Status: order.StatusChanged}, "a detach 0 1; a end 5; a end 6"},
		{"unknown", true, order.Outcome{PID: 5, Status: order.StatusUnknown}, "a detach 0 1; a end 5; a end 6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var memory controllerMemory
			first := memory.Judge(policy, parseCluster(t, text), noon(0))
			o := first.Orders[0].Order
			o.Kill = tt.kill
			memory.Learn("a", o, []order.Outcome{{EID: "1", Status: order.StatusDetached}, tt.outcome, {PID: 6, Status: order.StatusGone}})
			memory.Judge(policy, parseCluster(t, "a | down"), noon(1)) // is no proof that it is gone
			second := memory.Judge(policy, parseCluster(t, text), noon(2))
			require.Equal(t, tt.again, planText(second))
			if tt.again == "a detach 0 1; a end 6" {
				require.Equal(t, []enforce.StuckProcess{{ProcessRef: enforce.ProcessRef{Host: "a", PID: 5}, Reason: "hangs"}}, second.Findings[0].Stuck)
			}
			memory.Judge(policy, parseCluster(t, `a | dev 0`), noon(3))
			require.Equal(t, "a end 5", planText(memory.Judge(policy, parseCluster(t, `a | dev 0 | proc 5 - 0:1`), noon(4))), "it went, and came back")
		})
	}
}

// To many programs a second SIGTERM means to drop what they are saving.
func TestAProcessThatSurvivedSIGTERMGetsItAgainAfterAMinute(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true}}
	text := `a | dev 0 | proc 5 - 0:1`
	var memory controllerMemory
	first := memory.Judge(policy, parseCluster(t, text), noon(0))
	memory.Learn("a", first.Orders[0].Order, []order.Outcome{{PID: 5, Status: order.StatusSurvived}})
	second := memory.Judge(policy, parseCluster(t, text), noon(0).Add(59*time.Second))
	require.Empty(t, planText(second))
	require.Contains(t, second.Findings[0].Stuck[0].Reason, "an order to end it was sent already")
	require.Equal(t, "a end 5", planText(memory.Judge(policy, parseCluster(t, text), noon(1))))
}

// No other process of the environment ends in place of one that cannot be ended.
func TestMemoryOfAStuckProcessCountsAsFreed(t *testing.T) {
	policy := stated{all: enforce.Settings{EnvMemory: true}}
	text := `a | env 1 alice 1000mi | dev 0 1@01 | proc 5 1 0:1500 | proc 6 1 0:900`
	var memory controllerMemory
	first := memory.Judge(policy, parseCluster(t, text), noon(0))
	require.Equal(t, "a end 5", planText(first))
	first.Orders[0].Order.Kill = true
	memory.Learn("a", first.Orders[0].Order, []order.Outcome{{PID: 5, Status: order.StatusSurvived}})
	require.Empty(t, planText(memory.Judge(policy, parseCluster(t, text), noon(1))))
}

func TestOrdersCarryTheLadderAndTheReasons(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true, Grace: 30 * time.Second, Kill: true}}
	plan := evaluate(policy, parseCluster(t, `a | dev 0 | proc 5 - 0:1`), noon(0))
	o := plan.Orders[0].Order
	require.Equal(t, 30*time.Second, o.Steps()[0].Wait)
	require.True(t, o.Kill)
	require.Equal(t, []string{plan.Findings[0].ID}, o.Terminate[0].Because)
	require.Equal(t, []string{"Process 5 is not running in a GPU environment"}, o.Terminate[0].Why)
	require.Equal(t, [][]string{{"Process 5 is not running in a GPU environment"}}, o.Reasons().Because)
}

func TestNotifications(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true, MaxDevices: new(0), Warn: enforce.Warn{For: 10 * time.Minute}}}
	cluster := parseCluster(t, "a | env 1 alice | dev 0 1@01 | proc 5 - 0:1 | proc 6 1 0:1\nb | env 2 alice | dev 0 2@01 | proc 7 - 0:1")
	cluster.Hosts[0].Snapshot.Processes[0].UID = new(snapshot.UID(1002))
	cluster.Hosts[0].Snapshot.Environments[0].UID = 1001
	cluster.Hosts[1].Snapshot.Environments[0].UID = 1001
	cluster.Hosts[1].Snapshot.Environments[0].OwnerMismatch = true // so it is not believed
	owners := notify.NewRecipients(cluster)
	var list []notify.UserMessage
	plan := evaluate(policy, cluster, noon(0))
	for i := range plan.Findings {
		list = append(list, notify.Messages(&plan.Findings[i], owners, noon(4))...)
	}
	require.Equal(t, []notify.UserMessage{
		{
			Host: "a", UID: 1002, ID: plan.Findings[0].ID, Rule: "non-env-processes", Line: "Process 5 is not running in a GPU environment (uid 1002).",
			Follows: "process 5 will be ended", Pending: true, Due: noon(10), Since: noon(0), At: noon(4),
			Advice: "End it, and start it in an environment: genv run --gpus 1 python train.py.",
		},
		{
			Host: "a", UID: 1001, User: "alice", ID: plan.Findings[2].ID, Rule: "max-devices-per-user", Line: "User alice has 2 GPUs on 2 hosts, and may have 0.",
			Follows: "what is too much will be taken back, idle GPUs first (as things are now, GPU 0 will be detached; what runs there then ends, too)", Pending: true, Due: noon(10), Since: noon(0), At: noon(4),
			Advice: "Give back GPUs that you need less, such as these: kill 6 on a; genv detach --index 0 in the shell of environment 2 on b; " +
				"genv detach --index 0 in the shell of environment 1 on a.",
		},
	}, list, "process 7's and 6's users are not known, and the owner in b's state files is in doubt")
	require.Equal(t, "Process 5 is not running in a GPU environment (uid 1002).\nUnless this changes, in 6m process 5 will be ended.", list[0].Shown())
	require.Equal(t, "User alice has 2 GPUs on 2 hosts, and may have 0.\n"+
		"Unless this changes, in 6m what is too much will be taken back, idle GPUs first (as things are now, GPU 0 will be detached; what runs there then ends, too).", list[1].Shown())
}

func TestNotificationsNameWhatIsLost(t *testing.T) {
	uid := snapshot.UID(1001)
	cluster := parseCluster(t, "a | env 1 alice | dev 0 1@01 | dev 1 1@01 | proc 5 1 0:1 | proc 6 1 1:1")
	cluster.Hosts[0].Snapshot.Environments[0].UID = uid
	for i := range cluster.Hosts[0].Snapshot.Processes {
		cluster.Hosts[0].Snapshot.Processes[i].UID = &uid
	}
	for _, tt := range []struct {
		cap  int
		want string
	}{
		{0, "Processes 5, 6 get SIGTERM now and GPUs 0,1 are being detached."},
		{1, "Process 5 gets SIGTERM now and GPU 0 is being detached."},
	} {
		f := evaluate(stated{all: enforce.Settings{MaxDevices: &tt.cap}}, cluster, noon(0)).Findings[0]
		list := notify.Messages(&f, notify.NewRecipients(cluster), noon(0))
		require.Len(t, list, 1)
		_, follows, _ := strings.Cut(list[0].Shown(), "\n")
		require.Equal(t, tt.want, follows)
	}
}

func TestNotesOfAHostAreBounded(t *testing.T) {
	unknown := strings.Repeat(" | proc 5 ? 0:10", 1000)
	plan := evaluate(stated{}, parseCluster(t, "a | dev 0"+unknown+"\nb | dev 0 | proc 5 ? 0:10"), noon(0))
	require.Len(t, plan.Notes, 258)
	require.Equal(t, enforce.Note{Host: "a", Text: "and there is more that could not be judged"}, plan.Notes[256])
	require.Equal(t, "b", string(plan.Notes[257].Host))
}
