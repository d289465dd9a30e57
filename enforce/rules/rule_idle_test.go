package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
)

// scene is what hosts say from a minute on, each minute until the next one.
type scene struct {
	minute  int
	cluster string
}

// firstAction judges scenes minute by minute, and returns the minute of the first action with it; 0 for none until the end.
func firstAction(t *testing.T, policy stated, end int, scenes ...scene) (memory controllerMemory, text string) {
	at := 0
	for minute := range end {
		for at+1 < len(scenes) && scenes[at+1].minute <= minute {
			at++
		}
		if plan := memory.Judge(policy, parseCluster(t, scenes[at].cluster), noon(minute)); len(plan.Orders) > 0 {
			return memory, fmt.Sprintf("%d: %s", minute, planText(plan))
		}
	}
	return memory, ""
}

// Two hours without computing are warned for half an hour, then the process ends, also outside of environments.
func TestIdleMeansIdle(t *testing.T) {
	half := enforce.Warn{For: 30 * time.Minute}
	idle := enforce.Idle{After: 2 * time.Hour, Below: 5, BelowPower: 20, End: true, Warn: &half}
	policy := stated{all: enforce.Settings{CountOutside: true, Idle: &idle}}
	with := func(change func(*enforce.Settings)) stated {
		p := policy
		own := idle
		p.all.Idle = &own
		change(&p.all)
		return p
	}
	const plain = "proc 5 - u1001 0:10"
	job := "proc 5 1 u1001 0:10 1:10 2:10 3:10"
	four := "a | env 1 ada u1001 | dev 0 u0 1@01 | dev 1 u90 1@01 | dev 2 u90 1@01 | dev 3 u90 1@01 | "
	var loop []scene
	for i := range 212 {
		eid := fmt.Sprint(100 + i)
		loop = append(loop, scene{i, fmt.Sprintf("a | env %s bo u1001 | dev 3 GPU-3 u0 %s@01 | proc %s %s u1001 by:bo 3:10", eid, eid, eid, eid)})
	}
	for name, row := range map[string]struct {
		policy stated
		scenes []scene
		want   string
	}{
		"xia, plain, at 0 %":                       {policy, []scene{{0, "a | dev 0 u0 | " + plain}}, "150: a end 5"},
		"of an unknown environment":                {policy, []scene{{0, "a | dev 0 u0 | proc 5 ? u1001 0:10"}}, "150: a end 5"},
		"that claims somebody else's":              {policy, []scene{{0, "a | env 1 bob u1002 | dev 0 u0 | proc 5 1 u1001 0:10"}}, "150: a end 5"},
		"in a container that alice started":        {policy, []scene{{0, "a | dev 0 u0 | proc 5 - u0 0:10 started:1001"}}, "150: a end 5"},
		"yan, 97 % at 60 W of 400":                 {policy, []scene{{0, "a | dev 0 u97 w60/400 | " + plain}}, "150: a end 5"},
		"attached":                                 {policy, []scene{{0, "a | env 1 yan u1001 | dev 0 u97 w60/400 1@01 | proc 5 1 u1001 0:10"}}, "150: a detach 0 1; a end 5"},
		"attached, and used from outside":          {policy, []scene{{0, "a | env 1 yan u1001 | dev 0 u0 1@01 | proc 5 - u1001 by:yan 0:10"}}, "150: a detach 0 1; a end 5"},
		"both GPUs of a job":                       {policy, []scene{{0, "a | dev 0 u0 | dev 1 u0 | proc 5 - u1001 0:10 1:10"}}, "150: a end 5"},
		"the second an hour later":                 {policy, []scene{{0, "a | dev 0 u0 | dev 1 u90 | proc 5 - u1001 0:10 1:10"}, {60, "a | dev 0 u0 | dev 1 u0 | proc 5 - u1001 0:10 1:10"}}, "210: a end 5"},
		"bo, in a loop":                            {policy, loop, "150: a detach 3 250; a end 250"},
		"a break of less than a quarter":           {policy, []scene{{0, "a | dev 0 u0 | " + plain}, {60, "a | dev 0 u0"}, {89, "a | dev 0 u0 | proc 6 - u1001 0:10"}}, "150: a end 6"},
		"a longer one":                             {policy, []scene{{0, "a | dev 0 u0 | " + plain}, {60, "a | dev 0 u0"}, {90, "a | dev 0 u0 | proc 6 - u1001 0:10"}}, ""},
		"another person's GPU has their own times": {policy, []scene{{0, "a | dev 0 u0 | " + plain}, {100, "a | dev 0 u0 | " + plain + " | proc 6 - u1002 0:10"}}, "150: a end 5"},
		"an unused GPU, whatever it draws":         {policy, []scene{{0, "a | env 1 yan u1001 | dev 0 u97 w390/400 1@01"}}, "150: a detach 0 1"},
		"zoe, unknown":                             {policy, []scene{{0, "a | dev 0 | " + plain}}, ""},
		"an unknown limit":                         {policy, []scene{{0, "a | dev 0 u97 w60/0 | " + plain}}, ""},
		"an instance":                              {policy, []scene{{0, "a | dev 0 w60/400 mig | " + plain}}, ""},
		"at the limit":                             {policy, []scene{{0, "a | dev 0 u97 w80/400 | " + plain}}, ""},
		"ada, over four GPUs, one at 0 %":          {policy, []scene{{0, four + job}}, ""},
		"the same, outside":                        {policy, []scene{{0, four + strings.Replace(job, " 1 ", " - ", 1) + " by:ada"}}, ""},
		"its other GPU is exempt":                  {policy, []scene{{0, "a | dev 0 u0 | dev 1 failed | proc 5 - u1001 0:10 1:10"}}, ""},
		"either threshold for half the time":       {policy, []scene{{0, "a | dev 0 u0 w390/400 | " + plain}, {70, "a | dev 0 u97 w60/400 | " + plain}}, ""},
		"a measurement in between":                 {policy, []scene{{0, "a | dev 0 u0 | " + plain}, {100, "a | dev 0 u50 | " + plain}, {101, "a | dev 0 u0 | " + plain}}, ""},
		"two minutes without a measurement":        {policy, []scene{{0, "a | dev 0 u0 | " + plain}, {100, "a | down"}, {103, "a | dev 0 u0 | " + plain}}, ""},
		"root's":                                   {policy, []scene{{0, "a | dev 0 u0 | proc 5 - u0 0:10"}}, ""},
		"of an account of the system":              {policy, []scene{{0, "a | dev 0 u0 | proc 5 - u999 0:10"}}, ""},
		"of no known account":                      {policy, []scene{{0, "a | dev 0 u0 | proc 5 - 0:10"}}, ""},
		"a container without an owner":             {policy, []scene{{0, "a | dev 0 u0 | proc 5 - u0 0:10 started:?"}}, ""},
		"a desktop":                                {policy, []scene{{0, "a | dev 0 u0 screen | proc 5 - u1001 0:10:G"}}, ""},
		"without end":                              {with(func(s *enforce.Settings) { s.Idle.End = false }), []scene{{0, "a | dev 0 u0 | " + plain}}, ""},
		"without end, in use from outside":         {with(func(s *enforce.Settings) { s.Idle.End = false }), []scene{{0, "a | env 1 yan u1001 | dev 0 u90 1@01 | proc 5 - u1001 by:yan 0:10"}}, ""},
		"outside, without count":                   {with(func(s *enforce.Settings) { s.CountOutside = false }), []scene{{0, "a | dev 0 u0 | " + plain}}, ""},
		"over two, one not attached":               {with(func(s *enforce.Settings) { s.CountOutside = false }), []scene{{0, "a | env 1 yan u1001 | dev 0 u0 1@01 | dev 1 u90 | proc 5 1 u1001 0:10 1:10"}}, ""},
	} {
		_, got := firstAction(t, row.policy, 212, row.scenes...)
		require.Equal(t, row.want, got, name)
	}
	low := with(func(s *enforce.Settings) { s.Idle.End, s.Idle.Below, s.EnvDevices = false, 5, true })
	m, got := firstAction(t, low, 200, scene{0, "a | env 1 yan u1001 | dev 0 u97 w60/400 1@01 | proc 5 1 u1001 0:10"})
	require.Equal(t, "150: a detach 0 1", got)
	require.Empty(t, planText(m.Judge(low, parseCluster(t, "a | env 1 yan u1001 | dev 0 u97 w60/400 | proc 5 1 u1001 0:10"), noon(151))), "it is left alone while it computes nothing")
}

// TestIdleWarning says what ends, and for whom.
func TestIdleWarning(t *testing.T) {
	policy := stated{all: enforce.Settings{CountOutside: true, Idle: &enforce.Idle{After: time.Hour, Below: 5, End: true, Warn: &enforce.Warn{For: time.Hour}}}}
	m, got := firstAction(t, policy, 70, scene{0, "a | env 1 bob u1002 | dev 0 u0 | dev 1 u0 1@01 | proc 5 - u1001 by:alice 0:10 | proc 6 1 u1002 by:bob 1:10"})
	require.Empty(t, got)
	plan := m.Judge(policy, parseCluster(t, "a | env 1 bob u1002 | dev 0 u0 | dev 1 u0 1@01 | proc 5 - u1001 by:alice 0:10 | proc 6 1 u1002 by:bob 1:10"), noon(70))
	require.Len(t, plan.Findings, 2)
	require.Equal(t, "GPU 1 of environment 1 has been idle for 1h10m, and 1h are allowed (user bob)", plan.Findings[0].Line())
	require.Equal(t, "Process 5 has computed nothing on GPU 0 for 1h10m, and 1h are allowed", plan.Findings[1].String())
	for _, f := range plan.Findings {
		require.Len(t, f.Terminate, 1)
		require.Equal(t, noon(120), f.Due)
		require.Contains(t, f.Advice(noEnvironment), "Save your work")
		f.Pending = false
		require.Contains(t, f.Advice(noEnvironment), "Start it again", "while it ends")
	}
	require.Equal(t, "idle/a/5/1", plan.Findings[1].ID)
	policy.all.Idle.BelowPower = 20
	busy := "a | env 1 bob u1002 | dev 0 u97 w60/400 | dev 1 u97 w60/400 1@01 | proc 5 - u1001 by:alice 0:10 | proc 6 1 u1002 by:bob 1:10"
	m, _ = firstAction(t, policy, 70, scene{0, busy})
	plan = m.Judge(policy, parseCluster(t, busy), noon(70))
	require.Equal(t, "GPU 1 has drawn less than 20% of its power limit for 1h10m, and 1h are allowed (user bob)", plan.Findings[0].Line())
	require.Equal(t, "GPU 0 has drawn less than 20% of its power limit for 1h10m, and 1h are allowed", plan.Findings[1].String())
	for _, f := range plan.Findings {
		require.Contains(t, f.Advice(noEnvironment), "a GPU that computes draws more power")
	}
}

// TestMaxDurationIsAPersons: another environment, or a short break, begins no time.
func TestMaxDurationIsAPersons(t *testing.T) {
	policy := stated{all: enforce.Settings{MaxDuration: 4 * time.Hour}}
	for name, row := range map[string]struct {
		scenes []scene
		want   string
	}{
		"another environment":        {[]scene{{0, "a | env 1 al | dev 0 1@12:00"}, {60, "a | env 2 al | dev 0 2@13:00"}}, "241: a detach 0 2"},
		"again within a quarter":     {[]scene{{0, "a | env 1 al | dev 0 1@12:00"}, {60, "a | env 1 al | dev 0"}, {119, "a | env 1 al | dev 0 1@13:59"}}, "241: a detach 0 1"},
		"after a quarter":            {[]scene{{0, "a | env 1 al | dev 0 1@12:00"}, {60, "a | env 1 al | dev 0"}, {120, "a | env 1 al | dev 0 1@14:00"}}, ""},
		"shared, each their own":     {[]scene{{0, "a | env 1 al | env 2 bo | dev 0 1@12:00"}, {60, "a | env 1 al | env 2 bo | dev 0 1@12:00 2@13:00"}}, "241: a detach 0 1"},
		"another GPU":                {[]scene{{0, "a | env 1 al | dev 0 1@12:00 | dev 1"}, {60, "a | env 1 al | dev 0 | dev 1 1@13:00"}}, ""},
		"another person's":           {[]scene{{0, "a | env 1 al | dev 0 1@12:00"}, {60, "a | env 2 bo | dev 0 2@13:00"}}, ""},
		"a host that doesn't answer": {[]scene{{0, "a | env 1 al | dev 0 1@12:00"}, {60, "a | down"}, {200, "a | env 2 al | dev 0 2@13:05"}}, "241: a detach 0 2"},
	} {
		_, got := firstAction(t, policy, 250, row.scenes...)
		require.Equal(t, row.want, got, name)
	}
}
