package handover

import (
	"bytes"
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// Store is where the memory is kept; *etcd.Client is one.
type Store interface {
	Get(ctx context.Context, key string) (*etcd.Entry, error)
	// WriteAfter writes nothing, and returns etcd.ErrConflict, if the key guard was not created in a
	// revision, or key was modified in another one.
	WriteAfter(ctx context.Context, guard string, created uint64, key string, modified uint64, entries ...etcd.Entry) error
}

func headKey(key string) string   { return key + "/memory/head" }
func memoryKey(key string) string { return key + "/memory/all" }

// Publisher writes the memory of a leader. It is safe for concurrent use.
type Publisher struct {
	Store Store
	Key   string // of the election

	mu    sync.Mutex
	epoch uint64 // of the leader that wrote it
	there written
	tried written   // by a request without an answer
	made  time.Time // when the document was made that was written last
}

// written is what is in the Store, if that has this head.
type written struct {
	head  []byte
	known bool // the memory is there, or too long
	hash  []byte
	sum   [sha256.Size]byte
	clock time.Time // see clockOf
}

// Publish writes what has changed since the last time, for the leader with an epoch. A document
// that is older than the one that is there isn't written. The error is
// etcd.ErrConflict if this controller doesn't lead any more, or if an earlier try, of which the answer
// was lost, was carried out late; otherwise etcd's. The next call, with a newer document, goes on there.
func (p *Publisher) Publish(ctx context.Context, epoch uint64, d *Document) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epoch != epoch {
		p.epoch, p.there, p.tried, p.made = epoch, written{}, written{}, time.Time{}
	}
	if d.made.Before(p.made) {
		return nil
	}
	before, err := p.Store.Get(ctx, headKey(p.Key))
	if err != nil {
		return err
	}
	if before == nil {
		before = new(etcd.Entry)
	}
	p.compare(before.Value)
	request, err := p.request(d)
	if err != nil {
		return err
	}
	// It is refused if the head is not as it was: so a request that arrives late isn't carried out after another one.
	err = p.Store.WriteAfter(ctx, election.LeaderKey(p.Key), p.epoch, headKey(p.Key), before.Modified, request...)
	if err == nil {
		p.there, p.made = p.tried, d.made
	}
	return err
}

// compare forgets what is there if the head is not the one that was written last: another leader may
// have written, or etcd was restored.
func (p *Publisher) compare(head []byte) {
	switch {
	case bytes.Equal(head, p.there.head):
	case bytes.Equal(head, p.tried.head):
		p.there = p.tried
	default:
		p.there = written{}
	}
}

// request is a head, and the memory if it is not there as it is now. One with times of another clock is written
// again: the head says by how much times have to be corrected.
func (p *Publisher) request(d *Document) (request []etcd.Entry, err error) {
	p.tried = p.there
	if t := &p.tried; !t.known || t.sum != d.sum || differ(t.clock, d.head.Clock) {
		*t = written{known: true, hash: hashOf(d.data), sum: d.sum, clock: d.head.Clock}
		request = append(request, etcd.Entry{Key: memoryKey(p.Key), Value: d.data})
	}
	top := d.head
	top.Epoch, top.Memory = p.epoch, p.tried.hash
	if p.tried.head, err = pack(top); err != nil {
		return nil, err
	}
	return append(request, etcd.Entry{Key: headKey(p.Key), Value: p.tried.head}), nil
}

// hashOf identifies a memory as it is written; nil for none.
func hashOf(data []byte) []byte {
	if data == nil {
		return nil
	}
	hash := sha256.Sum256(data)
	return hash[:]
}
