package election_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

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
