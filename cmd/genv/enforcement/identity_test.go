package enforcement

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// What can't take hosts over says so, instead of leaving them to another controller.
func TestWhatTakesNoHostOver(t *testing.T) {
	for name, row := range map[string]struct {
		options Options
		why     string
	}{
		"a single cycle":             {Options{TakeOver: true}, "a single cycle"},
		"a loop of a single cycle":   {Options{TakeOver: true, Interval: time.Second, Cycles: 1}, "a single cycle"},
		"a loop without a folder":    {Options{TakeOver: true, Interval: time.Second}, "needs a state folder"},
		"a single cycle without it":  {Options{}, ""},
		"a loop without it":          {Options{Interval: time.Second}, ""},
		"a dry run in a loop, as is": {Options{Interval: time.Second, DryRun: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := leaseOf(nil, &row.options, &runIdentity{ID: "a"})
			if row.why == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.why)
			require.Equal(t, command.ExitFailed, command.ExitCode(err))
		})
	}
}

func TestDigestOfHosts(t *testing.T) {
	list := func(names ...string) (hosts []remote.Host) {
		for _, n := range names {
			hosts = append(hosts, remote.Host{Name: n})
		}
		return hosts
	}
	require.Equal(t, digestOf(list("a", "b")), digestOf(list("b", "a")))
	for _, other := range [][]remote.Host{nil, list("a"), list("a", "c"), list("a", "b", "b"), list("ab")} {
		require.NotEqual(t, digestOf(list("a", "b")), digestOf(other))
	}
}

// A registration says how many hosts answered: also that none did.
func TestRegistrationOfACycle(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 7, time.UTC)
	cut := snapshot.Host{Name: "gpu-02", Err: errors.New("no answer")}
	for name, row := range map[string]struct {
		hosts    []snapshot.Host
		answered int
	}{
		"one of two": {[]snapshot.Host{{Name: "gpu-01", Snapshot: &snapshot.Snapshot{}}, cut}, 1},
		"none":       {[]snapshot.Host{cut, cut}, 0},
	} {
		var r election.Registration
		cycled(&r, &controller.Round{Cluster: snapshot.Cluster{Hosts: row.hosts}}, now)
		require.Equal(t, election.Registration{Cycled: now.Truncate(time.Second), Hosts: 2, Answered: &row.answered}, r, name)
	}
}

// A standby claims no host, so that it has --take-over may not look as if it took hosts over.
func TestElectionLine(t *testing.T) {
	for name, row := range map[string]struct {
		status   election.Status
		takeOver bool
		line     string
	}{
		"a standby":            {election.Status{Role: election.Standby, Answered: time.Now()}, false, "standby; no controller leads"},
		"etcd wasn't asked":    {election.Status{Role: election.Standby}, true, ""},
		"it is to take over":   {election.Status{Role: election.Standby, Leader: &election.Leader{Candidate: election.Candidate{Name: "bob"}}}, true, `standby; "bob" leads; --take-over has no effect until this controller leads`},
		"etcd is away as well": {election.Status{Role: election.Standby, Err: context.DeadlineExceeded}, true, "standby; etcd doesn't answer, so it isn't known which controller leads; --take-over has no effect until this controller leads"},
		"it leads":             {election.Status{Role: election.Leading, Epoch: 7}, true, "this controller leads since 0001-01-01T00:00:00Z (epoch 7)"},
	} {
		require.Equal(t, row.line, electionLine(&row.status, row.takeOver), name)
	}
}

// A controller that ends in order says so, and whether another one can lead now.
func TestResignation(t *testing.T) {
	for name, row := range map[string]struct {
		before func(s *store)
		want   string
	}{
		"it leads":            {func(*store) {}, "resigned after leading for 1m: another controller can lead now"},
		"another one leads":   {func(s *store) { s.elect("bob") }, "ended as a standby"},
		"etcd doesn't answer": {func(s *store) { s.fail(context.DeadlineExceeded) }, "ended while it wasn't known whether this controller still leads"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{entries: map[string]etcd.KeyValue{}}
			var log bytes.Buffer
			l := &loop{program: &command.Program{Now: time.Now}, log: zerolog.New(&log), part: electedPart(t, s)}
			time.Sleep(50 * time.Second)
			row.before(s)
			time.Sleep(10 * time.Second)
			leading(l).resign()
			require.Contains(t, log.String(), row.want, name)
		})
	}
}

// An operator who asks a standby is told who leads.
func TestAnOperatorAsksAStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{entries: map[string]etcd.KeyValue{}}
		l := &loop{part: electedPart(t, s), queue: controller.NewQueue()}
		s.elect("bob")
		time.Sleep(10 * time.Second)
		_, err := l.do(t.Context(), operator.Author{}, operator.Action{})
		var refusal *operator.Refusal
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, operator.Unable, refusal.Code)
		require.Contains(t, refusal.Text, "this controller doesn't act now: standby; ")
	})
}

// Only that most hosts know a later epoch of the election says that etcd counts again from a lower one.
func TestMostRefused(t *testing.T) {
	answered := snapshot.Host{Snapshot: &snapshot.Snapshot{}}
	later := snapshot.Host{Err: remote.Errorf(remote.Replaced, "the host says: refused: replaced by b: %w", agent.ErrLater)}
	foreign := snapshot.Host{Err: remote.Errorf(remote.Replaced, "the host says: refused: b acts on this host")}
	for name, row := range map[string]struct {
		hosts []snapshot.Host
		want  bool
	}{
		"most hosts":         {[]snapshot.Host{later, answered, later}, true},
		"half of them":       {[]snapshot.Host{later, answered}, false},
		"another controller": {[]snapshot.Host{foreign, foreign}, false},
		"no host":            {nil, false},
	} {
		round := controller.Round{Cluster: snapshot.Cluster{Hosts: row.hosts}}
		require.Equal(t, row.want, mostRefused(&round, isLater) != nil, name)
	}
}

// Hosts that know a later epoch mean that etcd was set up again only if this controller is still known to lead:
// it may have been stopped while another one was elected, or a member of etcd was.
func TestALaterEpochOnHosts(t *testing.T) {
	answered := snapshot.Host{Snapshot: &snapshot.Snapshot{}}
	later := snapshot.Host{Err: remote.Errorf(remote.Replaced, "the host says: refused: replaced by b: %w", agent.ErrLater)}
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for name, row := range map[string]struct {
		hosts  []snapshot.Host
		cycles int // one each second
		before func(t *testing.T, s *store)
		warned int
	}{
		"etcd was set up again":                 {[]snapshot.Host{later, answered, later}, 20, nil, 1},
		"it may have been elected since":        {[]snapshot.Host{later, later}, 5, nil, 0},
		"a few hosts say so":                    {[]snapshot.Host{later, answered}, 20, nil, 0},
		"it was stopped, and another one leads": {[]snapshot.Host{later}, 20, func(_ *testing.T, s *store) { s.elect("b") }, 0},
		"etcd doesn't answer any more":          {[]snapshot.Host{later}, 4, func(_ *testing.T, s *store) { s.fail(context.DeadlineExceeded) }, 0},
		"etcd ended its lease, and it was elected again": {[]snapshot.Host{later}, 5, func(t *testing.T, s *store) {
			require.NoError(t, s.Revoke(t.Context(), 1))
		}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{entries: map[string]etcd.KeyValue{}}
			l := leading(&loop{program: &command.Program{Now: time.Now}, part: electedPart(t, s)})
			var log bytes.Buffer
			l.log = zerolog.New(&log)
			time.Sleep(time.Minute + seconds(1)/2)
			if row.before != nil {
				row.before(t, s)
			}
			for range row.cycles {
				require.NoError(t, l.replaced(&controller.Round{Cluster: snapshot.Cluster{Hosts: row.hosts}}))
				time.Sleep(time.Second)
			}
			require.Equal(t, row.warned, strings.Count(log.String(), "etcd was recreated"), name)
		})
	}
}
