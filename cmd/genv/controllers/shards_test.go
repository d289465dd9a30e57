package controllers

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/shards"
)

// divided is a fleet of 4 shards, of which shard 2 has no hosts.
func divided(members []shards.Member, change func(all []Shard)) *Document {
	e := electionOf("/k", nil, 0, cluster, nil, time.Time{})
	var all []Shard
	for number := range 4 {
		of := electionOf(shards.Key("/k", number), leaderOf("1"), 9, cluster, []election.Registration{registered("1", false)}, noon)
		if number == 2 {
			of = electionOf(shards.Key("/k", number), nil, 0, cluster, nil, time.Time{})
		}
		all = append(all, Shard{Number: number, Election: *of})
	}
	if change != nil {
		change(all)
	}
	e.divide(members, all)
	return &Document{Time: noon, Election: e}
}

func TestShards(t *testing.T) {
	one, two := shards.Member{ID: "1", Name: "jump-1, process 7", Count: 4, Ready: []int{0, 1}}, shards.Member{ID: "2", Name: "jump-2, process 8", Count: 4, Ready: []int{3}}
	for name, row := range map[string]struct {
		members  []shards.Member
		change   func(all []Shard)
		leads    bool
		problems []string
	}{
		"in order":           {[]shards.Member{two, one}, nil, true, nil},
		"a controller alone": {[]shards.Member{one}, nil, true, []string{`there is no other controller: if "jump-1, process 7" fails, nothing is enforced`}},
		"a shard has no leader": {[]shards.Member{one, two}, func(all []Shard) {
			all[3].Election = *electionOf("/k/shards/03", nil, 0, cluster, nil, time.Time{})
		}, false, []string{"no controller leads shard 3, so nothing is enforced on its hosts"}},
		"all gave a shard up": {[]shards.Member{{ID: "1", Name: "a", Count: 4, Left: []int{3}}, {ID: "2", Name: "b", Count: 4, Left: []int{3}}}, func(all []Shard) {
			all[3].Election = *electionOf("/k/shards/03", nil, 0, cluster, nil, time.Time{})
		}, false, []string{`no controller leads shard 3, so nothing is enforced on its hosts: they refused "a", "b"`}},
		"one gave a shard up": {[]shards.Member{{ID: "1", Name: "a", Count: 4, Left: []int{3}}, two}, nil, true, nil},
		"a machine failed": {[]shards.Member{one, two}, func(all []Shard) {
			for _, number := range []int{0, 3} {
				all[number].Election = *electionOf("", leaderOf("1"), 9, cluster, []election.Registration{registered("1", false), registered("3", true)}, noon)
			}
		}, true, []string{"jump-3 has lost its processes of shards 0, 3: they were killed, or can't reach etcd"}},
		"a late leader": {[]shards.Member{one, two}, func(all []Shard) { all[1].Controllers[0].Cycle = noon.Add(-time.Hour) }, true, []string{"the last cycle of the leader of shard 1 ended 1 hour ago"}},
	} {
		d := divided(row.members, row.change)
		d.judge()
		require.Equal(t, row.problems, texts(d), name)
		require.Equal(t, row.leads, d.Election.Leads, name)
		require.Len(t, d.Election.Shards, 3, name)
	}
}

// A controller that was killed is missed, though another one has its shards, and one that runs isn't shown twice.
func TestALostControllerOfShards(t *testing.T) {
	killed, runs := registered("3", true), registered("1", false)
	e := electionOf("/k", nil, 0, cluster, []election.Registration{runs, killed}, time.Time{})
	e.divide([]shards.Member{{Name: "a", Count: 4}, {Name: "b", Count: 4}}, nil)
	d := &Document{Time: noon, Election: e}
	d.judge()
	require.Len(t, e.Controllers, 1)
	require.Equal(t, []string{`"genv on jump-3, process 7" is lost: it was killed, or can't reach etcd`}, texts(d))
}

// A host has to follow the election of its own shard, not that of another one.
func TestHostsOfShards(t *testing.T) {
	own := func(host string) string { return fence.ElectionSource(cluster, shards.Key("/k", shards.Of(host, 4))) }
	d := divided([]shards.Member{{Name: "a", Count: 4}, {Name: "b", Count: 4}}, nil)
	d.Hosts = []Host{said("gpu-01", own("gpu-01"), 9, false), said("gpu-02", own("gpu-02"), 9, false), said("gpu-03", fence.ElectionSource(cluster, "/k"), 9, false)}
	d.judge()
	require.Equal(t, []bool{true, true, false}, []bool{d.Hosts[0].Agrees, d.Hosts[1].Agrees, d.Hosts[2].Agrees})
	require.Equal(t, []string{`"by election:cafe//k" acts on gpu-03, which refuses the controllers of this election`}, texts(d))
}

// A host that knows a later epoch than the leader of its own shard refuses it.
func TestALaterEpochOfAShard(t *testing.T) {
	host, other := hostOfShard(1, 4), hostOfShard(3, 4)
	own := func(host string) string { return fence.ElectionSource(cluster, shards.Key("/k", shards.Of(host, 4))) }
	d := divided([]shards.Member{{Name: "a", Count: 4}, {Name: "b", Count: 4}}, func(all []Shard) { all[3].Epoch = 12 })
	d.Hosts = []Host{said(host, own(host), 10, true), said(other, own(other), 10, false)}
	d.judge()
	require.Len(t, d.Problems, 1)
	require.Contains(t, d.Problems[0].Text, "a later epoch of this election than that of the leader is known on "+host+", ")
}

func TestWhatPeopleReadOfShards(t *testing.T) {
	d := divided([]shards.Member{{Name: "jump-1\x1b[2J", Count: 4}, {Name: "jump-2", Count: 4}}, nil)
	d.judge()
	var b bytes.Buffer
	require.NoError(t, d.write(&b, render.Output{Format: "tui"}))
	require.NotContains(t, b.String(), "\x1b")
	require.Contains(t, b.String(), "Election /k: 4 shards, divided among ")
	require.Contains(t, b.String(), "\n3     genv on jump-1, process 7     leading  2026-03-01T11:00:00Z  2.0.0     2     4 seconds ago\n")
}

// A shard that every controller left alone is in the table, and a table without lines is a sentence.
func TestTablesWithoutControllers(t *testing.T) {
	none := func(number int) Shard {
		return Shard{Number: number, Election: *electionOf(shards.Key("/k", number), nil, 0, cluster, nil, time.Time{})}
	}
	for name, row := range map[string]struct {
		members []shards.Member
		all     []Shard
		want    string
	}{
		"no election yet":        {nil, nil, "Election /k: no controller leads\nNo controller takes part in it.\n"},
		"no shard yet":           {[]shards.Member{{Name: "a", Count: 2}}, []Shard{none(0), none(1)}, "Election /k: 2 shards, divided among \"a\"\nNo controller has begun with a shard yet.\n"},
		"a shard was left alone": {[]shards.Member{{Name: "a", Count: 2, Left: []int{1}}}, []Shard{none(0), none(1)}, "Election /k: 2 shards, divided among \"a\"\n\nSHARD CONTROLLER                    ROLE    RUNS SINCE          VERSION   HOSTS LAST CYCLE\n1     none                                                                      \n"},
	} {
		e := electionOf("/k", nil, 0, cluster, nil, time.Time{})
		if len(row.members) > 0 {
			e.divide(row.members, row.all)
		}
		var b bytes.Buffer
		require.NoError(t, (&Document{Time: noon, Election: e}).writeElection(&b, render.Output{Format: "tui"}), name)
		require.Equal(t, row.want, b.String(), name)
	}
}
