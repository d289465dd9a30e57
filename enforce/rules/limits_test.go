package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/safety"
)

// outside is n processes of a user's outside any environment.
func outside(first, n int, user string) string {
	var words []string
	for i := range n {
		words = append(words, fmt.Sprintf("proc %d - u%s by:user%s 0:1", first+i, user, user))
	}
	return strings.Join(words, " | ")
}

// heldText writes down what limits held back.
func heldText(plan enforce.Plan) string {
	var list []string
	for _, h := range append(plan.HeldUsers, plan.HeldHosts...) {
		list = append(list, fmt.Sprintf("%s%s %d+%d", h.User, h.Host, h.Terminations, h.Detachments))
	}
	return strings.Join(list, ", ")
}

func TestLimitsHoldPairsOfUserAndHost(t *testing.T) {
	fleet := func(n int) safety.Limits { return safety.Limits{Fleet: safety.Limit{Terminations: n}} }
	throttled := func(l safety.Limits) safety.Limits { l.Throttle = true; return l }
	two := "a | dev 0 | " + outside(100, 60, "1") + " | " + outside(300, 2, "2") + "\nb | dev 0 | " + outside(100, 60, "1") + " | " + outside(300, 3, "3")
	many := "a | dev 0 | " + outside(100, 40, "1")
	for i := range 30 { // a host that makes up a process for each of many users
		many += " | " + outside(200+i, 1, fmt.Sprint(50+i))
	}
	many += "\nb | dev 0 | " + outside(100, 5, "2")
	heldOf := func(held string, n int) string { // and the first n of the made-up users
		for i := range n {
			held += fmt.Sprintf(", user%da 1+0", 50+i)
		}
		return held
	}
	for _, tt := range []struct {
		name   string
		limits safety.Limits
		hosts  string
		held   string
		ends   int
	}{
		{"no limit", safety.Limits{}, two, "", 125},
		{"within", fleet(125), two, "", 125},
		{"the largest pair of a user and a host is held, and the rest is done", fleet(100), two, "user1b 60+0", 65},
		{"then the next, until the rest fits", fleet(3), two, "user1a 60+0, user1b 60+0, user3b 3+0", 2},
		{"nothing fits", fleet(1), "a | dev 0 | " + outside(100, 2, "1"), "user1a 2+0", 0},
		{"a host with most actions waits, however many users it names", fleet(20), many, heldOf("user1a 40+0", 15), 20},
		{"one with few actions does not, whoever has most of them", fleet(30), many, heldOf("user1a 40+0", 5), 30},
		{
			"a host that makes up processes of a user keeps no other host from that user", fleet(100),
			"a | dev 0 | " + outside(100, 60, "1") + " | " + outside(300, 50, "2") + "\nb | dev 0 | " + outside(100, 2, "1") + " | " + outside(300, 3, "2"), "user1a 60+0", 55,
		},
		{
			"nor by the limit per user",
			safety.Limits{PerUser: safety.Limit{Terminations: 10}},
			"a | dev 0 | " + outside(100, 14, "1") + "\nb | dev 0 | " + outside(100, 10, "1"), "user1a 14+0", 10,
		},
		{"nor when throttled", throttled(safety.Limits{PerUser: safety.Limit{Terminations: 10}}), "a | dev 0 | " + outside(100, 50, "1") + "\nb | dev 0 | " + outside(100, 9, "1"), "user1a 40+0", 19},
		{"processes of unknown users are one pair", fleet(1), "a | dev 0 | proc 5 - 0:1 | proc 6 - 0:1\nb | dev 0 | proc 7 - 0:1", "a 2+0", 1},
		{"which is no user's", safety.Limits{PerUser: safety.Limit{Terminations: 1}}, "a | dev 0 | proc 5 - 0:1 | proc 6 - 0:1", "", 2},

		{"per user", safety.Limits{PerUser: safety.Limit{Terminations: 2}}, two, "user1a 60+0, user1b 60+0, user3b 3+0", 2},
		{"per host", safety.Limits{PerHost: safety.Limit{Terminations: 62}}, two, "user1b 60+0", 65},
		{"per user, then per host", safety.Limits{PerUser: safety.Limit{Terminations: 50}, PerHost: safety.Limit{Terminations: 2}}, two, "user1a 60+0, user1b 60+0, user3b 3+0", 2},
		{"per user, counted for each alone", safety.Limits{PerUser: safety.Limit{Terminations: 60}}, two, "", 125},

		{"throttled: as many as the limit", throttled(fleet(100)), two, "user1b 25+0", 100},
		{"throttled per user", throttled(safety.Limits{PerUser: safety.Limit{Terminations: 10}}), two, "user1a 50+0, user1b 50+0", 25},
		{"throttled per host", throttled(safety.Limits{PerHost: safety.Limit{Terminations: 10}}), two, "user1a 52+0, user1b 53+0", 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			policy := stated{all: enforce.Settings{NonEnvProcesses: true}, fleet: enforce.Fleet{Limits: tt.limits}}
			plan := evaluate(policy, parseCluster(t, tt.hosts), noon(0))
			require.Equal(t, tt.held, heldText(plan))
			require.Equal(t, tt.held != "", plan.Held())
			require.Equal(t, tt.ends, strings.Count(planText(plan), "end "))
			waiting := 0
			for _, f := range plan.Findings {
				require.Equal(t, f.Held, f.Pending)
				if f.Held {
					require.Contains(t, f.BlockedBy, "safety limit exceeded")
					waiting++
				}
			}
			require.Equal(t, len(plan.Findings)-tt.ends, waiting)
		})
	}
}

func TestLimitOfDetachments(t *testing.T) {
	hosts := "a | env 1 alice | env 2 bob | dev 0 1@01 | dev 1 1@02 | dev 2 1@03 | dev 3 2@01"
	for limits, want := range map[safety.Limits]string{
		{Fleet: safety.Limit{Detachments: 4}}:                   "",
		{Fleet: safety.Limit{Detachments: 3}}:                   "alicea 0+3",
		{PerUser: safety.Limit{Detachments: 2}}:                 "alicea 0+3",
		{PerHost: safety.Limit{Detachments: 3}}:                 "alicea 0+3",
		{PerUser: safety.Limit{Detachments: 2}, Throttle: true}: "alicea 0+1",
		{Fleet: safety.Limit{Terminations: 1}}:                  "",
	} {
		policy := stated{all: enforce.Settings{MaxDevices: new(0)}, fleet: enforce.Fleet{Limits: limits}}
		require.Equal(t, want, heldText(evaluate(policy, parseCluster(t, hosts), noon(0))), "%+v", limits)
	}
}

// Hosts that answer one after the other in a round share its limits.
func TestALimitIsOfARound(t *testing.T) {
	policy := stated{all: enforce.Settings{NonEnvProcesses: true, Warn: enforce.Warn{Cycles: 1}}, fleet: enforce.Fleet{Limits: safety.Limits{Fleet: safety.Limit{Terminations: 1}}}}
	cluster := parseCluster(t, "a | dev 0 | proc 5 - u1 by:alice 0:1\nb | dev 0 | proc 6 - u2 by:bob 0:1")
	var memory controllerMemory
	for i, rounds := range [][2]int{{1, 1}, {2, 1}, {2, 2}, {3, 2}} {
		cluster.Hosts[0].Round, cluster.Hosts[1].Round = rounds[0], rounds[1]
		plan := planText(memory.Judge(policy, cluster, noon(i)))
		require.Equal(t, []string{"", "a end 5", "", "b end 6"}[i], plan, "%v", rounds)
	}
}

// A cap whose actions are all held waits on all hosts; one that is held on one host goes on elsewhere.
func TestACapIsHeldWithItsActions(t *testing.T) {
	user := "a | env 1 alice u1 | dev 0 1@01 | proc 5 1 u1 by:alice 0:1\nb | env 2 alice u1 | dev 0 2@02 | dev 1 2@02"
	policy := stated{all: enforce.Settings{MaxDevices: new(0)}, fleet: enforce.Fleet{Limits: safety.Limits{Fleet: safety.Limit{Detachments: 1}}}}
	plan := evaluate(policy, parseCluster(t, strings.Replace(user, "1@01", "1@01 | dev 1 1@01", 1)), noon(0))
	require.Empty(t, planText(plan))
	require.True(t, plan.Findings[0].Held && plan.Findings[0].Pending)

	policy.fleet.Limits = safety.Limits{PerHost: safety.Limit{Detachments: 1}}
	plan = evaluate(policy, parseCluster(t, user), noon(0))
	require.Equal(t, "a detach 0 1; a end 5", planText(plan))
	require.Equal(t, "aliceb 0+2", heldText(plan))
	require.False(t, plan.Findings[0].Held)
}

func TestAHeldUserIsNamed(t *testing.T) {
	for throttle, want := range map[bool]string{
		false: "No action taken against user user1 on host a in this cycle (kept back: 3 terminations, 0 detachments)",
		true:  "Only some actions taken against user user1 on host a in this cycle (kept back: 2 terminations, 0 detachments)",
	} {
		limits := safety.Limits{PerUser: safety.Limit{Terminations: 1}, Throttle: throttle}
		policy := stated{all: enforce.Settings{NonEnvProcesses: true}, fleet: enforce.Fleet{Limits: limits}}
		plan := evaluate(policy, parseCluster(t, "a | dev 0 | "+outside(100, 3, "1")), noon(0))
		require.Equal(t, "Safety limit exceeded: 3 processes would be terminated, and max-terminations-per-user is 1. "+want, plan.HeldUsers[0].String())
	}
}

// With throttle the oldest findings come first: everything is done in the end, however many processes are started.
func TestThrottleTakesTheOldestFirst(t *testing.T) {
	policy := stated{
		all:   enforce.Settings{NonEnvProcesses: true},
		fleet: enforce.Fleet{Limits: safety.Limits{PerUser: safety.Limit{Terminations: 1}, Throttle: true}},
	}
	var memory controllerMemory
	judge := func(minute int, hosts string) string {
		return planText(memory.Judge(policy, parseCluster(t, hosts), noon(minute)))
	}
	require.Equal(t, "a end 9", judge(0, "a | dev 0 | dev 1 | proc 9 - u1 by:bob 1:1"))
	require.Equal(t, "a end 9", judge(1, "a | dev 0 | dev 1 | proc 5 - u1 by:bob 0:1 | proc 9 - u1 by:bob 1:1"))
	require.Equal(t, "a end 5", judge(2, "a | dev 0 | dev 1 | proc 5 - u1 by:bob 0:1 | proc 6 - u1 by:bob 0:1"))
}

// Two thousand made-up users and processes cost little time.
func TestLimitsOfManyUsersTakeLittleTime(t *testing.T) {
	var hosts []string
	for h := range 10 {
		line := fmt.Sprintf("h%d | dev 0", h)
		for i := range 200 {
			line += " | " + outside(100+i, 1, fmt.Sprint(h*200+i+1))
		}
		hosts = append(hosts, line)
	}
	cluster := parseCluster(t, strings.Join(hosts, "\n"))
	policy := stated{all: enforce.Settings{NonEnvProcesses: true}, fleet: enforce.Fleet{Limits: safety.Limits{Fleet: safety.Limit{Terminations: 200}}}}
	require.Len(t, evaluate(policy, cluster, noon(0)).HeldUsers, 1_800)
}
