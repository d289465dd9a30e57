package caps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// reader keeps the holdings of all shards.
type reader struct {
	known map[int]*shardHeld
	tried map[int]tried // by shard
}

// tried is the last attempt to read the holdings of a shard.
type tried struct {
	modified uint64 // the revision of their key
	err      error  // ErrInvalid if they can't be used
}

// read returns those that count: the leader of their shard wrote them, not long ago.
func (r *reader) read(ctx context.Context, o *JudgeOptions) ([]shardHeld, error) {
	keys, err := o.Store.Keys(ctx, holdingsPrefix(o.Key))
	if err != nil {
		return nil, err
	}
	modified := make(map[string]uint64, len(keys))
	for _, k := range keys {
		modified[k.Key] = k.Modified
	}
	var list []shardHeld
	for shard := range o.Shards {
		if err := r.try(ctx, o, shard, modified[holdingsKey(o.Key, shard)]); err != nil {
			return nil, err
		}
		one := r.known[shard]
		if one == nil || !one.fresh(o.Clock()) {
			continue
		}
		leader, err := o.Store.Get(ctx, o.Guard(shard))
		if err != nil {
			return nil, err
		}
		if leader != nil && leader.Created == one.Version.Epoch {
			list = append(list, *one)
		}
	}
	return list, nil
}

// try reads the holdings of a shard if they have been modified. The error is the Store's.
func (r *reader) try(ctx context.Context, o *JudgeOptions, shard int, modified uint64) error {
	if modified == r.tried[shard].modified {
		return nil
	}
	err := r.learn(ctx, o.Store, shard, holdingsKey(o.Key, shard), o.Clock())
	if err != nil && !errors.Is(err, holdings.ErrInvalid) {
		return err
	}
	r.tried[shard] = tried{modified, err}
	return nil
}

// problem says why a shard is missing, or what does not count of the holdings that one has; nil for nothing.
func (r *reader) problem(shard int, missing bool) error {
	if err := r.tried[shard].err; missing && err != nil {
		return fmt.Errorf("shard %d: %w", shard, err)
	}
	if one := r.known[shard]; !missing && one.Left > 0 {
		return fmt.Errorf("shard %d: %d users hold too much to be counted, so no cap applies to what they have there", shard, one.Left)
	}
	return nil
}

// learn reads the holdings of a shard. Those that are known are read again only if they are others.
func (r *reader) learn(ctx context.Context, store Store, shard int, key string, now time.Duration) error {
	entry, err := store.Get(ctx, key)
	if err != nil || entry == nil {
		return err
	}
	h, err := decodeHead(entry.Value)
	if err != nil {
		return err
	}
	before := r.known[shard]
	if before != nil && before.Version == h.Version {
		return nil
	}
	one := &shardHeld{number: shard, document: &document{head: h}, since: now}
	if before != nil && bytes.Equal(before.Sum, h.Sum) {
		one.Shard = before.Shard
	} else if one.Shard, err = readParts(ctx, store, key, &h); err != nil {
		return err
	}
	r.known[shard] = one
	return nil
}

func readParts(ctx context.Context, store Store, key string, h *head) (*holdings.Shard, error) {
	var data []byte
	for i := range h.Parts {
		entry, err := store.Get(ctx, partKey(key, i))
		if err != nil {
			return nil, err
		}
		if entry == nil {
			entry = &etcd.Entry{}
		}
		data = append(data, entry.Value...)
	}
	return h.decode(data)
}
