package controllers

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/election"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func registered(id string, lost bool) election.Registration {
	return election.Registration{
		Candidate: election.Candidate{ID: id, Name: "genv on jump-" + id + ", process 7"}, Host: "jump-" + id, PID: 7, Version: "2.0.0",
		Since: noon.Add(-time.Hour), Cycled: noon.Add(-4 * time.Second), Interval: 10, Hosts: 2, Lost: lost,
	}
}

// with is a registered controller with hosts and a policy.
func with(id, hosts, policy string) election.Registration {
	r := registered(id, false)
	r.HostsDigest, r.Policy = hosts, policy
	return r
}

// reaching is a registered controller, some of whose 4 hosts answered.
func reaching(id string, answered int) election.Registration {
	r := registered(id, false)
	r.Hosts, r.Answered = 4, &answered
	return r
}

// lostAt is reaching, of one that was killed then.
func lostAt(id string, answered int) election.Registration {
	r := reaching(id, answered)
	r.Lost = true
	return r
}

func leaderOf(id string) *election.Leader {
	return &election.Leader{Candidate: registered(id, false).Candidate, Since: noon.Add(-time.Minute)}
}

const cluster = 0xcafe

// said is what a host says that noted a claim of a source.
func said(host, source string, epoch uint64, released bool) Host {
	note := &fence.Note{Claim: fence.Claim{Source: source, Epoch: epoch, Controller: "id", Name: "by " + source}, Since: noon, Released: released}
	return hostOf(host, &agent.About{Can: agent.Capabilities{Fence: true}, Acting: agent.Acting{Noted: note}})
}

func texts(d *Document) (list []string) {
	for _, p := range d.Problems {
		list = append(list, p.Text)
	}
	return list
}

func TestTheElection(t *testing.T) {
	for name, row := range map[string]struct {
		leader     *election.Leader
		registered []election.Registration
		roles      []Role
		problems   []string
	}{
		"a leader and a standby":       {leaderOf("2"), []election.Registration{registered("1", false), registered("2", false)}, []Role{leading, standby}, nil},
		"none at all":                  {nil, nil, nil, []string{"no controller leads, so nothing is enforced"}},
		"standbys alone":               {nil, []election.Registration{registered("1", false)}, []Role{standby}, []string{"no controller leads, so nothing is enforced"}},
		"no standby":                   {leaderOf("1"), []election.Registration{registered("1", false)}, []Role{leading}, []string{"there is no standby: if the leader fails, nothing is enforced"}},
		"of another version":           {&election.Leader{Candidate: election.Candidate{Name: "a controller of another version"}}, []election.Registration{registered("1", false)}, []Role{leading, standby}, nil},
		"a restart that isn't written": {&election.Leader{Candidate: election.Candidate{ID: "1", Name: "genv on jump-1, process 6"}}, []election.Registration{registered("1", false)}, []Role{leading, standby}, nil},
		"one is lost": {leaderOf("2"), []election.Registration{registered("1", true), registered("2", false), registered("3", false)}, []Role{leading, standby, lost}, []string{
			`"genv on jump-1, process 7" is lost: it was killed, or can't reach etcd`,
		}},
		"other hosts":                  {leaderOf("2"), []election.Registration{with("1", "h1", "p1"), with("2", "h2", "p1")}, []Role{leading, standby}, []string{`"genv on jump-1, process 7" has other hosts than the leader: if it leads, it enforces those`}},
		"another policy":               {leaderOf("2"), []election.Registration{with("1", "h1", "p1"), with("2", "h1", "p2")}, []Role{leading, standby}, []string{`"genv on jump-1, process 7" has another policy than the leader: if it leads, it enforces that`}},
		"the same":                     {leaderOf("2"), []election.Registration{with("1", "h1", "p1"), with("2", "h1", "p1")}, []Role{leading, standby}, nil},
		"of an older genv":             {leaderOf("2"), []election.Registration{with("1", "h1", "p1"), registered("2", false)}, []Role{leading, standby}, nil},
		"the leader reaches no host":   {leaderOf("2"), []election.Registration{reaching("1", 4), reaching("2", 0)}, []Role{leading, standby}, []string{`only 0 of 4 hosts answer the leader, and 4 answer "genv on jump-1, process 7"`}},
		"the leader reaches a quarter": {leaderOf("2"), []election.Registration{reaching("1", 2), reaching("2", 1)}, []Role{leading, standby}, []string{`only 1 of 4 hosts answer the leader, and 2 answer "genv on jump-1, process 7"`}},
		"the leader reaches half":      {leaderOf("2"), []election.Registration{reaching("1", 4), reaching("2", 2)}, []Role{leading, standby}, nil},
		"neither reaches a host":       {leaderOf("2"), []election.Registration{reaching("1", 0), reaching("2", 0)}, []Role{leading, standby}, nil},
		"a standby of an older genv":   {leaderOf("2"), []election.Registration{registered("1", false), reaching("2", 0)}, []Role{leading, standby}, nil},
		"a lost one reached more":      {leaderOf("2"), []election.Registration{reaching("3", 0), reaching("2", 0), lostAt("1", 4)}, []Role{leading, standby, lost}, []string{`"genv on jump-1, process 7" is lost: it was killed, or can't reach etcd`}},
		"without a leader both":        {nil, []election.Registration{with("1", "h1", "p1"), with("2", "h2", "p2")}, []Role{standby, standby}, []string{"no controller leads, so nothing is enforced"}},
	} {
		d := &Document{Time: noon, Election: electionOf("/k", row.leader, 9, cluster, row.registered, noon)}
		d.judge()
		var roles []Role
		for _, c := range d.Election.Controllers {
			roles = append(roles, c.Role)
		}
		require.Equal(t, row.roles, roles, name)
		require.Equal(t, row.problems, texts(d), name)
		require.Equal(t, row.leader != nil, d.Election.Leads, name)
	}
}

func TestALateLeader(t *testing.T) {
	for age, late := range map[time.Duration]bool{-time.Minute: false, 0: false, 30 * time.Second: false, 31 * time.Second: true, time.Hour: true} {
		r := registered("1", false)
		r.Cycled = noon.Add(-age)
		d := &Document{Time: noon, Election: electionOf("/k", leaderOf("1"), 9, cluster, []election.Registration{r, registered("2", false)}, noon)}
		d.judge()
		require.Equal(t, late, len(d.Problems) == 1, "%s: %v", age, d.Problems)
	}
}

func TestHosts(t *testing.T) {
	elected, other := fence.ElectionSource(cluster, "/k"), fence.FolderSource("x")
	unfenced := hostOf("old", &agent.About{})
	damaged := hostOf("bad", &agent.About{Can: agent.Capabilities{Fence: true}, Acting: agent.Acting{NotedUnknown: "damaged"}})
	fresh := hostOf("new", &agent.About{Can: agent.Capabilities{Fence: true}})
	require.Equal(t, []State{cannot, unknown, none}, []State{unfenced.State, damaged.State, fresh.State})
	ok := electionOf("/k", leaderOf("1"), 9, cluster, []election.Registration{registered("1", false), registered("2", false)}, noon)
	byLeader := said("a", fence.ElectionSource(1, "/k"), 9, false)
	byLeader.Controller = leaderOf("1").Name
	for name, row := range map[string]struct {
		election *Election
		hosts    []Host
		problems []string
	}{
		"all the same":             {nil, []Host{said("a", other, 3, false), said("b", other, 3, false), fresh, unfenced}, nil},
		"one has released":         {nil, []Host{said("a", other, 3, false), said("b", elected, 3, true)}, nil},
		"an earlier epoch":         {ok, []Host{said("a", elected, 8, false), said("b", elected, 9, false)}, nil},
		"two without an election":  {nil, []Host{said("a", other, 3, false), said("b", elected, 9, false), said("c", elected, 9, false)}, []string{`"by folder:x" acts on a, and another controller on the other hosts`}},
		"one outside the election": {ok, []Host{said("a", other, 3, false), said("b", other, 9, false), said("c", elected, 9, false)}, []string{`"by folder:x" acts on a, b, which refuses the controllers of this election`}},
		"another cluster":          {ok, []Host{said("a", fence.ElectionSource(1, "/k"), 9, false)}, []string{`"by election:1//k" acts on a, which refuses the controllers of this election`}},
		"released by another one":  {ok, []Host{said("a", fence.ElectionSource(cluster, "/other"), 9, true), said("b", elected, 9, false)}, []string{"only the leader of another election may act on a: the controllers of this election are refused there"}},
		"released before a leader": {electionOf("/k", nil, 0, cluster, nil, noon), []Host{said("a", fence.ElectionSource(1, "/k"), 9, true)}, []string{"no controller leads, so nothing is enforced", "only the leader of another election may act on a: the controllers of this election are refused there"}},
		"released by a folder":     {ok, []Host{said("a", other, 9, true)}, []string{"no controller acts on a, so nothing is enforced there"}},
		"all have released":        {nil, []Host{said("a", other, 3, true), fresh}, []string{"no controller acts on a, new, so nothing is enforced there"}},
		"one can't say":            {nil, []Host{said("a", other, 3, true), unfenced}, nil},
		"one may act on it":        {nil, []Host{fresh, damaged}, []string{"bad: genv can't read which controller may act, so none may"}},
		"etcd was set up again":    {ok, []Host{said("a", elected, 10, true), said("b", elected, 11, false), said("c", elected, 9, false)}, []string{"a later epoch of this election than that of the leader is known on a, b, which refuses the leader: etcd was set up again as it was, or restored"}},
		"a later epoch by itself":  {electionOf("/k", nil, 0, cluster, nil, noon), []Host{said("a", elected, 10, true)}, []string{"no controller leads, so nothing is enforced"}},
		"another one acts":         {electionOf("/k", nil, 0, cluster, nil, noon), []Host{said("a", other, 3, false)}, []string{"no controller of this election leads, so nothing is enforced except by the controllers named below", `"by folder:x" acts on a, which refuses the controllers of this election`}},
		"etcd was restored":        {ok, []Host{byLeader}, []string{"on a the leader acts with an epoch from another etcd cluster, so no standby can take over there"}},
		"unknown is not none":      {nil, []Host{damaged}, []string{"bad: genv can't read which controller may act, so none may"}},
		"can't refuse":             {ok, []Host{unfenced}, []string{"the genv of old can't refuse a controller that was replaced"}},
	} {
		d := &Document{Time: noon, Election: row.election, Hosts: row.hosts}
		d.judge()
		require.Equal(t, row.problems, texts(d), name)
		for _, p := range d.Problems {
			require.NotEmpty(t, p.Next, name)
		}
	}
}

// What to do without a leader depends on who is there, and on what hosts know.
func TestNextStepsWithoutALeader(t *testing.T) {
	for name, row := range map[string]struct {
		registered []election.Registration
		hosts      []Host
		next       string
	}{
		"no controller":    {nil, nil, "start one: `systemctl start"},
		"one that is lost": {[]election.Registration{registered("1", true)}, nil, "start one: `systemctl start"},
		"a standby":        {[]election.Registration{registered("1", false)}, nil, "wait for half a minute: a standby takes over"},
		"another one acts": {nil, []Host{said("a", fence.FolderSource("x"), 3, false)}, "first decide which controllers are to act"},
	} {
		d := &Document{Time: noon, Election: electionOf("/k", nil, 0, cluster, row.registered, noon), Hosts: row.hosts}
		d.judge()
		require.Contains(t, d.Problems[0].Next, row.next, name)
	}
}

func TestWhatPeopleRead(t *testing.T) {
	d := &Document{
		Time:     noon,
		Election: electionOf("/genv/lab", leaderOf("1"), 1234, cluster, []election.Registration{registered("1", false), reaching("2", 0), registered("3", true)}, noon.Add(-8*time.Second)),
		Hosts:    []Host{said("gpu-01", fence.ElectionSource(cluster, "/genv/lab"), 1234, false), said("gpu-02", "folder:a\x1b[2J", 7, false), hostOf("gpu-03", &agent.About{})},
	}
	d.judge()
	var b bytes.Buffer
	require.NoError(t, d.write(&b, render.Output{Format: "tui"}))
	require.NotContains(t, b.String(), "\x1b")
	t.Log("\n" + b.String())
	for _, words := range []string{
		"Election /genv/lab: epoch 1234, since 2026-03-01T11:59:00Z\n",
		"genv on jump-1, process 7     leading", "4 seconds ago", "2.0.0     2     ", "2.0.0     0/4   ", "memory of the leader was written to etcd 8 seconds ago.",
		"acts!", "can't refuse", "\nnext: look at `systemctl status genv-controller` on jump-3\n",
	} {
		require.Contains(t, b.String(), words)
	}
	empty := &Document{Time: noon, Election: electionOf("/k", nil, 0, cluster, nil, time.Time{})}
	b.Reset()
	require.NoError(t, empty.write(&b, render.Output{Format: "tui"}))
	require.Contains(t, b.String(), "Election /k: no controller leads\n")
}
