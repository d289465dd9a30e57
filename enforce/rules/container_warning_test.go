package rules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// after builds the cycles of a story from minutes, processes and results, three at a time.
func after(host string, words ...any) (list []cycle) {
	for i := 0; i < len(words); i += 3 {
		list = append(list, cycle{words[i].(int), host + words[i+1].(string), words[i+2].(string)})
	}
	return list
}

// The warning of a container that alice isn't proved to have started, in her environment, is not hers. Process 5 is
// hers.
func TestAnUnprovedContainerHasAWarningOfItsOwn(t *testing.T) {
	warn := enforce.Warn{For: 10 * time.Minute}
	devices := stated{all: enforce.Settings{EnvDevices: true, NonEnvProcesses: true, Warn: warn}}
	const other = "a | env 1 alice u1001 | dev 0"
	var stories []story
	for how, container := range map[string]string{
		"as root": " | proc 6 1 u0 by:root started:? 0:1", "as alice": " | proc 6 1 u1001 by:alice started:? 0:1",
		"on a host with an older genv": " | proc 6 1 u0 by:root in:web 0:1",
	} {
		stories = append(stories, story{"spends none of alice's, " + how, devices, after(other,
			0, container, "", 10, container+" | proc 5 1 u1001 by:alice 0:1", "a end 6",
			11, container+" | proc 5 1 u1001 by:alice 0:1", "a end 6", 19, " | proc 5 1 u1001 by:alice 0:1", "", 20, " | proc 5 1 u1001 by:alice 0:1", "a end 5")})
		stories = append(stories, story{"isn't spent by alice, " + how, devices, after(other,
			0, " | proc 5 1 u1001 by:alice 0:1", "", 10, container+" | proc 5 1 u1001 by:alice 0:1", "a end 5",
			19, container+" | proc 5 1 u1001 by:alice 0:1", "a end 5", 20, container+" | proc 5 1 u1001 by:alice 0:1", "a end 5; a end 6")})
	}
	runStories(t, append(stories, []story{
		{"spends none of root's", devices, after("a | dev 0",
			0, " | proc 6 - u0 by:root started:? 0:1", "", 10, " | proc 6 - u0 by:root started:? 0:1 | proc 5 - u0 by:root 0:1", "a end 6",
			19, " | proc 5 - u0 by:root 0:1", "", 20, " | proc 5 - u0 by:root 0:1", "a end 5")},
		{"another environment's is another one", devices, after("a | env 1 alice u1001 | env 2 bob u1002 | dev 0",
			0, " | proc 6 1 u0 started:? 0:1", "", 10, " | proc 7 2 u0 started:? 0:1", "")},
		{"starting it again begins no other", devices, after(other,
			0, " | proc 6 1 u0 started:? 0:1", "", 5, " | proc 7 1 u1001 started:? 0:1", "", 10, " | proc 8 1 u0 started:? 0:1", "a end 8")},
		{"nor in no environment, as any uid", devices, after(other,
			0, " | proc 6 - u1001 started:? 0:1", "", 5, " | proc 7 - u1002 started:? 0:1", "", 10, " | proc 8 - u0 by:root started:? 0:1", "a end 8")},
		{"a proved one is alice's", devices, after(other,
			0, " | proc 6 1 u0 started:1001 0:1", "", 10, " | proc 5 1 u1001 by:alice 0:1", "a end 5")},
		{"so is what she started with sudo", devices, after(other,
			0, " | proc 6 1 u0 by:root 0:1", "", 10, " | proc 5 1 u1001 by:alice 0:1", "a end 5")},
		{"a host without uids has nothing else to go by", devices, after(other,
			0, " | proc 6 1 0:1", "", 10, " | proc 5 1 0:1", "a end 5")},
	}...))
}

// The same for memory: alice's warning is about what she is proved to use, with a capacity of 4 GB.
func TestTheMemoryOfAnUnprovedContainerSpendsNoWarning(t *testing.T) {
	memory := stated{all: enforce.Settings{EnvMemory: true, Warn: enforce.Warn{For: 10 * time.Minute}}}
	const (
		env   = "a | env 1 alice u1001 4g | dev 0 1@01"
		alice = " | proc 5 1 u1001 by:alice "
	)
	var stories []story
	for how, container := range map[string]string{"as root": " | proc 6 1 u0 started:? ", "as alice": " | proc 6 1 u1001 started:? ", "on a host with an older genv": " | proc 6 1 u0 in:web "} {
		stories = append(stories, []story{
			{"it doesn't start hers, " + how, memory, after(env,
				0, alice+"0:3000"+container+"0:2000", "", 10, alice+"0:3000"+container+"0:2000", "a end 6",
				11, alice+"0:5000", "", 20, alice+"0:5000", "", 21, alice+"0:5000", "a end 5")},
			{"nor while it goes on, " + how, memory, after(env,
				0, alice+"0:3000"+container+"0:2000", "", 10, alice+"0:5000"+container+"0:2000", "a end 6",
				19, alice+"0:5000"+container+"0:2000", "a end 6", 20, alice+"0:5000"+container+"0:2000", "a end 5; a end 6")},
			{"within her capacity she loses nothing, " + how, memory, after(env,
				0, alice+"0:3000"+container+"0:9000", "", 10, alice+"0:3000"+container+"0:9000", "a end 6", 30, alice+"0:3000"+container+"0:900", "a end 6")},
			{"nor does hers go on while she is within it, " + how, memory, after(env,
				0, alice+"0:5000"+container+"0:1", "", 5, alice+"0:3000"+container+"0:9000", "", 10, alice+"0:5000", "", 15, alice+"0:5000", "", 20, alice+"0:5000", "a end 5")},
			{"hers is not the container's, " + how, memory, after(env,
				0, alice+"0:5000", "", 10, alice+"0:5000"+container+"0:9", "a end 5", 19, alice+"0:3000"+container+"0:2000", "", 20, alice+"0:3000"+container+"0:2000", "a end 6")},
			{"hers isn't lengthened, " + how, memory, after(env,
				0, alice+"0:5000", "", 5, alice+"0:5000"+container+"0:9000", "", 10, alice+"0:5000"+container+"0:9000", "a end 5")},
		}...)
	}
	runStories(t, append(stories, []story{
		{"starting it again begins no other", memory, after(env,
			0, alice+"0:3000 | proc 6 1 u0 started:? 0:2000", "", 5, alice+"0:3000 | proc 7 1 u0 started:? 0:2000", "", 10, alice+"0:3000 | proc 8 1 u0 started:? 0:2000", "a end 8")},
		{"a proved one is alice's", memory, after(env,
			0, alice+"0:3000 | proc 6 1 u0 started:1001 0:2000", "", 10, alice+"0:5000", "a end 5")},
		{"so is what she started with sudo", memory, after(env,
			0, alice+"0:3000 | proc 6 1 u0 by:root 0:2000", "", 10, alice+"0:5000", "a end 5")},
	}...))
}

// No user's settings hold for such a container, and no finding about it names the user of the environment.
func TestAnUnprovedContainerInAnEnvironmentIsNotItsUsers(t *testing.T) {
	policy := stated{all: enforce.Settings{EnvDevices: true, EnvMemory: true}, asked: ofUser("alice", func(s *enforce.Settings) { s.Warn.Cycles = 100 })}
	const env = "a | env 1 alice u1001 4g | dev 0 1@01 | dev 1 | proc 5 1 "
	for words, want := range map[string]struct {
		plan string
		user snapshot.Username
		line string
	}{
		"u1001 by:alice 1:1":              {"", "alice", "Process 5 from environment 1 is using non-attached GPU(s) 1 (user alice)"},
		"u0 started:1001 1:1":             {"", "alice", "Process 5 from environment 1 is using non-attached GPU(s) 1 (user alice, container web, started by alice)"},
		"u0 by:root started:? 1:1":        {"a end 5", "root", "Process 5 from environment 1 is using non-attached GPU(s) 1 (user root, container web, started by an unknown user)"},
		"u1001 by:alice started:? 1:1":    {"a end 5", "", "Process 5 from environment 1 is using non-attached GPU(s) 1 (container web, started by an unknown user)"},
		"u1001 by:alice 0:5000":           {"", "alice", "Environment 1 is using 5242m on device 0 which is 1242m over its capacity of 4g (user alice)"},
		"u0 started:1001 0:5000":          {"", "alice", "Environment 1 is using 5242m on device 0 which is 1242m over its capacity of 4g (user alice, container web, started by alice)"},
		"u1001 by:alice started:? 0:5000": {"a end 5", "", "Environment 1 is using 5242m on device 0 which is 1242m over its capacity of 4g (container web, started by an unknown user)"},
		"u0 by:root started:? 0:5000":     {"a end 5", "", "Environment 1 is using 5242m on device 0 which is 1242m over its capacity of 4g (container web, started by an unknown user)"},
	} {
		plan := evaluate(policy, parseCluster(t, env+words), noon(0))
		require.Equal(t, want.plan, planText(plan), words)
		require.Len(t, plan.Findings, 1, words)
		require.Equal(t, want.user, plan.Findings[0].User, words)
		require.Equal(t, want.line, plan.Findings[0].Line(), words)
	}
}

// What the user is proved to use, and what all use together, are findings of their own.
func TestAFindingNamesTheContainerOfAllThatEndForIt(t *testing.T) {
	policy := stated{all: enforce.Settings{EnvMemory: true}}
	plan := evaluate(policy, parseCluster(t, `a | env 1 alice u1001 4g | dev 0 1@01 | proc 5 1 u1001 by:alice 0:5000 | proc 6 1 u0 started:? 0:500`), noon(0))
	var found []string
	for _, f := range plan.Findings {
		found = append(found, fmt.Sprint(f.ID, " ", f.Memory.UsedBytes>>20, " ", f.User, " ", f.Container, " ", f.Terminate))
	}
	require.Equal(t, []string{"env-memory/a/1/0 5000 alice  [{a 5}]", "env-memory/a/1/0/unproved 5500  web [{a 6}]"}, found)

	two := parseCluster(t, `a | env 1 alice u1001 4g | dev 0 1@01 | proc 5 1 u0 started:? 0:5000 | proc 6 1 u0 started:? 0:5000`)
	two.Hosts[0].Snapshot.Processes[1].Container = "db"
	plan = evaluate(policy, two, noon(0))
	require.Len(t, plan.Findings, 1)
	require.Len(t, plan.Findings[0].Terminate, 2)
	require.Empty(t, plan.Findings[0].Container)
	require.Nil(t, plan.Findings[0].ContainerInfo)
}

const persuasion = "1 - run: curl x|sh"

// A process outside is never said to be "from environment X", which would contradict its finding.
func TestAProcessOutsideIsFromNoEnvironment(t *testing.T) {
	process := snapshot.Process{PID: 7, EID: "1102", Usage: []snapshot.DeviceUsage{{Index: 0}}}
	const none, inside = "Terminating process 7 from environment N/A that is running on GPU(s) 0", "Terminating process 7 from environment 1102 that is running on GPU(s) 0"
	for _, tt := range []struct {
		name string
		order.Termination
		want string
	}{
		{"by the id of the finding", order.Termination{Process: process, Reasons: order.Reasons{Because: []string{"env-devices/a/7/1", "non-env-processes/a/7/1"}}}, none},
		{"as the controller says, on the host", order.Termination{Process: process, InNoEnvironment: new(true)}, none},
		{"for another reason", order.Termination{Process: process, Reasons: order.Reasons{Because: []string{"env-devices/a/7/1"}, Why: []string{"Process 7 from environment 1102 is using non-attached GPU(s) 0"}}}, inside},
		{"as the controller says, too", order.Termination{Process: process, InNoEnvironment: new(false)}, inside},
		{"no reason is known", order.Termination{Process: process}, inside},
		{"it claims none", order.Termination{Process: snapshot.Process{PID: 7, Usage: process.Usage}}, none},
		{
			"words of persuasion",
			order.Termination{Process: snapshot.Process{PID: 7, EID: persuasion, Usage: process.Usage}},
			`Terminating process 7 from environment "1 - run: curl x|sh" that is running on GPU(s) 0`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, tt.String()) })
	}
}

func TestADetachmentShowsForeignTextInQuotes(t *testing.T) {
	d := order.Detachment{Device: 3, Environment: snapshot.Environment{EID: persuasion, Username: "x from device 0\nGenv", UID: 5}}
	require.Equal(t, `Detaching environment "1 - run: curl x|sh" of user "x from device 0?Genv" from device 3`, d.String())
	d.Environment = snapshot.Environment{EID: "67609", Username: "raz"}
	require.Equal(t, "Detaching environment 67609 of user raz from device 3", d.String())
}

// A message that a process is in no environment says why, if it claims one.
func TestAClaimIsExplainedToItsUser(t *testing.T) {
	uid := snapshot.UID(1001)
	for _, tt := range []struct{ name, claims, want string }{
		{"none", "", "Process 7 is not running in a GPU environment (uid 1001).\nProcess 7 gets SIGTERM now."},
		{
			"one that isn't registered", "1102",
			"Process 7 is not running in a GPU environment (uid 1001). It claims environment 1102, which isn't registered here.\nProcess 7 gets SIGTERM now.",
		},
		{
			"somebody else's", "2020",
			"Process 7 is not running in a GPU environment (uid 1001). It claims environment 2020, which is registered for another user.\nProcess 7 gets SIGTERM now.",
		},
		{
			"words of persuasion", persuasion,
			`Process 7 is not running in a GPU environment (uid 1001). It claims environment "1 - run: curl x|sh", which isn't registered here.` + "\nProcess 7 gets SIGTERM now.",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eid := snapshot.EnvID(tt.claims)
			cluster := snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: &snapshot.Snapshot{
				Processes:    []snapshot.Process{{PID: 7, EID: eid, UID: &uid}},
				Environments: []snapshot.Environment{{EID: "2020", UID: 5}},
			}}}}
			f := enforce.Finding{
				Rule: enforce.RuleNonEnvProcesses, Host: "a", PID: 7, EID: eid, UID: &uid,
				Terminate: []enforce.ProcessRef{{Host: "a", PID: 7}},
			}
			list := notify.Messages(&f, notify.NewRecipients(cluster), noon(0))
			require.Len(t, list, 1)
			require.Equal(t, tt.want, list[0].Shown())
		})
	}
}
