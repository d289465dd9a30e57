package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

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
		list     []*enforce.Cap
		user     snapshot.Username
		want     string
	}{
		{"a key of its own", withMax(4), nil, "alice", "max-devices-per-user 3/4 here 2 [0 1] of [0 1 2] + 1 on [b]"},
		{"who has nothing here", withMax(4), nil, "carol", "max-devices-per-user 1/4 here 0 [] of [0 1 2] + 1 on [b]"},
		{"who has nothing anywhere", withMax(4), nil, "dan", "max-devices-per-user 0/4 here 0 [] of [0 1 2]"},
		{"by model", count, []*enforce.Cap{listed("a100", 1, ofModel("A100"))}, "alice", "a100 1/1 here 1 [0] of [0 1]"},
		{"on each host", count, []*enforce.Cap{listed("one", 2, perHost)}, "alice", "one 2/2 here 2 [0 1] of [0 1 2]"},
		{"on other hosts", count, []*enforce.Cap{listed("b", 1, onHosts("b"))}, "alice", "b 1/1 here 0 [] of [] + 1 on [b]"},
		{"together", count, []*enforce.Cap{listed("all", 9, together)}, "bob", "all 4/9 here 3 [0 1 2] of [0 1 2] + 1 on [b]"},
		{"together, for who has nothing", count, []*enforce.Cap{listed("all", 9, together)}, "dan", "all 4/9 here 3 [0 1 2] of [0 1 2] + 1 on [b]"},
		{"a share", count, []*enforce.Cap{listed("share", 100, percent, together)}, "bob", "share 4/4 here 3 [0 1 2] of [0 1 2] + 1 on [b]"},
		{"environments", count, []*enforce.Cap{listed("envs", 3, counts(enforce.CapEnvironments))}, "alice", "envs 2/3 here 1 [] of [] + 1 on [b]"},
		{"of others", count, []*enforce.Cap{listed("bobs", 1, about("bob"))}, "alice", ""},
		{"who may be a member", count, []*enforce.Cap{listed("bobs", 1, about("bob?"))}, "bob", ""},
		{"at other times", count, []*enforce.Cap{listed("rest", 1, func(c *enforce.Cap) { c.Resting = true })}, "alice", ""},
		{"no cap", count, nil, "alice", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := evaluate(stated{all: tt.settings, list: tt.list}, parseCluster(t, cluster), noon(0))
			require.Equal(t, tt.want, countsText(plan.Counts.On("a", tt.user)))
			require.Equal(t, tt.want, countsText(plan.Counts.On("a", tt.user)), "again")
		})
	}
	explained := evaluate(stated{all: withMax(4), list: []*enforce.Cap{listed("envs", 3, counts(enforce.CapEnvironments))}}, parseCluster(t, cluster), noon(0))
	require.Equal(t, []string{
		"max-devices-per-user: 3 GPUs of 4 GPUs; 2 GPUs on a (GPU 0,1); 1 GPU on b (GPU 0); first would go GPU 1 on a (it is idle)",
		"cap envs: 2 environments of 3 environments; 1 environment on a; 1 environment on b",
	}, explained.Counts.Explain("a", "alice"))
	require.Empty(t, explained.Counts.Explain("none", "alice"))
	plan := evaluate(stated{all: withMax(1)}, parseCluster(t, cluster+"\nc | down"), noon(0))
	require.Empty(t, plan.CapsOf("c", "alice"), "it did not answer")
	require.Empty(t, plan.Counts.On("none", "alice"))
	plan = enforce.Plan{}
	require.Empty(t, plan.CapsOf("a", "alice"), "nothing was judged")
	require.Empty(t, plan.ExplainCaps("a", "alice"))
}
