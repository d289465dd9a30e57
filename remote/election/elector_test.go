package election_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run starts an Elector in a bubble of synctest. stop ends it, and waits for its end.
func run(c *cluster) (e *election.Elector, stop func()) { return runWith(c, nil) }

// elector is one that doesn't campaign yet.
func elector(c *cluster, works func() bool) *election.Elector {
	begun := time.Now()
	return election.New(election.Options{
		Cluster: c, Key: "/genv/lab", Self: election.Candidate{ID: "a", Name: "ann on jump"},
		Clock: func() time.Duration { return time.Since(begun) }, Now: time.Now, Works: works,
	})
}

func runWith(c *cluster, works func() bool) (e *election.Elector, stop func()) {
	e = elector(c, works)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { e.Campaign(ctx); close(ended) }()
	return e, func() { cancel(); <-ended }
}

func TestTheFirstLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := slowCluster()
		e, stop := run(c)
		require.False(t, e.Leads(), "before it is asked")
		<-e.Changed()
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
		c := slowCluster()
		c.taken()
		e, stop := run(c)
		defer stop()
		<-e.Changed()
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
			e, stop := run(c)
			defer stop()
			<-e.Changed()
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
		c := slowCluster()
		e, stop := run(c)
		defer stop()
		<-e.Changed()
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
		c := slowCluster()
		begun := time.Now()
		e := election.New(election.Options{Cluster: c, Key: "/k", Clock: func() time.Duration { return time.Since(begun) + time.Duration(slept.Load()) }, Now: time.Now})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { e.Campaign(ctx); close(ended) }()
		<-e.Changed()
		require.True(t, e.Leads())
		slept.Store(int64(election.TTL))
		require.False(t, e.Leads(), "the machine slept")
		c.taken()
		time.Sleep(3 * time.Second)
		require.Equal(t, election.Standby, e.Status().Role)
		require.Equal(t, "b", e.Status().Leader.ID)
		cancel()
		<-ended
		require.NotNil(t, c.key, "it resigned for itself alone")
	})
}

func TestTheKeyIsDeletedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := slowCluster()
		e, stop := run(c)
		defer stop()
		<-e.Changed()
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
		c := slowCluster()
		c.lost = true
		e, stop := run(c)
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
		e, stop := run(c)
		defer stop()
		<-e.Changed()
		status := e.Status()
		require.Equal(t, `standby; "a controller of another version" leads`, status.Shown().String())
	})
}
