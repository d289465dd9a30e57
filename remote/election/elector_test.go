package election_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run starts an Elector in a bubble of synctest, and waits for what it finds. stop ends it, and waits for its end.
func run(t *testing.T, c *cluster, works func() bool) (e *election.Elector, stop func()) {
	e = elector(c, works)
	stop = background(e.Campaign)
	t.Cleanup(stop)
	<-e.Changed()
	return e, stop
}

// elector is one that doesn't campaign yet.
func elector(c *cluster, works func() bool) *election.Elector {
	begun := time.Now()
	return election.New(election.Options{
		Cluster: c, Key: "/genv/lab", Self: election.Candidate{ID: "a", Name: "ann on jump"},
		Clock: func() time.Duration { return time.Since(begun) }, Now: time.Now, Works: works,
	})
}

func TestTheFirstLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		require.False(t, elector(c, nil).Leads(), "before it is asked")
		e, stop := run(t, c, nil)
		require.True(t, e.Leads())
		status := e.Status()
		require.Equal(t, election.Leading, status.Role)
		require.Equal(t, c.key.Created, status.Epoch)
		require.EqualValues(t, 0xabc, status.Cluster)
		time.Sleep(time.Hour)
		require.True(t, e.Leads(), "it renews its lease")
		later := e.Status()
		require.WithinRange(t, later.Answered, status.Answered.Add(time.Hour-2*time.Second), status.Answered.Add(time.Hour))
		later.Answered = status.Answered
		require.Equal(t, status, later)
		stop()
		require.False(t, e.Leads())
		require.Nil(t, c.key, "it resigned")
	})
}

func TestAStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.taken()
		e, _ := run(t, c, nil)
		status := e.Status()
		require.Equal(t, `standby; "bob on spare" leads since 2026-03-01T10:00:00Z`, status.Shown().String())
		time.Sleep(time.Hour)
		require.False(t, e.Leads())
		c.set(func() { c.key = nil })
		time.Sleep(time.Second / 2)
		require.True(t, e.Leads(), "at once")
		require.Nil(t, e.Status().Leader)
	})
}

// etcd is silent: the leader leads until its lease may end, and never again with that epoch.
func TestALeaderWithoutEtcd(t *testing.T) {
	for name, slow := range map[string]time.Duration{"fast": time.Millisecond, "slow": 700 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster()
			c.slow = slow
			e, _ := run(t, c, nil)
			time.Sleep(10 * time.Second)
			epoch := e.Status().Epoch
			require.True(t, e.LeadsWith(epoch))
			silent := time.Now()
			c.set(func() { c.silent = true })
			time.Sleep(election.TTL - 2*time.Second - slow)
			require.True(t, e.Leads(), "%s: the last lease was asked for at most 2 s before", name)
			time.Sleep(time.Until(silent.Add(election.TTL)))
			require.False(t, e.Leads(), name)
			require.Error(t, e.Status().Err)
			require.Equal(t, election.Expired, e.Status().Role)
			time.Sleep(time.Minute)
			require.False(t, e.Leads(), name)
			c.set(func() { c.silent = false })
			time.Sleep(8 * time.Second)
			require.True(t, e.Leads(), "%s: it campaigned again", name)
			require.Greater(t, e.Status().Epoch, epoch, name)
			require.True(t, e.LeadsWith(e.Status().Epoch), name)
			require.False(t, e.LeadsWith(epoch), "%s: what it judged before is not acted on", name)
			require.NoError(t, e.Status().Err)
		})
	}
}

// A member that is cut off from the others, or has a disk that hangs, still answers keep-alives,
// but no reads: another controller may lead by then.
func TestAKeepAliveThatIsNotConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		e, _ := run(t, c, nil)
		time.Sleep(10 * time.Second)
		epoch := e.Status().Epoch
		answered := e.Status().Answered
		c.set(func() { c.unread = true })
		time.Sleep(2 * time.Second)
		require.True(t, e.LeadsWith(epoch), "a read that failed doesn't end the lease")
		require.ErrorIs(t, e.Status().Err, errSilent)
		require.WithinRange(t, e.Status().Answered, answered, answered.Add(time.Second))
		c.set(func() { c.unread = false })
		time.Sleep(time.Minute)
		require.True(t, e.LeadsWith(epoch), "the next renewal was confirmed")
		require.NoError(t, e.Status().Err)

		c.set(func() { c.unread = true })
		time.Sleep(election.TTL - 2*time.Second)
		require.True(t, e.LeadsWith(epoch))
		time.Sleep(2 * time.Second)
		require.False(t, e.Leads(), "the lease counted from the last renewal that was confirmed is over")
		require.Error(t, e.Status().Err)
	})
}

// A leader that was stopped while another one took its place leads no more when it goes on, before it has asked.
func TestALeaderThatWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64 // nanoseconds
		c := newCluster()
		begun := time.Now()
		e := election.New(election.Options{Cluster: c, Key: "/k", Clock: func() time.Duration { return time.Since(begun) + time.Duration(slept.Load()) }, Now: time.Now})
		stop := background(e.Campaign)
		<-e.Changed()
		require.True(t, e.Leads())
		slept.Store(int64(election.TTL))
		require.False(t, e.Leads(), "the machine slept")
		c.taken()
		time.Sleep(3 * time.Second)
		require.Equal(t, election.Standby, e.Status().Role)
		require.Equal(t, "b", e.Status().Leader.ID)
		stop()
		require.NotNil(t, c.key, "it resigned for itself alone")
	})
}

func TestTheKeyIsDeletedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		e, _ := run(t, c, nil)
		epoch := e.Status().Epoch
		c.set(func() { c.key = nil })
		time.Sleep(2 * time.Second)
		require.True(t, e.Leads())
		require.Greater(t, e.Status().Epoch, epoch)
		c.taken()
		time.Sleep(2 * time.Second)
		require.False(t, e.Leads())
	})
}

// The answer to a campaign is lost: the lease is given up, since whether it leads isn't known.
func TestALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.lost = true
		e, stop := run(t, c, nil)
		time.Sleep(time.Minute)
		require.False(t, e.Leads())
		c.set(func() { c.lost = false })
		time.Sleep(time.Second)
		require.True(t, e.Leads())
		stop()
		require.Empty(t, c.leases)
	})
}

func TestALeaderOfAnotherVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.key = &etcd.KeyValue{Value: []byte("{")}
		e, _ := run(t, c, nil)
		status := e.Status()
		require.Equal(t, `standby; "a controller of another version" leads`, status.Shown().String())
	})
}

var one = election.Registration{
	Candidate: election.Candidate{ID: "1", Name: "genv on jump-1, process 7"}, Host: "jump-1", Version: "2.0.0", Interval: 10, Hosts: 40,
}

// A controller is registered while it runs, lost if it stops without saying so, and registered
// again when it is back; what hasn't changed isn't written again.
func TestRegistrar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCluster()
		registrar := election.NewRegistrar(r, "/genv/lab", one, func(err error) { require.NoError(t, err) })
		stop := background(registrar.Run)
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		shown := func() []election.Registration {
			return proctest.Try(election.Registered(t.Context(), r, "/genv/lab")).OK(t)
		}
		wait(time.Minute - time.Second)
		require.Equal(t, []election.Registration{one}, shown())
		require.Equal(t, 1, r.puts, "nothing has changed")

		cycled := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
		registrar.Set(func(r *election.Registration) { r.Cycled = cycled })
		wait(3 * time.Second)
		require.Equal(t, cycled, shown()[0].Cycled)

		wait(time.Minute)
		r.set(func() { r.silent = true })
		wait(time.Minute)
		require.ErrorContains(t, proctest.Try(election.Registered(t.Context(), r, "/genv/lab")).Err, "no answer", "it isn't known that there are none")
		r.set(func() { r.silent = false })
		lost := one
		lost.Cycled, lost.Lost = cycled, true
		require.Equal(t, []election.Registration{lost}, shown())
		wait(3 * time.Second)
		require.False(t, shown()[0].Lost, "it is back")

		stop()
		require.Empty(t, shown(), "it ended in order")
	})
}

// An operator may have etcd forget all controllers, to forget those that are lost.
func TestARunningControllerIsRememberedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCluster()
		defer background(election.NewRegistrar(r, "/genv/lab", one, func(err error) { require.NoError(t, err) }).Run)()
		time.Sleep(time.Second)
		const known = "/genv/lab/controllers/"
		remembered := func() int {
			list := proctest.Try(r.List(t.Context(), known)).OK(t)
			return len(list)
		}
		require.Equal(t, 1, remembered())
		r.set(func() { delete(r.others, known+"1@jump-1") })
		require.Zero(t, remembered())
		time.Sleep(time.Minute + 2*time.Second)
		require.Equal(t, 1, remembered(), "also if it has not completed a cycle since")
	})
}

func TestWhatIsNoRegistration(t *testing.T) {
	r := newCluster()
	lost, _, err := r.Grant(t.Context(), 7*24*time.Hour)
	require.NoError(t, err)
	r.leases[lost] = time.Now().Add(time.Hour)
	for key, value := range map[string]string{
		"/k/controllers/1@jump-1": `{"schema":"genv.election.controller/1","id":"1","host":"jump-1","name":"it"}`,
		"/k/controllers/2@jump-1": `{"schema":"genv.election.controller/1","id":"1","host":"jump-1","name":"another key"}`,
		"/k/controllers/3@jump-1": `{"schema":"genv.election.controller/9","id":"3","host":"jump-1","name":"another version"}`,
		"/k/controllers/4@jump-1": `damaged`,
		"/k/controllers/1@jump-2": `{"schema":"genv.election.controller/1","id":"1","host":"jump-2","name":"a copy","pid":9}`,
		"/k/leader":               `{"schema":"genv.election.controller/1","id":"1","name":"no controller's key"}`,
	} {
		r.others[key] = etcd.KeyValue{Key: []byte(key), Value: []byte(value)}
		if strings.HasSuffix(key, "jump-2") {
			r.others[key] = etcd.KeyValue{Key: []byte(key), Value: []byte(value), Lease: lost}
		}
	}
	list := proctest.Try(election.Registered(t.Context(), r, "/k")).OK(t)
	require.Equal(t, []election.Registration{
		{Candidate: election.Candidate{ID: "1", Name: "a copy"}, Host: "jump-2", Lost: true},
		{Candidate: election.Candidate{ID: "1", Name: "it"}, Host: "jump-1"},
	}, list)
}

// Over a real etcd with a user who may use the keys of the election only: a controller
// is registered again after its lease has ended, and no longer after it ended in order.
func TestRegistrarOverEtcd(t *testing.T) {
	t.Parallel()
	c := servers.StartEtcd(t, 1)
	c.AddUser("genv", "secret", "/genv/")
	config := etcd.Config{Endpoints: c.Endpoints(), User: "genv", Password: "secret"}
	client := etcd.New(config)
	t.Cleanup(client.Close)
	refused := make(chan error, 1)
	registrar := election.NewRegistrar(client, "/genv/lab", one, func(err error) { refused <- err })
	stop := background(registrar.Run)
	t.Cleanup(stop)
	become := func(want ...election.Registration) {
		t.Helper()
		require.Eventually(t, func() bool {
			list, err := election.Registered(t.Context(), client, "/genv/lab")
			return err == nil && len(list) == len(want) && (len(want) == 0 || list[0] == want[0])
		}, time.Minute, 20*time.Millisecond)
	}
	become(one)
	entries := proctest.Try(client.List(t.Context(), "/genv/lab/controllers/")).OK(t)
	require.NoError(t, client.Revoke(t.Context(), entries[0].Lease)) // as if it had been cut off for long
	require.Eventually(t, func() bool {
		again, err := client.List(t.Context(), "/genv/lab/controllers/")
		return err == nil && len(again) == 1 && again[0].Lease != entries[0].Lease
	}, time.Minute, 20*time.Millisecond)
	become(one)
	stop()
	become()
	require.Empty(t, refused)
}

// A user who may not write the keys of controllers: that is said once, and why.
func TestARegistrationThatIsRefused(t *testing.T) {
	t.Parallel()
	c := servers.StartEtcd(t, 1)
	c.AddUser("genv", "secret", "/genv/lab/leader")
	client := etcd.New(etcd.Config{Endpoints: c.Endpoints(), User: "genv", Password: "secret"})
	t.Cleanup(client.Close)
	refused := make(chan error, 10)
	registrar := election.NewRegistrar(client, "/genv/lab", one, func(err error) { refused <- err })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // more than two tries
	defer cancel()
	registrar.Run(ctx)
	require.Len(t, refused, 1)
	require.ErrorContains(t, <-refused, "permission denied (the role of the user needs")
}
