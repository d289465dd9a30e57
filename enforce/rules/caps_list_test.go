package rules_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

type capList = []*enforce.Cap

// listed is a cap of the policy's list, for everybody and all GPUs, with what is changed.
func listed(id string, limit int64, change ...func(*enforce.Cap)) *enforce.Cap {
	c := &enforce.Cap{
		ID: id, Name: id, Place: "policy.yaml:3:5",
		Limit:  func(snapshot.Username) (enforce.CapLimit, bool) { return enforce.CapLimit{Value: limit}, true },
		Member: func(snapshot.Username) enforce.Membership { return enforce.Member },
		OnHost: func(snapshot.Hostname, map[string]string) bool { return true },
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func together(c *enforce.Cap) { c.Together = true }
func perHost(c *enforce.Cap)  { c.PerHost = true }
func percent(c *enforce.Cap)  { c.Limit = limitOf(enforce.CapLimit{Value: first(c), Percent: true}) }
func allBut(c *enforce.Cap)   { c.Limit = limitOf(enforce.CapLimit{Value: first(c), AllBut: true}) }

func first(c *enforce.Cap) int64 {
	limit, _ := c.Limit("")
	return limit.Value
}

func limitOf(limit enforce.CapLimit) func(snapshot.Username) (enforce.CapLimit, bool) {
	return func(snapshot.Username) (enforce.CapLimit, bool) { return limit, true }
}

func onHosts(names string) func(*enforce.Cap) {
	return func(c *enforce.Cap) {
		c.OnHost = func(name snapshot.Hostname, _ map[string]string) bool { return strings.Contains(names, string(name)) }
	}
}

func ofModel(prefix string) func(*enforce.Cap) {
	return func(c *enforce.Cap) { c.OfModel = func(model string) bool { return strings.HasPrefix(model, prefix) } }
}

// about are those who are members; "?" follows the name of somebody who may be one.
func about(names string) func(*enforce.Cap) {
	return func(c *enforce.Cap) {
		c.Member = func(user snapshot.Username) enforce.Membership {
			for name := range strings.FieldsSeq(names) {
				switch name {
				case string(user):
					return enforce.Member
				case string(user) + "?":
					return enforce.MembershipUnknown
				}
			}
			return enforce.NotMember
		}
	}
}

func counts(kind enforce.CapKind) func(*enforce.Cap) { return func(c *enforce.Cap) { c.Kind = kind } }

func TestListedCaps(t *testing.T) {
	const (
		envs  = "env 1 alice u1001 | env 2 bob u1002 | env 3 carol u1003"
		four  = "a | " + envs + " | dev 0 1@01 | dev 1 1@02 | dev 2 1@03 | dev 3 2@04"
		busy  = four + " | proc 10 1 u1001 by:alice 0:1 | proc 11 1 u1001 by:alice 1:1 | proc 12 1 u1001 by:alice 2:1 | proc 13 2 u1002 by:bob 3:1"
		plain = "a | dev 0 | dev 1 | dev 2 | dev 3 | proc 10 - u1001 by:alice started-at:8 0:1 | proc 11 - u1001 by:alice started-at:9 1:1 | proc 13 - u1002 by:bob 3:1"
	)
	count := enforce.Settings{CountOutside: true}
	for _, tt := range []struct {
		name     string
		settings enforce.Settings
		list     capList
		cluster  string
		want     string
	}{
		{"a person's", count, capList{listed("two", 2)}, four, "a detach 2 1"},
		{"by model", count, capList{listed("big", 0, ofModel("A100"))}, "a | " + envs + " | dev 0 model:A100-SXM4 1@01 | dev 1 model:RTX 1@02", "a detach 0 1"},
		{"an unknown model is in none", count, capList{listed("big", 0, ofModel("A100"))}, four, ""},
		{"on other hosts", count, capList{listed("b", 0, onHosts("b"))}, four, ""},
		{"on each host", count, capList{listed("one", 1, perHost)}, four + "\n" + strings.Replace(four, "a |", "b |", 1), "a detach 1 1; a detach 2 1; b detach 1 1; b detach 2 1"},
		{"others' GPUs", count, capList{listed("bobs", 0, about("bob"))}, four, "a detach 3 2"},
		{"of somebody who may be a member", count, capList{listed("bobs", 0, about("bob?"))}, four, ""},
		{"together, whoever has most", count, capList{listed("all", 3, together)}, busy, "a detach 2 1; a end 12"},
		{"together, until they have as much", count, capList{listed("all", 1, together)}, busy, "a detach 1 1; a detach 2 1; a detach 3 2; a end 11; a end 12; a end 13"},
		{"together, the idle ones first", count, capList{listed("all", 3, together)}, strings.Replace(busy, "| proc 13 2 u1002 by:bob 3:1", "", 1), "a detach 3 2"},
		{"a GPU that two share goes for both", count, capList{listed("all", 0, together, about("alice bob"))}, "a | " + envs + " | dev 0 1@01 2@02 3@03", "a detach 0 1; a detach 0 2"},
		{"a share of the working GPUs", count, capList{listed("half", 50, percent)}, four, "a detach 2 1"},
		{"of which one has failed", count, capList{listed("half", 50, percent)}, strings.Replace(four, "dev 3", "dev 3 failed", 1), "a detach 1 1; a detach 2 1"},
		{"of which CUDA can't use one", count, capList{listed("half", 50, percent)}, strings.Replace(four, "dev 3", "dev 3 unusable", 1), "a detach 1 1; a detach 2 1"},
		{"all but one", count, capList{listed("debugging", 1, allBut, together, perHost)}, busy, "a detach 2 1; a end 12"},
		{"all but one, of which a member of another group has one", count, capList{listed("debugging", 1, allBut, together, about("alice carol"))}, four, ""},
		{"all but one, where an outsider shares", count, capList{listed("debugging", 2, allBut, together, about("alice"))}, strings.Replace(four, "2 1@03", "2 1@03 2@05", 1), "a detach 1 1"},
		{"all but one, where the outsider's goes by another cap", count, capList{listed("none", 0, about("alice")), listed("debugging", 1, allBut, together, about("bob"))}, "a | " + envs + " | dev 0 1@01 2@02 | dev 1 2@01 | proc 10 1 u1001 by:alice 0:1 | proc 11 2 u1002 by:bob 1:1", "a detach 0 1; a detach 0 2; a end 10"},
		{"environments", count, capList{listed("envs", 0, about("alice"), counts(enforce.CapEnvironments))}, four, "a detach 0 1; a detach 1 1; a detach 2 1"},
		{"memory", count, capList{listed("memory", 81559<<20, about("alice"), counts(enforce.CapMemory))}, four, "a detach 1 1; a detach 2 1"},
		{"two caps: what the first takes counts for no other", count, capList{listed("two", 2), listed("all", 3, together)}, four, "a detach 2 1"},

		{"outside of environments, the newest", count, capList{listed("one", 1)}, plain, "a end 11"},
		{"outside of environments, where that doesn't count", enforce.Settings{}, capList{listed("one", 1)}, plain, ""},
		{"one job on three GPUs", count, capList{listed("two", 2)}, "a | dev 0 | dev 1 | dev 2 | proc 10 - u1001 by:alice 0:1 1:1 2:1", "a end 10"},
		{"an unknown environment counts with its account", count, capList{listed("none", 0)}, "a | dev 0 | proc 10 ? u1001 by:alice 0:1", "a end 10"},
		{"and where it doesn't count, nothing is done", enforce.Settings{}, capList{listed("none", 0)}, "a | dev 0 | proc 10 ? u1001 by:alice 0:1", ""},
		{"root's, a system account's, without a uid", count, capList{listed("none", 0)}, "a | dev 0 | proc 10 - u0 0:1 | proc 11 - u33 by:www-data 0:1 | proc 12 - 0:1", ""},
		{"an unproved container's", count, capList{listed("none", 0)}, "a | dev 0 | proc 10 - u1001 by:alice started:? 0:1", ""},
		{"a person's container", count, capList{listed("none", 0)}, "a | dev 0 | proc 10 - u0 started:1001 0:1", "a end 10"},
		{"plain and attached are one GPU", count, capList{listed("one", 1)}, "a | " + envs + " | dev 0 1@01 | proc 10 - u1001 by:alice 0:1", ""},
		{"and both go", count, capList{listed("none", 0)}, "a | " + envs + " | dev 0 1@01 | proc 10 - u1001 by:alice 0:1", "a detach 0 1; a end 10"},
		{"all but one, beside a daemon that is protected", count, capList{listed("debugging", 1, allBut, together)}, "a | dev 0 | dev 1 | proc 10 - u1001 by:alice 0:1 | proc 11 - u1001 by:alice 1:1 | proc 12 - u0 0:1 1:1 protected:mps", "a end 10"},
		{"all but one, beside a desktop", count, capList{listed("debugging", 1, allBut, together)}, "a | dev 0 screen | dev 1 screen | proc 10 - u1001 by:alice 0:1:C | proc 11 - u1001 by:alice 1:1:C | proc 12 - u0 0:1:G 1:1:G", "a end 10"},
		{"all but one, beside root's job", count, capList{listed("debugging", 1, allBut, together)}, "a | dev 0 | dev 1 | proc 10 - u1001 by:alice 0:1 | proc 11 - u1001 by:alice 1:1 | proc 12 - u0 0:1", "a end 11"},
		{"in an environment, on what isn't attached, the newest", count, capList{listed("one", 1, together)}, "a | " + envs + " | dev 0 | dev 1 | proc 10 1 u1001 by:alice started-at:9 0:1 | proc 11 - u1002 by:bob started-at:8 1:1", "a end 10"},
		{"a GPU is as old as whoever has it longest", count, capList{listed("one", 1, together)}, "a | dev 0 | dev 1 | proc 10 - u1001 by:alice started-at:8 0:1 | proc 11 - u1002 by:bob started-at:9 1:1 | proc 12 - u1003 by:carol started-at:10 0:1", "a end 11"},
		{"who has most uses a GPU of somebody who has fewer", count, capList{listed("two", 2, together)}, "a | dev 0 | dev 1 | dev 2 | proc 10 - u1001 by:alice started-at:8 0:1 | proc 11 - u1003 by:carol started-at:7 1:1 | proc 12 - u1003 by:carol started-at:7 2:1 | proc 13 - u1003 by:carol started-at:10 0:1", "a end 11"},
		{"desktops", count, capList{listed("none", 0)}, "a | dev 0 screen | proc 10 - u1001 by:alice 0:1:G", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, planText(evaluate(stated{all: tt.settings, list: tt.list}, parseCluster(t, tt.cluster), noon(0))))
		})
	}
}

// The base of a share is kept while hosts don't answer, and waits for those that were never seen.
func TestBaseOfAShare(t *testing.T) {
	policy := stated{list: capList{listed("half", 50, percent)}}
	const (
		a    = "a | env 1 alice u1001 | dev 0 1@01 | dev 1 1@02 | dev 2 | dev 3"
		both = a + "\nb | dev 0 | dev 1 | dev 2 | dev 3"
	)
	var memory controllerMemory
	require.Empty(t, planText(memory.Judge(policy, parseCluster(t, a+"\nb | down"), noon(0))), "b was never seen")
	require.Contains(t, memory.Judge(policy, parseCluster(t, a+"\nb | down"), noon(1)).Notes[0].Text, "before these hosts were seen once")
	require.Empty(t, planText(memory.Judge(policy, parseCluster(t, both), noon(2))))
	three := strings.Replace(a, "dev 2", "dev 2 1@03", 1)
	unsure := parseCluster(t, strings.Replace(three, "dev 3", "dev 3 | dev 4 1@04", 1)+"\nb | dev 0 | dev 1 | dev 2")
	unsure.Hosts[1].Snapshot.Devices[0].Unidentified = true
	require.Empty(t, planText(memory.Judge(policy, unsure, noon(2))), "it works, whatever is attached to it")
	memory.Judge(policy, parseCluster(t, both), noon(2))
	require.Empty(t, planText(memory.Judge(policy, parseCluster(t, three+"\nb | down"), noon(3))), "the base stays 8")
	require.Equal(t, "a detach 4 1", planText(memory.Judge(policy, parseCluster(t, strings.Replace(three, "dev 3", "dev 3 1@04 | dev 4 1@05", 1)+"\nb | down"), noon(4))), "of 9")

	memory = controllerMemory{}
	memory.Judge(policy, parseCluster(t, three+"\nb | down"), noon(0))
	require.Equal(t, "a detach 2 1", planText(memory.Judge(policy, parseCluster(t, three+"\nb | down"), noon(25*60))), "a day later it goes on without b")
}

// Time runs for a cap that people share, no matter who would lose; who is named later has a quarter of it.
func TestTimeOfASharedCap(t *testing.T) {
	policy := stated{list: capList{listed("all", 3, together, func(c *enforce.Cap) { c.Warn = &enforce.Warn{For: 40 * time.Minute} })}, fleet: enforce.Fleet{Interval: time.Second}}
	const (
		alice = "a | env 1 alice u1001 | env 2 bob u1002 | dev 0 1@01 | dev 1 1@02 | dev 2 2@03 | dev 3 1@04"
		bob   = "a | env 1 alice u1001 | env 2 bob u1002 | dev 0 1@01 | dev 1 2@02 | dev 2 2@03 | dev 3 2@04"
	)
	for _, pause := range []int{0, 99} { // of the controller, before minute 39
		var memory controllerMemory
		for minute := range 46 {
			cluster, want := map[bool]string{true: bob, false: alice}[minute > 34 && minute != 39], map[int]string{45: "a detach 3 2"}[minute]
			require.Equal(t, want, planText(memory.Judge(policy, parseCluster(t, cluster), noon(minute+pause*(minute/39)))), "minute %d", minute)
		}
	}
	var alternating controllerMemory
	due := ""
	for minute := 0; minute <= 55 && due == ""; minute++ {
		cluster := []string{alice, bob}[minute/3%2]
		due = planText(alternating.Judge(policy, parseCluster(t, cluster), noon(minute)))
	}
	require.NotEmpty(t, due, "a group whose losers alternate still comes due")

	policy.fleet.NotifyUsers = true
	var added controllerMemory // bob has a GPU in minute 1 and from minute 38 on: alice would lose two then
	for minute := range 49 {
		cluster := strings.Replace(alice, "2@03", "1@03", 1) + " | dev 4"
		want := map[int]string{40: "a detach 3 1", 48: "a detach 2 1"}[minute]
		if minute > 40 {
			cluster = strings.Replace(cluster, "1@04", "", 1)
		}
		if minute == 1 || minute >= 38 {
			cluster += " 2@01"
		}
		require.Equal(t, want, planText(added.Judge(policy, parseCluster(t, cluster), noon(minute))), "minute %d", minute)
		told := slices.DeleteFunc(added.events, func(e enforce.Event) bool { return e.Kind != enforce.EventNotify })
		want = map[int]string{0: "wait", 1: "wait", 38: "wait", 40: "act", 41: "wait", 48: "act"}[minute]
		require.Equal(t, want, strings.TrimPrefix(eventText(told), "notify alice "), "minute %d", minute)
	}
}

// Who is to lose more than the last warning said is warned again for what is added.
func TestWarnedForWhatIsAdded(t *testing.T) {
	policy := stated{all: enforce.Settings{Warn: lasting(30)}, list: capList{listed("two", 2)}, fleet: enforce.Fleet{NotifyUsers: true}}
	const warned, acts = "notify alice wait", "notify alice act"
	var memory controllerMemory
	gpus := 0
	for minute := range 90 {
		gpus = cmp.Or(map[int]int{0: 3, 10: 4, 25: 6, 31: 5, 41: 4, 56: 2}[minute], gpus)
		cluster := "a | env 1 alice u1001"
		for i := range gpus {
			cluster += fmt.Sprintf(" | dev %d 1@0%d", i, i+1)
		}
		want := map[int]string{30: "a detach 5 1", 40: "a detach 4 1", 55: "a detach 2 1; a detach 3 1"}[minute]
		require.Equal(t, want, planText(memory.Judge(policy, parseCluster(t, cluster), noon(minute))), "minute %d", minute)
		told := slices.DeleteFunc(memory.events, func(e enforce.Event) bool { return e.Kind != enforce.EventNotify })
		want = map[int]string{0: warned, 10: warned, 25: warned, 30: acts, 31: warned + ", " + warned, 40: acts, 41: warned, 55: acts}[minute]
		require.Equal(t, want, eventText(told), "minute %d", minute)
	}
}

// GPU hours count between looks that are close to each other, and hold until the period ends.
func TestGPUHours(t *testing.T) {
	monday := time.Date(2026, 11, 16, 0, 0, 0, 0, time.Local)
	week := func(begin time.Time) stated {
		hours := listed("week", 2*3600, counts(enforce.CapHours), func(c *enforce.Cap) { c.Period, c.PeriodEnd = begin, begin.AddDate(0, 0, 7) })
		return stated{list: capList{hours}, fleet: enforce.Fleet{Interval: 10 * time.Minute}}
	}
	const two = "a | env 1 alice u1001 | dev 0 1@01 | dev 1 1@02"
	var memory controllerMemory
	look := func(minute int, policy stated) string {
		cluster := parseCluster(t, two)
		cluster.Hosts[0].AskedAt, cluster.Hosts[0].IsNew = noon(minute), true
		return planText(memory.Judge(policy, cluster, noon(minute)))
	}
	for minute := 0; minute <= 50; minute += 10 {
		require.Empty(t, look(minute, week(monday)), "minute %d", minute)
	}
	require.Empty(t, look(150, week(monday)), "while no one looked nothing counted")
	require.Empty(t, look(160, week(monday)), "2 hours are allowed")
	require.Equal(t, "a detach 0 1; a detach 1 1", look(161, week(monday)))
	read := memory.Hours
	memory.Hours = map[string]enforce.Hours{"week": {Period: monday, Seconds: read["week"].Seconds, Unread: true}}
	require.Empty(t, look(161, week(monday)), "what is unknown takes nothing")
	require.Contains(t, memory.Findings, "caps/week/alice", "nor is it over")
	memory.Hours = read
	require.Equal(t, "a detach 0 1; a detach 1 1", look(162, week(monday.AddDate(0, 0, -7))), "a period never goes back")
	require.Empty(t, look(163, week(monday.AddDate(0, 0, 7))))
}

// Who would count for caps is said, where the policy doesn't have them count.
func TestUncounted(t *testing.T) {
	cluster := parseCluster(t, "a | env 1 alice u1001 | dev 0 1@01 | dev 1 | proc 10 - u1001 by:alice 1:1 | proc 11 - u1002 by:bob 1:1 | proc 12 - u1002 by:bob 1:1 | proc 13 - u0 1:1 | proc 14 1 u1001 by:alice 0:1")
	list := capList{listed("two", 2)}
	for _, tt := range []struct {
		policy stated
		want   enforce.Uncounted
	}{
		{stated{list: list}, enforce.Uncounted{Processes: 3, People: 2}},
		{stated{all: enforce.Settings{MaxDevices: new(1)}}, enforce.Uncounted{Processes: 3, People: 2}},
		{stated{all: enforce.Settings{CountOutside: true}, list: list}, enforce.Uncounted{}},
		{stated{all: enforce.Settings{NonEnvProcesses: true}, list: list}, enforce.Uncounted{}},
		{stated{}, enforce.Uncounted{}},
	} {
		require.Equal(t, tt.want, evaluate(tt.policy, cluster, noon(0)).Uncounted)
	}
}

// What computes nothing is idle for a cap, too, but not while a process of unknown environment uses it: that one stays,
// so that taking the GPU would free nothing, and another one would be taken for it.
func TestAnIdleGPUThatAnUnknownProcessUses(t *testing.T) {
	policy := stated{all: enforce.Settings{MaxDevices: new(1), Idle: &enforce.Idle{After: 10 * time.Minute, Below: 5, Warn: &enforce.Warn{For: 1000 * time.Hour}}}}
	const cluster = "a | env 1 alice u1001 | dev 0 u0 1@01 | dev 1 u90 1@02 | proc 10 ? u1001 by:alice 0:1 | proc 11 1 u1001 by:alice 1:1"
	var memory controllerMemory
	off := policy
	off.all.MaxDevices = nil
	for minute := range 20 {
		require.Empty(t, planText(memory.Judge(off, parseCluster(t, cluster), noon(minute))))
	}
	require.Equal(t, "a detach 1 1; a end 11", planText(memory.Judge(policy, parseCluster(t, cluster), noon(20))))
}

// A host that doesn't say which accounts are people's may refuse an order with a process of unknown environment.
func TestCountedOnAnOlderHost(t *testing.T) {
	cluster := parseCluster(t, "a | dev 0 | dev 1 | proc 10 ? u1001 by:alice 0:1 | proc 11 - u1001 by:alice 1:1")
	cluster.Hosts[0].Snapshot.FirstUID = nil
	policy := stated{all: enforce.Settings{CountOutside: true}, list: capList{listed("none", 0)}}
	require.Equal(t, "a end 11", planText(evaluate(policy, cluster, noon(0))))
}

// What counts for no one although someone uses it is shown, where others count.
func TestCountedForNobody(t *testing.T) {
	cluster := parseCluster(t, "a | dev 0 | dev 1 | proc 10 - u0 started:? 0:1 | proc 11 - u1001 by:alice 1:1 | proc 12 - u1001 by:alice 0:1")
	cluster.Hosts[0].Snapshot.Processes[2].NodeMissing = true
	notes := evaluate(stated{all: enforce.Settings{CountOutside: true}}, cluster, noon(0)).Notes
	require.Len(t, notes, 2)
	for i, process := range []string{"process 10", "process 12"} {
		require.Contains(t, notes[i].Text, process)
		require.Contains(t, notes[i].Text, "counted for nobody")
	}
	require.Len(t, evaluate(stated{}, cluster, noon(0)).Notes, 1)
}

// System accounts don't count, unless the policy names them.
func TestCountedSystemAccounts(t *testing.T) {
	cluster := parseCluster(t, "a | dev 0 | dev 1 | proc 10 - u998 by:jupyter 0:1 | proc 11 - u997 by:render 1:1")
	policy := stated{all: enforce.Settings{CountOutside: true}, list: capList{listed("none", 0)}, named: "jupyter"}
	require.Equal(t, "a end 10", planText(evaluate(policy, cluster, noon(0))))
}

// Judging very many environments of one person takes no long time.
func TestManyEnvironments(t *testing.T) {
	cluster := parseCluster(t, "a | dev 0")
	for i := range 30_000 {
		cluster.Hosts[0].Snapshot.Environments = append(cluster.Hosts[0].Snapshot.Environments, snapshot.Environment{EID: snapshot.EnvID(itoa(i)), UID: 1001, Username: "alice", Creation: snapshot.DateOf(noon(-i))})
	}
	begun := time.Now()
	require.Len(t, evaluate(stated{all: enforce.Settings{MaxEnvs: new(4)}}, cluster, noon(0)).Findings, 1)
	require.Less(t, time.Since(begun), 30*time.Second)
}

// What an account has that isn't in the snapshot is in use by it: an outsider's spares a GPU.
func TestAllButOneWhereMoreOfAnOutsiderIs(t *testing.T) {
	cluster := parseCluster(t, "a | dev 0 | dev 1 | proc 10 - u1001 by:alice 0:1 | proc 11 - u1001 by:alice 1:1")
	cluster.Hosts[0].Snapshot.More = []snapshot.More{{UID: new(snapshot.UID(1002)), Processes: 1, GPUs: []snapshot.DeviceIndex{0}}}
	policy := stated{all: enforce.Settings{CountOutside: true}, list: capList{listed("debugging", 1, allBut, together, about("alice"))}}
	require.Equal(t, "a end 11", planText(evaluate(policy, cluster, noon(0))))
}

// countsText is what caps count for a person as seen from a host: "NAME USED/LIMIT here [GPUs] of [GPUs] + elsewhere on hosts".
func countsText(list []enforce.CapCount) string {
	var parts []string
	for _, c := range list {
		s := fmt.Sprintf("%s%s %d/%d here %d %v of %v", c.Rule, c.Name, c.Used, c.Limit, c.Here, c.HereGPUs, c.GPUs)
		if c.Elsewhere > 0 {
			s += fmt.Sprintf(" + %d on %v", c.Elsewhere, c.Hosts)
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}

// TestCounts: what hosts are told of caps is what the caps count.
func TestCounts(t *testing.T) {
	const cluster = "a | env 1 alice u1001 | env 2 bob u1002 | dev 0 model:A100 1@01 | dev 1 model:A100 1@02 | dev 2 model:RTX 2@03 | dev 3 model:RTX failed\n" +
		"b | env 1 alice u1001 | dev 0 model:RTX 1@01 | proc 20 - u1003 by:carol 0:1"
	count := enforce.Settings{CountOutside: true}
	withMax := func(n int) enforce.Settings { s := count; s.MaxDevices = &n; return s }
	for _, tt := range []struct {
		name     string
		settings enforce.Settings
		list     capList
		user     snapshot.Username
		want     string
	}{
		{"a key of its own", withMax(4), nil, "alice", "max-devices-per-user 3/4 here 2 [0 1] of [0 1 2] + 1 on [b]"},
		{"who has nothing here", withMax(4), nil, "carol", "max-devices-per-user 1/4 here 0 [] of [0 1 2] + 1 on [b]"},
		{"who has nothing anywhere", withMax(4), nil, "dan", "max-devices-per-user 0/4 here 0 [] of [0 1 2]"},
		{"by model", count, capList{listed("a100", 1, ofModel("A100"))}, "alice", "a100 1/1 here 1 [0] of [0 1]"},
		{"on each host", count, capList{listed("one", 2, perHost)}, "alice", "one 2/2 here 2 [0 1] of [0 1 2]"},
		{"on other hosts", count, capList{listed("b", 1, onHosts("b"))}, "alice", "b 1/1 here 0 [] of [] + 1 on [b]"},
		{"together", count, capList{listed("all", 9, together)}, "bob", "all 4/9 here 3 [0 1 2] of [0 1 2] + 1 on [b]"},
		{"together, for who has nothing", count, capList{listed("all", 9, together)}, "dan", "all 4/9 here 3 [0 1 2] of [0 1 2] + 1 on [b]"},
		{"a share", count, capList{listed("share", 100, percent, together)}, "bob", "share 4/4 here 3 [0 1 2] of [0 1 2] + 1 on [b]"},
		{"environments", count, capList{listed("envs", 3, counts(enforce.CapEnvironments))}, "alice", "envs 2/3 here 1 [] of [] + 1 on [b]"},
		{"of others", count, capList{listed("bobs", 1, about("bob"))}, "alice", ""},
		{"who may be a member", count, capList{listed("bobs", 1, about("bob?"))}, "bob", ""},
		{"at other times", count, capList{listed("rest", 1, func(c *enforce.Cap) { c.Inactive = true })}, "alice", ""},
		{"no cap", count, nil, "alice", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := evaluate(stated{all: tt.settings, list: tt.list}, parseCluster(t, cluster), noon(0))
			require.Equal(t, tt.want, countsText(plan.Counts.On("a", tt.user)))
			require.Equal(t, tt.want, countsText(plan.Counts.On("a", tt.user)), "again")
		})
	}
	explained := evaluate(stated{all: withMax(4), list: capList{listed("envs", 3, counts(enforce.CapEnvironments))}}, parseCluster(t, cluster), noon(0))
	require.Equal(t, []string{
		"max-devices-per-user: 3 GPUs of 4 GPUs; 2 GPUs on a (GPU 0,1); 1 GPU on b (GPU 0); first would go GPU 1 on a (it is idle)",
		"cap envs: 2 environments of 3 environments; 1 environment on a; 1 environment on b",
	}, explained.Counts.Explain("a", "alice"))
	require.Empty(t, explained.Counts.Explain("none", "alice"))
	plan := evaluate(stated{all: withMax(1)}, parseCluster(t, cluster+"\nc | down"), noon(0))
	require.Empty(t, plan.Counts.On("c", "alice"), "it did not answer")
	require.Empty(t, plan.Counts.On("none", "alice"))
}
