package caps

import (
	"bytes"
	"context"
	"fmt"
	"time"

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

// read returns those that count: the leader of their shard wrote them, not long ago. It asks for
// all shards at once, however many there are: each request takes as long as etcd is away.
func (r *reader) read(ctx context.Context, o *JudgeOptions) ([]shardHeld, error) {
	now := o.Clock()
	changed, err := r.changed(ctx, o)
	if err != nil {
		return nil, err
	}
	var keys []string
	for shard := range o.Shards {
		keys = append(keys, o.Guard(shard))
	}
	for _, shard := range changed {
		keys = append(keys, holdingsKey(o.Key, shard))
	}
	entries, err := getAll(ctx, o.Store, maxKeys, keys)
	if err != nil {
		return nil, err
	}
	leaders, heads := entries[:o.Shards], entries[o.Shards:]
	if err := r.learn(ctx, o, changed, heads, now); err != nil {
		return nil, err
	}
	var list []shardHeld
	for shard, leader := range leaders {
		if one := r.known[shard]; one != nil && one.fresh(o.Clock()) && leader != nil && leader.Created == one.Version.Epoch {
			list = append(list, *one)
		}
	}
	return list, nil
}

// changed are the shards that published since they were tried.
func (r *reader) changed(ctx context.Context, o *JudgeOptions) (changed []int, err error) {
	keys, err := o.Store.Keys(ctx, holdingsPrefix(o.Key))
	if err != nil {
		return nil, err
	}
	modified := make(map[string]uint64, len(keys))
	for _, k := range keys {
		modified[k.Key] = k.Modified
	}
	for shard := range o.Shards {
		if modified[holdingsKey(o.Key, shard)] != r.tried[shard].modified {
			changed = append(changed, shard)
		}
	}
	return changed, nil
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

// learn reads what shards published. The error is the Store's.
func (r *reader) learn(ctx context.Context, o *JudgeOptions, shards []int, heads []*etcd.Entry, now time.Duration) error {
	var unread []*shardHeld
	for i, shard := range shards {
		if heads[i] == nil {
			r.tried[shard] = tried{}
			continue
		}
		one, err := r.begin(shard, heads[i], now)
		if err == nil && one.Shard == nil {
			unread = append(unread, one)
			continue
		}
		r.tried[shard] = tried{heads[i].Modified, err}
	}
	for len(unread) > 0 {
		n := 1
		for parts := unread[0].Parts; n < len(unread) && parts+unread[n].Parts <= partsAtOnce; n++ {
			parts += unread[n].Parts
		}
		if err := r.readParts(ctx, o, unread[:n]); err != nil {
			return err
		}
		unread = unread[n:]
	}
	return nil
}

// begin reads a head. The content is still missing if it isn't that which is known.
func (r *reader) begin(shard int, entry *etcd.Entry, now time.Duration) (*shardHeld, error) {
	h, err := decodeHead(entry.Value)
	if err != nil {
		return nil, err
	}
	before := r.known[shard]
	if before != nil && before.Version == h.Version {
		return before, nil
	}
	one := &shardHeld{number: shard, document: &document{head: h}, since: now, modified: entry.Modified}
	if before != nil && bytes.Equal(before.Sum, h.Sum) {
		one.Shard, r.known[shard] = before.Shard, one
	}
	return one, nil
}

// readParts reads the contents of some shards.
func (r *reader) readParts(ctx context.Context, o *JudgeOptions, shards []*shardHeld) error {
	var keys []string
	for _, one := range shards {
		for part := range one.Parts {
			keys = append(keys, partKey(holdingsKey(o.Key, one.number), part))
		}
	}
	entries, err := getAll(ctx, o.Store, partsAtOnce, keys)
	if err != nil {
		return err
	}
	for _, one := range shards {
		var data []byte
		for _, entry := range entries[:one.Parts] {
			if entry != nil {
				data = append(data, entry.Value...)
			}
		}
		entries = entries[one.Parts:]
		if one.Shard, err = one.decode(data); err == nil {
			r.known[one.number] = one
		}
		r.tried[one.number] = tried{one.modified, err}
	}
	return nil
}
