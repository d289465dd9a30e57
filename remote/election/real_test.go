package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
)

// candidate is an Elector that asks a real etcd through a network that can be cut.
type candidate struct {
	*election.Elector
	*testfleet.Cut
	resign func()
}

func stand(t *testing.T, c *servers.EtcdCluster, id string) *candidate {
	cut := c.Cut(t)
	client := etcd.New(etcd.Config{Endpoints: c.URLs(cut.Addresses())})
	begun := time.Now()
	e := election.New(election.Options{
		Cluster: client, Key: "/genv/lab", Self: election.Candidate{ID: id, Name: id},
		Clock: func() time.Duration { return time.Since(begun) }, Now: time.Now,
	})
	return &candidate{e, cut, campaign(t, client, e)}
}

// campaign has an Elector campaign until it resigns or the test ends.
func campaign(t *testing.T, client *etcd.Gateway, e *election.Elector) (resign func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { e.Campaign(ctx); close(ended) }()
	resign = func() { cancel(); <-ended }
	t.Cleanup(func() { resign(); client.Close() })
	return resign
}

func (c *candidate) becomesLeader(t *testing.T) time.Duration {
	t.Helper()
	begun := time.Now()
	for !c.Leads() {
		require.Less(t, time.Since(begun), patience, "it doesn't lead: %+v", c.Status())
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(begun)
}

// oneLeads watches until the test ends that no two lead at the same time.
func oneLeads(t *testing.T, a, b *candidate) {
	both, over, watched := false, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
				both = both || a.Leads() && b.Leads()
			}
		}
	}()
	t.Cleanup(func() {
		close(over)
		<-watched
		require.False(t, both, "two led at a time")
	})
}

// patience is how late a busy machine may be.
const patience = 20 * time.Second

// Over a real etcd of three members: one leads at a time, whatever fails.
func TestThreeMembers(t *testing.T) {
	t.Parallel()
	c := servers.StartEtcd(t, 3)
	first := stand(t, c, "first")
	first.becomesLeader(t)
	b := stand(t, c, "b")
	first.resign()
	t.Log("after it resigned:", b.becomesLeader(t))
	a := stand(t, c, "a")
	oneLeads(t, a, b)

	epoch := b.Status().Epoch
	b.Interrupt()
	t.Log("after a cut:", a.becomesLeader(t))
	require.False(t, b.Leads())
	require.Greater(t, a.Status().Epoch, epoch)
	b.Mend()
	require.Eventually(t, func() bool { return b.Status().Leader != nil && b.Status().Leader.ID == "a" }, patience, 10*time.Millisecond)

	epoch = a.Status().Epoch
	c.Kill(0)
	for range 6 { // longer than a lease: of three members, any one may be lost
		time.Sleep(time.Second)
		require.Equal(t, epoch, a.Status().Epoch)
	}
	c.Kill(1)
	require.Eventually(t, func() bool { return a.Status().Role == election.Expired && b.Status().Err != nil }, patience, 10*time.Millisecond)
	c.Restart(0)
	c.Restart(1)
	require.Eventually(t, func() bool { return a.Leads() || b.Leads() }, time.Minute, 10*time.Millisecond)
	require.Greater(t, max(a.Status().Epoch, b.Status().Epoch), epoch)
}

// The network loses what a leader sends to etcd, or what etcd answers: it leads no longer than
// its lease, also if etcd still hears of it, and another one leads.
func TestOneDirection(t *testing.T) {
	t.Parallel()
	c := servers.StartEtcd(t, 1)
	a := stand(t, c, "a")
	a.becomesLeader(t)
	b := stand(t, c, "b")
	oneLeads(t, a, b)
	for _, lose := range []func(*testfleet.Cut){(*testfleet.Cut).LoseAnswers, (*testfleet.Cut).LoseRequests} {
		epoch := a.Status().Epoch
		lose(a.Cut)
		t.Log("another one leads after", b.becomesLeader(t))
		require.Equal(t, election.Expired, a.Status().Role)
		require.Error(t, a.Status().Err)
		require.Greater(t, b.Status().Epoch, epoch)
		a.Mend()
		require.Eventually(t, func() bool { return a.Status().Role == election.Standby && a.Status().Err == nil }, patience, 10*time.Millisecond)
		a, b = b, a
	}
}
