package controllers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/election"
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
