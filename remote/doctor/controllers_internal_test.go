package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Short names for rows: controllers and hosts, and whether a controller is lost, or has given its lease back.
type (
	all   = []election.Registration
	hosts = []HostReport
)

const up, down = false, true

func registered(id string, lost bool) election.Registration {
	return election.Registration{
		Candidate: election.Candidate{ID: id, Name: "genv on jump-" + id + ", process 7"}, Host: "jump-" + id, Version: "2.0.0",
		Cycled: noon.Add(-4 * time.Second), Interval: 10, Hosts: 2, Lost: lost,
	}
}

// with is a registered controller with hosts and a policy.
func with(id, hosts, policy string) election.Registration {
	r := registered(id, up)
	r.HostsDigest, r.Policy = hosts, policy
	return r
}

// reaching is a registered controller, some of whose 4 hosts answered.
func reaching(id string, answered int) election.Registration {
	r := registered(id, up)
	r.Hosts, r.Answered = 4, &answered
	return r
}

func leaderOf(id string) *election.Leader {
	return &election.Leader{Candidate: registered(id, up).Candidate, Since: noon.Add(-time.Minute)}
}

const cluster = 0xcafe

func electionOf(leader *election.Leader, list ...election.Registration) *Election {
	e := &Election{
		Key: "/k", Cluster: cluster, Leader: leader, Registered: list, Memory: noon.Add(-8 * time.Second), Members: 3,
		Health: "etcdctl endpoint health",
	}
	if leader != nil {
		e.Epoch = 9
	}
	return e
}

// noting is a host in order that said something about its controller.
func noting(name string, a *agent.Acting) HostReport {
	return HostReport{Host: name, acting: a, Checks: []doctor.Check{doctor.Good(doctor.Disk, ""), doctor.Unknown(doctor.Controller, "")}}
}

// said is a host that noted a claim of a source.
func said(name, source string, epoch uint64, released bool) HostReport {
	note := &fence.Lease{LeaseRequest: fence.LeaseRequest{Who: source, Epoch: epoch, Controller: "id", Name: "by " + source}, Since: noon, GivenBack: released}
	return noting(name, &agent.Acting{Refuses: true, Lease: note})
}

var fresh = noting("new", &agent.Acting{Refuses: true})

// judged are the causes of what isn't in order, of hosts after their names, in a document.
func judged(e *Election, hosts ...HostReport) (d FleetReport, causes []string) {
	d = DocumentOf(hosts, e, doctor.GenvProgram{}, noon)
	for i := range d.Hosts {
		if c := d.Hosts[i].Check(doctor.Controller); c.Cause != "" {
			causes = append(causes, d.Hosts[i].Host+" "+string(c.Cause))
		}
	}
	for _, c := range d.Controllers {
		if c.Cause != "" {
			causes = append(causes, string(c.Cause))
		}
	}
	return d, causes
}

// rows are the names of the rows about an election.
func rows(d *FleetReport) string {
	var names []string
	for _, c := range d.Controllers {
		names = append(names, string(c.Name))
	}
	return strings.Join(names, " ")
}

func TestTheElection(t *testing.T) {
	one, two, three, lost := registered("1", up), registered("2", up), registered("3", up), registered("1", down)
	for name, row := range map[string]struct {
		leader     *election.Leader
		registered all
		rows       string
		causes     string
		detail     string
	}{
		"a leader and a standby": {
			leaderOf("2"),
			all{one, two},
			"leader standby", "",
			`"genv on jump-2, process 7" leads since 2026-03-01T11:59:00Z, with epoch 9; genv 2.0.0, 2 hosts, ` +
				`the last cycle ended 4s ago; memory in etcd of 8s ago`,
		},
		"none at all":    {nil, nil, "leader", "no-leader", "no controller leads, so nothing is enforced"},
		"standbys alone": {nil, all{one}, "leader standby", "no-leader", "no controller leads, so nothing is enforced"},
		"no standby":     {leaderOf("1"), all{one}, "leader standby", "no-standby", "no standby would replace the leader"},
		"of another version": {
			&election.Leader{Candidate: election.Candidate{Name: "a controller of another version"}},
			all{one},
			"leader standby", "", `"a controller of another version" leads`,
		},
		"a restart that isn't written": {
			&election.Leader{Candidate: election.Candidate{ID: "1", Name: "genv on jump-1, process 6"}},
			all{one},
			"leader standby", "", `"genv on jump-1, process 6" leads`,
		},
		"one is lost": {
			leaderOf("2"),
			all{lost, two, three},
			"leader standby lost",
			"controller-lost", `"genv on jump-1, process 7" was killed, or can't reach etcd`,
		},
		"other hosts": {
			leaderOf("2"),
			all{with("1", "h1", "p1"), with("2", "h2", "p1")},
			"leader standby", "standby-differs",
			`"genv on jump-1, process 7" has other hosts than the leader`,
		},
		"another policy": {
			leaderOf("2"),
			all{with("1", "h1", "p1"), with("2", "h1", "p2")},
			"leader standby", "standby-differs",
			`"genv on jump-1, process 7" has another policy than the leader`,
		},
		"the same": {
			leaderOf("2"),
			all{with("1", "h1", "p1"), with("2", "h1", "p1")},
			"leader standby", "",
			`"genv on jump-1, process 7"; genv 2.0.0, 2 hosts, the last cycle ended 4s ago`,
		},
		"of an older genv":        {leaderOf("2"), all{with("1", "h1", "p1"), two}, "leader standby", "", ""},
		"the leader reaches half": {leaderOf("2"), all{reaching("1", 4), reaching("2", 2)}, "leader standby", "", "2 of 4 hosts answer"},
		"without a leader both":   {nil, all{with("1", "h1", "p1"), with("2", "h2", "p2")}, "leader standby standby", "no-leader", ""},
	} {
		d, causes := judged(electionOf(row.leader, row.registered...))
		require.Equal(t, "etcd "+row.rows, rows(&d), name)
		require.Equal(t, row.causes, strings.Join(causes, " "), name)
		require.Contains(t, fmt.Sprint(d.Controllers), row.detail, name)
		for _, c := range d.Controllers {
			require.Equal(t, c.Status != doctor.OK, c.NextStep != "", "%s: %+v", name, c)
		}
		require.Equal(t, row.leader == nil, d.Status == doctor.Failed, name)
	}
}

func TestALateLeader(t *testing.T) {
	causeOf := func(change func(*election.Registration)) (cause, details string) {
		r, leader := registered("1", up), leaderOf("1")
		leader.Since = noon.Add(-time.Hour)
		change(&r)
		d, causes := judged(electionOf(leader, r, registered("2", up)))
		return strings.Join(causes, " "), fmt.Sprint(d.Controllers)
	}
	for age, late := range map[time.Duration]string{
		-time.Minute: "", 0: "", 30 * time.Second: "", 31 * time.Second: "leader-late", time.Hour: "leader-late",
		-24 * time.Hour: "leader-clock",
	} {
		cause, _ := causeOf(func(r *election.Registration) { r.Cycled = noon.Add(-age) })
		require.Equal(t, late, cause, age)
	}
	cause, details := causeOf(func(r *election.Registration) { r.Cycled = time.Time{} })
	require.Equal(t, "leader-late", cause)
	require.Contains(t, details, "the leader has completed no cycle: it began to lead 1h ago")
}

func TestControllersOfHosts(t *testing.T) {
	elected, other := fence.Election(cluster, "/k"), fence.Folder("x")
	old, bad := noting("old", &agent.Acting{}), noting("bad", &agent.Acting{Refuses: true, Unknown: "damaged"})
	ok := electionOf(leaderOf("1"), registered("1", up), registered("2", up))
	vacant := electionOf(nil)
	byLeader := said("a", fence.Election(1, "/k"), 9, up)
	byLeader.acting.Lease.Name = leaderOf("1").Name
	for name, row := range map[string]struct {
		election *Election
		hosts    hosts
		causes   string
		detail   string // of the first host
	}{
		"all the same": {
			nil,
			hosts{said("a", other, 3, up), said("b", other, 3, up), fresh, old},
			"",
			`acts: "by folder:x", since 2026-03-01T12:00:00Z by epoch 3 of its state folder`,
		},
		"one has released": {
			nil,
			hosts{said("b", elected, 3, down), said("a", other, 3, up)},
			"",
			`no controller acts; the last one was "by election:cafe//k", since 2026-03-01T12:00:00Z by epoch 3 of etcd`,
		},
		"an earlier epoch": {ok, hosts{said("a", elected, 8, up), said("b", elected, 9, up)}, "", `acts: "by election:cafe//k"`},
		"two without an election": {
			nil,
			hosts{said("a", other, 3, up), said("b", elected, 9, up), said("c", elected, 9, up)},
			"a other-controller",
			`"by folder:x", since 2026-03-01T12:00:00Z by epoch 3 of its state folder, and another one on other hosts`,
		},
		"one outside the election": {
			ok,
			hosts{said("a", other, 3, up), said("b", other, 9, up), said("c", elected, 9, up)},
			"a other-controller b other-controller", "the host refuses this election's controllers",
		},
		"another cluster": {ok, hosts{said("a", fence.Election(1, "/k"), 9, up)}, "a other-controller", `"by election:1//k"`},
		"released by another one": {
			ok,
			hosts{said("a", fence.Election(cluster, "/j"), 9, down), said("b", elected, 9, up)},
			"a other-election",
			"the host waits for its next leader",
		},
		"released before a leader": {
			vacant,
			hosts{said("a", fence.Election(1, "/k"), 9, down)},
			"a other-election no-leader",
			"the host waits for its next leader",
		},
		"released by a folder":     {ok, hosts{said("a", other, 9, down)}, "a no-controller", "so nothing is enforced here"},
		"not in the leader's list": {ok, hosts{said("a", elected, 9, up), fresh, said("b", other, 3, down)}, "new no-controller b no-controller", "acts"},
		"all have released":        {nil, hosts{said("a", other, 3, down), fresh}, "", "no controller acts; the last one was"},
		"none has acted":           {nil, hosts{fresh}, "", "no controller has acted yet"},
		"etcd was set up again": {
			ok,
			hosts{said("a", elected, 10, down), said("b", elected, 11, up), said("c", elected, 9, up)},
			"a later-epoch b later-epoch", "it knows a later epoch",
		},
		"a later epoch by itself": {vacant, hosts{said("a", elected, 10, down)}, "no-leader", "no controller acts"},
		"another one acts":        {vacant, hosts{said("a", other, 3, up)}, "a other-controller no-leader", "by folder:x"},
		"etcd was restored":       {ok, hosts{byLeader}, "a other-cluster", "an epoch of another etcd"},
		"unknown is not none":     {nil, hosts{bad, fresh}, "bad controller-unknown", "no controller may act: damaged"},
		"can't refuse":            {ok, hosts{old}, "old genv-refuses-none", "can't refuse a replaced controller"},
		"can't refuse, and alone": {nil, hosts{old}, "", "lets each controller act"},
	} {
		d, causes := judged(row.election, row.hosts...)
		require.Equal(t, row.causes, strings.Join(causes, " "), name)
		for i := range d.Hosts {
			c := d.Hosts[i].Check(doctor.Controller)
			require.Equal(t, c.Status != doctor.OK, c.NextStep != "", "%s: %+v", name, c)
			require.Equal(t, c.Status, d.Hosts[i].Status, name)
		}
		require.Contains(t, d.Hosts[0].Check(doctor.Controller).Detail, row.detail, name)
	}
}

func TestEtcd(t *testing.T) {
	for name, row := range map[string]struct {
		change func(e *Election)
		cause  doctor.Cause
		detail string
	}{
		"in order": {func(*Election) {}, "", "etcd answers (3 members) for the election /k"},
		"a member is lost": {
			func(e *Election) { e.Silent = []string{"b:2379: refused"} }, "etcd-members-silent",
			"1 of 3 members don't answer: b:2379: refused",
		},
		"its space is used up": {func(e *Election) { e.OutOfSpace = true }, "etcd-full", "etcd's space is used up: no other controller can take over"},
	} {
		e := electionOf(leaderOf("1"), registered("1", up), registered("2", up))
		row.change(e)
		d, _ := judged(e)
		require.Equal(t, row.cause, d.Controllers[0].Cause, name)
		require.Contains(t, d.Controllers[0].Detail, row.detail, name)
	}
}

// Without etcd it is shown what hosts say, and which of them is wrong isn't guessed.
func TestHostsWithoutEtcd(t *testing.T) {
	e := electionOf(nil)
	e.Err, e.Silent = errors.New("no majority"), []string{"a", "b"}
	d, causes := judged(e, said("a", fence.Election(cluster, "/k"), 9, up), said("b", fence.Folder("x"), 7, up), said("c", fence.Folder("x"), 7, down))
	require.Equal(t, []string{"etcd-silent"}, causes)
	require.Equal(t, "etcd", rows(&d))
	require.Contains(t, d.Controllers[0].Detail, "etcd doesn't say which controller leads: no majority")
	require.Contains(t, d.Controllers[0].NextStep, "run `etcdctl endpoint health`")
	for i := range d.Hosts {
		require.Equal(t, doctor.Skipped, d.Hosts[i].Check(doctor.Controller).Status)
	}
	require.Contains(t, d.Hosts[1].Check(doctor.Controller).Detail, `acts: "by folder:x"`)
}

// Root's genv is only asked where nothing failed before, and where sudo allows it.
func TestWhichHostsAreAsked(t *testing.T) {
	for name, row := range map[string]struct {
		check doctor.Check
		genv  int // its protocol
		asked bool
		knows bool
	}{
		"in order":              {doctor.Good(doctor.Sudo, ""), 1, true, true},
		"a hung driver":         {doctor.Problem(doctor.DriverState, "nvidia-smi-hung", "x"), 1, false, false},
		"a login without root":  {doctor.Problem(doctor.Sudo, "no-root", "x"), 1, false, false},
		"genv 1.4.3":            {doctor.Problem(doctor.Genv, "genv-1.4.3", "x"), 0, false, true},
		"a warning before that": {doctor.Problem(doctor.Disk, "disk-low", "x"), 1, true, true},
	} {
		asked := false
		d := &Doctor{Acting: func(context.Context, remote.Host) (agent.Acting, error) {
			asked = true
			return agent.Acting{Refuses: true}, nil
		}}
		e := d.begin(remote.Host{})
		e.add(row.check)
		e.Genv.Protocol = row.genv
		e.askActing(t.Context())
		require.Equal(t, row.asked, asked, name)
		require.Equal(t, row.knows, e.acting != nil, name)
	}
}

// Against a real etcd: space that is used up, and a member that was killed, are seen.
func TestFreeSpace(t *testing.T) {
	t.Parallel()
	proctest.NeedPrograms(t, "etcdctl")
	c := servers.StartEtcd(t, 3, "--quota-backend-bytes", "4194304")
	config := etcd.Config{Endpoints: c.Endpoints()}
	client := etcd.New(config)
	defer client.Close()
	for range 20 {
		_ = client.Put(t.Context(), "/full", make([]byte, 1<<20), 0)
	}
	ask := func() *Election {
		return AskEtcd(t.Context(), config, "/k", "etcdctl --endpoints "+strings.Join(c.Endpoints(), ",")+" endpoint health")
	}
	e := ask()
	require.NoError(t, e.Err)
	require.True(t, e.OutOfSpace)

	c.Kill(1)
	require.Eventually(t, func() bool { // the others may elect a leader first
		e = ask()
		return e.Err == nil && len(e.Silent) == 1
	}, time.Minute, 100*time.Millisecond)
	require.Contains(t, e.Silent[0], "connection refused")
}
