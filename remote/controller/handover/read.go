package handover

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// atOnce is how many parts are read at a time: reading one after the other takes long if etcd is far away.
const atOnce = 8

// readParts reads as many parts as it can, in their order. The error is the first one.
func (f *Follower) readParts(ctx context.Context, keys []string, now moment) error {
	var (
		group errgroup.Group // without a context, so that an error cancels nothing
		mu    sync.Mutex     // for values
	)
	group.SetLimit(atOnce)
	for i, key := range keys {
		group.Go(func() error {
			entry, err := f.Store.Get(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				f.keep(key, entry, now)
			} else if i < atOnce { // it had the whole time: others come first in the next poll
				f.asked(key, now.clock)
			}
			return err
		})
	}
	return group.Wait()
}

// read reads a key.
func (f *Follower) read(ctx context.Context, key string, now moment) error {
	entry, err := f.Store.Get(ctx, key)
	if err == nil {
		f.keep(key, entry, now)
	}
	return err
}

// keep keeps what was read; nil if there is nothing.
func (f *Follower) keep(key string, entry *etcd.Entry, now moment) {
	if entry == nil {
		delete(f.values, key)
		return
	}
	f.values[key] = value{entry.Modified, entry.Value, now.clock, now.clock}
}

// asked has a key wait until others were asked for.
func (f *Follower) asked(key string, now time.Duration) {
	v := f.values[key]
	v.asked = now
	f.values[key] = v
}

// Behind is how many parts are known to be older than the head, and are continued nevertheless.
func (f *Follower) Behind() (parts int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	top := f.values[headKey(f.Key)]
	for _, v := range f.values {
		if age := top.current - v.current; v.modified != 0 && age > 0 && age <= outdatedFor {
			parts++
		}
	}
	return parts
}
