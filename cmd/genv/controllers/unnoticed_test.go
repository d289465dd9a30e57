package controllers

import (
	"fmt"
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
	d.Hosts = []Host{hostOf(hostOfShard(2, 4), &agent.About{Can: agent.Capabilities{Fence: true}})} // which has neither a leader nor a process
	d.judge()
	require.NotEmpty(t, d.Problems, "nothing is enforced on this host")
}

// While one shard has no leader, the hosts of the others that no controller claims are named nevertheless.
func TestHostsOfAShardBesideOneWithoutALeader(t *testing.T) {
	d := divided([]shards.Member{{Name: "a", Count: 2, Ready: []int{0, 1}}}, nil)
	e := d.Election
	e.Leads, e.Shards = false, []Shard{{Number: 0, Election: Election{Key: shards.Key(e.Key, 0), Leads: true}}, {Number: 1, Election: Election{Key: shards.Key(e.Key, 1)}}}
	for number := range 2 {
		require.Equal(t, number == 0, e.leadsOn(hostOfShard(number, 2)))
	}
}

// hostOfShard is the name of a host of a shard.
func hostOfShard(number, count int) string {
	for i := 0; ; i++ {
		if host := fmt.Sprint("gpu-", i); shards.Of(host, count) == number {
			return host
		}
	}
}
