package handover

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/packed"
)

// Store is where the memory is kept; *etcd.Client is one.
type Store interface {
	Get(ctx context.Context, key string) (*etcd.Entry, error)
	Keys(ctx context.Context, prefix string) ([]etcd.Entry, error)
	// WriteAfter writes nothing, and returns false, if the key guard was not created in a
	// revision, or key was modified in another one.
	WriteAfter(ctx context.Context, guard string, created uint64, key string, modified uint64, entries ...etcd.Entry) (done bool, err error)
}

// prefixOf is what the keys of an election's memory begin with; headKey and partKey are these.
func prefixOf(key string) string          { return key + "/memory/" }
func headKey(key string) string           { return prefixOf(key) + "head" }
func partKey(key string, part int) string { return fmt.Sprintf("%spart-%02d", prefixOf(key), part) }

// Publisher writes the memory of a leader. It is safe for concurrent use.
type Publisher struct {
	Store Store
	Key   string // of the election

	mu      sync.Mutex
	epoch   uint64 // of the leader that wrote sums
	sums    [parts][sha256.Size]byte
	written bool      // sums are of what is in the Store
	made    time.Time // when what is there was made
}

// ErrReplaced says that nothing was written: another controller leads, or an earlier try, of
// which the answer was lost, was carried out late.
var ErrReplaced = errors.New("another controller leads")

// maxRequest is how much a request may have, in bytes, besides the last part.
const maxRequest = 256 << 10

// Publish writes what has changed since the last time, for the leader with an epoch. Documents
// that are older than those that are there aren't written. After an error all is written the
// next time.
func (p *Publisher) Publish(ctx context.Context, epoch uint64, d *Documents) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.written && p.epoch == epoch
	if known && d.made.Before(p.made) {
		return nil
	}
	p.written = false
	before, err := p.Store.Get(ctx, headKey(p.Key))
	if err != nil {
		return err
	}
	if before == nil {
		before = new(etcd.Entry)
	}
	var request []etcd.Entry
	size := 0
	flush := func() error {
		done, err := p.Store.WriteAfter(ctx, election.LeaderKey(p.Key), epoch, headKey(p.Key), before.Modified, request...)
		if err == nil && !done {
			err = ErrReplaced
		}
		request, size = nil, 0
		return err
	}
	for i := range d.parts {
		if known && p.sums[i] == d.sums[i] {
			continue
		}
		request = append(request, etcd.Entry{Key: partKey(p.Key, i), Value: d.parts[i]})
		if size += len(d.parts[i]); size > maxRequest {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	top := d.head
	top.Epoch = epoch
	encoded, err := packed.Encode(top)
	if err != nil {
		return err
	}
	request = append(request, etcd.Entry{Key: headKey(p.Key), Value: encoded})
	if err := flush(); err != nil {
		return err
	}
	p.epoch, p.sums, p.written, p.made = epoch, d.sums, true, d.made
	return nil
}
