package election_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
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
	resign = background(e.Campaign)
	t.Cleanup(func() { resign(); client.Close() })
	return resign
}

// background runs something until it is stopped.
func background(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { run(ctx); close(ended) }()
	return func() { cancel(); <-ended }
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

const patience = 20 * time.Second // how late a busy machine may be

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

// cluster is an etcd in memory, of which the leases end by the test's clock.
type cluster struct {
	mu       sync.Mutex // over all of these
	revision uint64
	key      *etcd.KeyValue           // of the leader
	others   map[string]etcd.KeyValue // by key
	leases   map[int64]time.Time      // their ends
	ttls     map[int64]time.Duration  // of leases
	puts     int
	silent   bool          // it doesn't answer
	slow     time.Duration // for each answer
	lost     bool          // answers to Create are lost
	unread   bool          // Get fails
}

func newCluster() *cluster {
	return &cluster{
		leases: map[int64]time.Time{}, ttls: map[int64]time.Duration{}, others: map[string]etcd.KeyValue{}, slow: time.Millisecond,
	}
}

var errSilent = errors.New("no answer")

// answer waits as long as an answer takes, ends what has expired, and does what was asked.
func (c *cluster) answer(ctx context.Context, do func()) error {
	c.mu.Lock()
	delay := c.slow
	if c.silent {
		delay = time.Hour
	}
	c.mu.Unlock()
	timer := time.NewTimer(min(delay, 3*time.Second))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent {
		return errSilent
	}
	for id, end := range c.leases {
		if !time.Now().Before(end) {
			c.end(id)
		}
	}
	do()
	return nil
}

func (c *cluster) end(lease int64) {
	delete(c.leases, lease)
	if c.key != nil && c.key.Lease == lease {
		c.key = nil
		c.revision++
	}
	maps.DeleteFunc(c.others, func(_ string, e etcd.KeyValue) bool { return e.Lease == lease })
}

func (c *cluster) Grant(ctx context.Context, ttl time.Duration) (lease int64, granted time.Duration, err error) {
	err = c.answer(ctx, func() {
		c.revision++
		lease, granted = int64(c.revision), ttl //nolint:gosec // a small number
		c.leases[lease], c.ttls[lease] = time.Now().Add(ttl), ttl
	})
	return lease, granted, err
}

func (c *cluster) Renew(ctx context.Context, id int64, key string) (time.Duration, *etcd.KeyValue, error) {
	ttl, err := c.KeepAlive(ctx, id)
	if err != nil || ttl == 0 {
		return 0, nil, err
	}
	entry, err := c.Get(ctx, key)
	return ttl, entry, err
}

func (c *cluster) KeepAlive(ctx context.Context, id int64) (ttl time.Duration, err error) {
	err = c.answer(ctx, func() {
		if _, ok := c.leases[id]; ok {
			ttl = c.ttls[id]
			c.leases[id] = time.Now().Add(ttl)
		}
	})
	return ttl, err
}

func (c *cluster) TimeToLive(ctx context.Context, id int64) (left, granted time.Duration, err error) {
	err = c.answer(ctx, func() { left, granted = time.Until(c.leases[id]), c.ttls[id] })
	return left, granted, err
}

func (c *cluster) Put(ctx context.Context, key string, value []byte, lease int64) error {
	return c.answer(ctx, func() {
		c.puts++
		c.others[key] = etcd.KeyValue{Key: []byte(key), Value: value, Lease: lease}
	})
}

func (c *cluster) List(ctx context.Context, prefix string) (list []etcd.KeyValue, err error) {
	err = c.answer(ctx, func() {
		for key, e := range c.others {
			if strings.HasPrefix(key, prefix) {
				list = append(list, e)
			}
		}
	})
	return list, err
}

func (c *cluster) Update(ctx context.Context, _ string, created uint64, value []byte, lease int64) error {
	err := etcd.ErrConflict
	return cmp.Or(c.answer(ctx, func() {
		if c.key != nil && c.key.Created == created && c.key.Lease == lease {
			changed := *c.key // others may read the one before
			changed.Value = value
			c.key, err = &changed, nil
		}
	}), err)
}

func (c *cluster) Revoke(ctx context.Context, id int64) error {
	return c.answer(ctx, func() { c.end(id) })
}

func (c *cluster) Create(ctx context.Context, key string, value []byte, lease int64) (made etcd.Creation, err error) {
	lost := false
	err = c.answer(ctx, func() {
		if c.key == nil {
			c.revision++
			c.key = &etcd.KeyValue{Key: []byte(key), Value: value, Created: c.revision, Lease: lease}
		}
		made, lost = etcd.Creation{KeyValue: *c.key, Cluster: 0xabc, Own: c.key.Lease == lease}, c.lost
	})
	if lost {
		return etcd.Creation{}, errSilent
	}
	return made, err
}

func (c *cluster) Get(ctx context.Context, _ string) (entry *etcd.KeyValue, err error) {
	unread := false
	if err = c.answer(ctx, func() { entry, unread = c.key, c.unread }); unread {
		return nil, errSilent
	}
	return entry, err
}

// set changes the cluster while it is asked.
func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// taken has another controller lead.
func (c *cluster) taken() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision++
	c.key = &etcd.KeyValue{Value: []byte(`{"schema":"genv.election/1","id":"b","name":"bob on spare","since":"2026-03-01T10:00:00Z"}`), Created: c.revision, Lease: -1}
}
