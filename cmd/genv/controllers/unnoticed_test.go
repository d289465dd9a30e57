package controllers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/shards"
)

func TestALeaderThatNeverEndedACycle(t *testing.T) {
	r := registered("1", false)
	r.Cycled = time.Time{}
	leader := leaderOf("1")
	leader.Since = noon.Add(-time.Hour)
	d := &Document{Time: noon, Election: electionOf("/k", leader, 9, cluster, []election.Registration{r, registered("2", false)}, noon)}
	d.judge()
	require.Len(t, d.Problems, 1)
}

func TestALeaderWhoseClockIsADayAhead(t *testing.T) {
	r := registered("1", false)
	r.Cycled = noon.Add(24 * time.Hour)
	d := &Document{Time: noon, Election: electionOf("/k", leaderOf("1"), 9, cluster, []election.Registration{r, registered("2", false)}, noon)}
	d.judge()
	require.Len(t, d.Problems, 1)
}

func TestHostsThatTheLeaderDoesNotHave(t *testing.T) {
	ok := electionOf("/k", leaderOf("1"), 9, cluster, []election.Registration{registered("1", false), registered("2", false)}, noon)
	fresh := hostOf("new", &agent.About{Can: agent.Capabilities{Fence: true}})
	d := &Document{Time: noon, Election: ok, Hosts: []Host{said("a", fence.ElectionSource(cluster, "/k"), 9, false), fresh, said("b", fence.FolderSource("x"), 3, true)}}
	d.judge()
	require.Len(t, d.Problems, 1, "the leader claims all of its hosts, but not new and b")
}

func TestAShardWhoseProcessesNeverStarted(t *testing.T) {
	members := []shards.Member{{Name: "a", Count: 4}, {Name: "b", Count: 4}}
	d := divided(members, nil)
	for i := 0; ; i++ { // a host of shard 2, which has neither a leader nor a process
		if host := "gpu-" + string(rune('a'+i)); shards.Of(host, 4) == 2 {
			d.Hosts = []Host{hostOf(host, &agent.About{Can: agent.Capabilities{Fence: true}})}
			break
		}
	}
	d.judge()
	require.NotEmpty(t, d.Problems, "nothing is enforced on this host")
}
