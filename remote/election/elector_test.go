package election_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
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
	return &cluster{leases: map[int64]time.Time{}, ttls: map[int64]time.Duration{}, others: map[string]etcd.KeyValue{}}
}

func slowCluster() *cluster {
	c := newCluster()
	c.slow = time.Millisecond
	return c
}

var errSilent = errors.New("no answer")

// answer waits as long as an answer takes, and ends what has expired.
func (c *cluster) answer(ctx context.Context) error {
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

func (c *cluster) Grant(ctx context.Context, ttl time.Duration) (etcd.Lease, error) {
	if err := c.answer(ctx); err != nil {
		return etcd.Lease{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision++
	id := int64(c.revision) //nolint:gosec // a small number
	c.leases[id], c.ttls[id] = time.Now().Add(ttl), ttl
	return etcd.Lease{ID: id, TTL: ttl}, nil
}

func (c *cluster) Renew(ctx context.Context, id int64, key string) (time.Duration, *etcd.KeyValue, error) {
	ttl, err := c.KeepAlive(ctx, id)
	if err != nil || ttl == 0 {
		return 0, nil, err
	}
	entry, err := c.Get(ctx, key)
	return ttl, entry, err
}

func (c *cluster) KeepAlive(ctx context.Context, id int64) (time.Duration, error) {
	if err := c.answer(ctx); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.leases[id]; !ok {
		return 0, nil
	}
	c.leases[id] = time.Now().Add(c.ttls[id])
	return c.ttls[id], nil
}

func (c *cluster) TimeToLive(ctx context.Context, id int64) (left, granted time.Duration, err error) {
	err = c.answer(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.leases[id]), c.ttls[id], err
}

func (c *cluster) Put(ctx context.Context, key string, value []byte, lease int64) error {
	if err := c.answer(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.puts++
	c.others[key] = etcd.KeyValue{Key: key, Value: value, Lease: lease}
	return nil
}

func (c *cluster) List(ctx context.Context, prefix string) (list []etcd.KeyValue, err error) {
	err = c.answer(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.others {
		if strings.HasPrefix(key, prefix) {
			list = append(list, e)
		}
	}
	return list, err
}

func (c *cluster) Update(ctx context.Context, _ string, created uint64, value []byte, lease int64) error {
	if err := c.answer(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.key == nil || c.key.Created != created || c.key.Lease != lease {
		return etcd.ErrConflict
	}
	changed := *c.key // others may read the one before
	changed.Value = value
	c.key = &changed
	return nil
}

func (c *cluster) Revoke(ctx context.Context, id int64) error {
	err := c.answer(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.end(id)
	}
	return err
}

func (c *cluster) Create(ctx context.Context, key string, value []byte, lease int64) (etcd.Creation, error) {
	if err := c.answer(ctx); err != nil {
		return etcd.Creation{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.key == nil {
		c.revision++
		c.key = &etcd.KeyValue{Key: key, Value: value, Created: c.revision, Lease: lease}
	}
	if c.lost {
		return etcd.Creation{}, errSilent
	}
	return etcd.Creation{KeyValue: *c.key, Cluster: 0xabc, Own: c.key.Lease == lease}, nil
}

func (c *cluster) Get(ctx context.Context, _ string) (*etcd.KeyValue, error) {
	if err := c.answer(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unread {
		return nil, errSilent
	}
	return c.key, nil
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
