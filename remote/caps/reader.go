package caps

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// reader keeps the holdings of all shards.
type reader struct {
	known    map[int]*shardHeld
	modified map[string]uint64 // revisions, by key
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
		key := holdingsKey(o.Key, shard)
		if modified[key] != r.modified[key] {
			switch err := r.learn(ctx, o.Store, shard, key, o.Clock()); {
			case errors.Is(err, holdings.ErrInvalid):
				delete(modified, key) // tried again: it may be half written
			case err != nil:
				return nil, err
			}
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
	r.modified = modified
	return list, nil
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
	one := &shardHeld{number: shard, held: &held{head: h}, since: now}
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
