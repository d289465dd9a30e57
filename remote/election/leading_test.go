package election_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// etcd refuses to write when its space is used up: who leads goes on, and can resign, but no
// other one can take its place until there is space, and it says why.
func TestTheSpaceOfEtcdIsUsedUp(t *testing.T) {
	t.Parallel()
	c := servers.StartEtcd(t, 1, "--quota-backend-bytes", "4194304")
	client := etcd.New(etcd.Config{Endpoints: c.Endpoints()})
	t.Cleanup(client.Close)
	a := stand(t, c, "a")
	a.becomesLeader(t)
	epoch := a.Status().Epoch
	require.Eventually(t, func() bool {
		return etcd.Refused(client.Put(t.Context(), "/genv/lab/part", bytes.Repeat([]byte("x"), 1<<20), 0))
	}, patience, time.Millisecond)
	leader := proctest.Try(client.Get(t.Context(), election.LeaderKey("/genv/lab"))).OK(t)
	ttl := proctest.Try(client.KeepAlive(t.Context(), leader.Lease)).OK(t, "who leads can renew its lease")
	require.Equal(t, election.TTL, ttl)
	require.Equal(t, epoch, a.Status().Epoch)

	a.resign()
	b := stand(t, c, "b")
	require.Eventually(t, func() bool { return etcd.Refused(b.Status().Err) }, patience, time.Millisecond)
	require.False(t, b.Leads())
	status := b.Status()
	require.Equal(t, "standby; etcd refuses what this controller asks, so it can't lead", status.Shown().String())
	part := proctest.Try(client.Get(t.Context(), "/genv/lab/part")).OK(t)
	c.FreeSpace(part.Modified)
	b.becomesLeader(t)
	require.Greater(t, b.Status().Epoch, epoch)
	require.NoError(t, b.Status().Err)
}

// An etcd that asks clients for certificates elects those that have one.
func TestCertificates(t *testing.T) {
	t.Parallel()
	c, files := servers.StartEtcdTLS(t, 3)
	for _, row := range []struct {
		name   string
		config etcd.Config
		err    string
	}{
		{"with a certificate", etcd.Config{Endpoints: c.Endpoints(), TLS: files.Config(t)}, ""},
		{"without one", etcd.Config{Endpoints: c.Endpoints(), TLS: files.Anonymous(t)}, "remote error: tls: "},
		{"of an authority that isn't known", etcd.Config{Endpoints: c.Endpoints()}, "certificate signed by unknown authority"},
	} {
		client := etcd.New(row.config)
		begun := time.Now()
		e := election.New(election.Options{
			Cluster: client, Key: "/genv/lab", Self: election.Candidate{ID: row.name},
			Clock: func() time.Duration { return time.Since(begun) }, Now: time.Now,
		})
		campaign(t, client, e)
		if row.err == "" {
			(&candidate{Elector: e}).becomesLeader(t)
			continue
		}
		require.Eventually(t, func() bool { return e.Status().Err != nil }, patience, time.Millisecond, row.name)
		require.ErrorContains(t, e.Status().Err, row.err, row.name)
		require.False(t, e.Leads(), row.name)
	}
}

// The member of etcd that is asked first hangs: another one is asked after a second, and has time to
// answer, so that the next leader doesn't wait for the end of the lease.
func TestAResignationThatTakesASecondMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		e, stop := run(t, c, nil)
		require.True(t, e.Leads())
		c.set(func() { c.slow = 1500 * time.Millisecond })
		begun := time.Now()
		stop()
		require.LessOrEqual(t, time.Since(begun), 2*time.Second)
		require.Nil(t, c.key, "it resigned")
	})
}

// What etcd refuses is another thing than etcd that doesn't answer: the next steps differ.
func TestEtcdRefuses(t *testing.T) {
	refusal := &etcd.MemberError{Code: 8, Message: "mvcc: database space exceeded"}
	denied := fmt.Errorf("log in to etcd as genv: %w", &etcd.MemberError{Code: 3, Message: "authentication failed, invalid user ID or password"})
	silent := fmt.Errorf("etcd doesn't answer: %w", errors.Join(errors.New("connection refused"), &etcd.MemberError{Code: 14, Message: "no leader"}))
	for _, row := range []struct {
		role election.Role
		err  error
		want string
	}{
		{election.Standby, refusal, "standby; etcd refuses what this controller asks, so it can't lead"},
		{election.Standby, denied, "standby; etcd refuses what this controller asks, so it can't lead"},
		{election.Standby, silent, "standby; etcd doesn't answer, so it isn't known which controller leads"},
		{election.Leading, denied, "etcd refuses to extend this controller's term: it acts until that ends"},
		{election.Leading, silent, "etcd doesn't answer: this controller acts until its term ends"},
		{election.Expired, denied, "etcd refuses what this controller asks; another controller may lead, so this one only watches"},
		{election.Expired, silent, "etcd doesn't answer; another controller may lead, so this one only watches until etcd answers"},
		{election.Expired, nil, "the term of this controller may have ended, and another one may lead: this one only watches"},
		{election.Standby, nil, "standby; etcd hasn't said yet which controller leads"},
	} {
		status := election.Status{Role: row.role, Err: row.err}
		require.Equal(t, row.want, status.Shown().String())
	}
}

// A controller that was stopped, or didn't reach etcd, doesn't know who leads before etcd has answered.
func TestNoControllerLeads(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		answered time.Time
		want     string
	}{
		"it has just begun":            {time.Time{}, "standby; etcd hasn't said yet which controller leads"},
		"etcd answered while it led":   {noon.Add(-time.Millisecond), "standby; etcd hasn't said yet which controller leads"},
		"etcd has answered":            {noon.Add(time.Millisecond), "standby; no controller leads"},
		"etcd answered in that moment": {noon, "standby; no controller leads"},
	} {
		status := election.Status{Role: election.Standby, Since: noon, Answered: row.answered}
		require.Equal(t, row.want, status.Shown().String(), name)
		document := proctest.Try(json.Marshal(status.Shown())).OK(t)
		var read election.StatusDocument
		require.NoError(t, json.Unmarshal(document, &read))
		require.Equal(t, row.want, read.String(), "%s: for a viewer", name)
	}
}

func TestRole(t *testing.T) {
	const s = time.Second
	won := election.Leadership{}.Won(7, 12, 100*s, 5*s)
	for name, row := range map[string]struct {
		state election.Leadership
		at    time.Duration
		want  election.Role
		left  time.Duration
	}{
		"never led":                       {election.Leadership{}, 0, election.Standby, 0},
		"won":                             {won, 100 * s, election.Leading, 5 * s},
		"until the lease may end":         {won, 105*s - 1, election.Leading, 1},
		"the lease may have ended":        {won, 105 * s, election.Expired, 0},
		"stopped for an hour":             {won, time.Hour, election.Expired, 0},
		"renewed":                         {won.Renewed(7, 101*s, 5*s, 101*s), 105 * s, election.Leading, s},
		"counted from when it was sent":   {won.Renewed(7, 101*s, 5*s, 104*s), 106 * s, election.Expired, 0},
		"an answer that comes too late":   {won.Renewed(7, 104*s, 5*s, 105*s), 105 * s, election.Expired, 0},
		"the answers in another order":    {won.Renewed(7, 103*s, 5*s, 104*s).Renewed(7, 101*s, 5*s, 104*s), 107 * s, election.Leading, s},
		"a lease of another term":         {won.Renewed(6, 104*s, 5*s, 104*s), 105 * s, election.Expired, 0},
		"a longer lease than asked for":   {won.Renewed(7, 101*s, 9*s, 101*s), 109 * s, election.Leading, s},
		"a shorter one":                   {won.Renewed(7, 101*s, 2*s, 101*s), 104 * s, election.Leading, s},
		"renewed as a standby":            {election.Leadership{}.Renewed(7, 101*s, 5*s, 101*s), 101 * s, election.Standby, 0},
		"the key is gone":                 {won.Lost(), 101 * s, election.Standby, 0},
		"it is gone, and an answer comes": {won.Lost().Renewed(7, 101*s, 5*s, 101*s), 101 * s, election.Standby, 0},
		"led again":                       {won.Lost().Won(8, 13, 200*s, 5*s), 201 * s, election.Leading, 4 * s},
	} {
		require.Equal(t, row.want, row.state.Role(row.at), name)
		require.Equal(t, row.left, row.state.Left(row.at), name)
	}
}

// The loop of a controller may hang while its election goes on: another one leads then, and this one
// not again before the loop works.
func TestALeaderThatDoesNotWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		var hangs atomic.Bool
		e, _ := run(t, c, func() bool { return !hangs.Load() })
		time.Sleep(time.Hour)
		require.True(t, e.Leads())
		epoch := e.Status().Epoch

		hangs.Store(true)
		time.Sleep(election.TTL - 2*time.Second)
		require.True(t, e.Leads(), "until its lease has ended")
		time.Sleep(4 * time.Second)
		require.False(t, e.Leads())
		require.Nil(t, c.key)
		time.Sleep(time.Hour)
		require.False(t, e.Leads(), "it doesn't campaign")
		require.Equal(t, election.Standby, e.Status().Role)
		c.taken()
		time.Sleep(time.Second)
		require.Equal(t, "b", e.Status().Leader.ID)
		c.set(func() { c.key = nil })

		hangs.Store(false)
		time.Sleep(time.Second)
		require.True(t, e.Leads())
		require.Greater(t, e.Status().Epoch, epoch)
	})
}

// A loop that hangs for less than a lease lasts keeps it.
func TestALeaderThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		var hangs atomic.Bool
		e, _ := run(t, c, func() bool { return !hangs.Load() })
		epoch := e.Status().Epoch
		for range 10 {
			hangs.Store(true)
			time.Sleep(election.TTL - 2*time.Second)
			hangs.Store(false)
			time.Sleep(2 * time.Second)
			require.True(t, e.LeadsWith(epoch))
		}
	})
}

// Each role has a context that ends with it, and that of a leader may begin nothing from the end of its lease on.
func TestRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		ctx, cancel := context.WithCancel(t.Context())
		var roles []string
		var epoch uint64
		errEnd := errors.New("the end")
		role := func(ctx context.Context, name string) error {
			roles = append(roles, name)
			<-ctx.Done()
			return errors.New("it ended with its role")
		}
		time.AfterFunc(10*time.Second, func() { c.set(func() { c.key = nil }) }) // it is elected again
		time.AfterFunc(20*time.Second, func() { c.taken() })
		time.AfterFunc(30*time.Second, func() { c.set(func() { c.key, c.silent = nil, false }) })
		time.AfterFunc(40*time.Second, func() { c.set(func() { c.silent = true }) })
		time.AfterFunc(50*time.Second, cancel)
		err := elector(c, nil).Run(ctx, election.Roles{
			Changed: func(election.Status) {},
			StandBy: func(ctx context.Context) error {
				require.NoError(t, remote.MayBegin(ctx))
				if len(roles) == 6 {
					<-ctx.Done()
					return errEnd
				}
				err := role(ctx, "standby")
				require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded, "hosts that hang have had their time")
				return err
			},
			Lead: func(ctx context.Context, term election.Term) error {
				require.NoError(t, remote.MayBegin(ctx))
				require.EqualValues(t, 0xabc, term.Cluster)
				require.Greater(t, term.Epoch, epoch)
				epoch = term.Epoch
				err := role(ctx, "leader")
				require.ErrorIs(t, context.Cause(ctx), election.ErrNotLeading)
				require.ErrorIs(t, remote.MayBegin(ctx), election.ErrNotLeading)
				return err
			},
		})
		require.ErrorIs(t, err, errEnd)
		require.Equal(t, []string{"standby", "leader", "standby", "leader", "standby", "leader"}, roles)
	})
}

// A role that returns before its end ends the run.
func TestARoleThatReturns(t *testing.T) {
	errBroken := errors.New("stdout is closed")
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		err := elector(c, nil).Run(t.Context(), election.Roles{
			Changed: func(election.Status) {},
			StandBy: func(ctx context.Context) error { <-ctx.Done(); return nil },
			Lead:    func(context.Context, election.Term) error { time.Sleep(time.Minute); return errBroken },
		})
		require.ErrorIs(t, err, errBroken)
	})
}

// Each controller knows if the leader has another policy, also when one of them reads another one.
func TestAnotherPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a := elector(c, nil)
		a.SetPolicy("1")
		b := election.New(election.Options{Cluster: c, Key: "/genv/lab", Self: election.Candidate{ID: "b"}, Clock: a.Clock, Now: time.Now})
		b.SetPolicy("1")
		defer background(a.Campaign)()
		time.Sleep(5 * time.Second)
		defer background(b.Campaign)()
		for _, step := range []struct {
			change func()
			differ bool
		}{
			{func() {}, false},
			{func() { b.SetPolicy("2") }, true},
			{func() { a.SetPolicy("2") }, false},
			{func() { a.SetPolicy("3") }, true},
			{func() { b.SetPolicy("") }, false}, // it isn't known
		} {
			step.change()
			time.Sleep(5 * time.Second)
			require.True(t, a.Leads())
			status := b.Status()
			require.Equal(t, step.differ, status.OtherPolicy)
			require.Equal(t, step.differ, strings.Contains(status.Shown().String(), "with another policy"), status.Shown().String())
		}
	})
}
