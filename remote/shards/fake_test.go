package shards

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// fake is a Cluster whose leases never expire. Each call takes a while, and reads may fail.
type fake struct {
	mu       sync.Mutex
	latency  time.Duration
	unread   error // of reads
	entries  map[string]etcd.Entry
	revision uint64
	leases   int64
}

func (f *fake) wait(ctx context.Context, failure error) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(f.latency):
		return failure
	}
}

func (f *fake) Grant(ctx context.Context, ttl time.Duration) (etcd.Lease, error) {
	f.mu.Lock()
	f.leases++
	lease := etcd.Lease{ID: f.leases, TTL: ttl}
	f.mu.Unlock()
	return lease, f.wait(ctx, nil)
}

func (f *fake) KeepAlive(ctx context.Context, _ int64) (time.Duration, error) {
	return ttl, f.wait(ctx, nil)
}

func (f *fake) Revoke(ctx context.Context, lease int64) error {
	f.mu.Lock()
	maps.DeleteFunc(f.entries, func(_ string, e etcd.Entry) bool { return e.Lease == lease })
	f.mu.Unlock()
	return f.wait(ctx, nil)
}

func (f *fake) Create(ctx context.Context, key string, value []byte, lease int64) (etcd.Creation, error) {
	f.mu.Lock()
	e, there := f.entries[key]
	if !there {
		f.revision++
		e = etcd.Entry{Key: key, Value: value, Created: f.revision, Modified: f.revision, Lease: lease}
		f.entries[key] = e
	}
	f.mu.Unlock()
	return etcd.Creation{Entry: e, Cluster: 1, Own: e.Lease == lease}, f.wait(ctx, nil)
}

func (f *fake) Put(ctx context.Context, key string, value []byte, lease int64) error {
	f.mu.Lock()
	e := f.entries[key]
	e.Key, e.Value, e.Lease = key, value, lease
	f.entries[key] = e
	f.mu.Unlock()
	return f.wait(ctx, nil)
}

func (f *fake) List(ctx context.Context, prefix string) (list []etcd.Entry, err error) {
	f.mu.Lock()
	for key, e := range f.entries {
		if strings.HasPrefix(key, prefix) {
			list = append(list, e)
		}
	}
	f.mu.Unlock()
	return list, f.wait(ctx, f.unread)
}

func (f *fake) GetAll(ctx context.Context, keys ...string) ([]*etcd.Entry, error) {
	list := make([]*etcd.Entry, len(keys))
	f.mu.Lock()
	for i, key := range keys {
		if e, there := f.entries[key]; there {
			list[i] = &e
		}
	}
	f.mu.Unlock()
	return list, f.wait(ctx, f.unread)
}
