package handover

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// Store is where the memory is kept; *etcd.Client is one.
type Store interface {
	Get(ctx context.Context, key string) (*etcd.Entry, error)
	Keys(ctx context.Context, prefix string) ([]etcd.Entry, error)
	// WriteAfter writes nothing, and returns etcd.ErrConflict, if the key guard was not created in a
	// revision, or key was modified in another one.
	WriteAfter(ctx context.Context, guard string, created uint64, key string, modified uint64, entries ...etcd.Entry) error
}

// prefixOf is what the keys of an election's memory begin with; headKey and partKey are these.
func prefixOf(key string) string          { return key + "/memory/" }
func headKey(key string) string           { return prefixOf(key) + "head" }
func partKey(key string, part int) string { return fmt.Sprintf("%spart-%02d", prefixOf(key), part) }

// Publisher writes the memory of a leader. It is safe for concurrent use.
type Publisher struct {
	Store Store
	Key   string // of the election

	mu    sync.Mutex
	epoch uint64 // of the leader that wrote it
	there content
	tried content   // of a request without an answer
	whole bool      // the last memory was written to its end
	made  time.Time // when that was made
}

// content is what is in the Store, if that has this head.
type content struct {
	head  []byte
	parts [parts]written
}

// written is a part that is in the Store.
type written struct {
	known, empty bool
	sum          [sha256.Size]byte
	judged       time.Time // of the last memory in which it was like this
	clock        time.Time // see clockOf
}

// maxRequest is how much a request may have, in bytes, besides the last part.
const maxRequest = 256 << 10

// Publish writes what has changed since the last time, for the leader with an epoch. Documents
// that are older than those that are there aren't written. A memory that needs several requests may end
// between two of them: each request has a head, which is true for the parts that are there then. The error is
// etcd.ErrConflict if this controller doesn't lead any more, or if an earlier try, of which the answer
// was lost, was carried out late; otherwise etcd's. The next call, with newer documents, goes on there.
func (p *Publisher) Publish(ctx context.Context, epoch uint64, d *Documents) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epoch != epoch {
		p.epoch, p.there, p.tried, p.whole = epoch, content{}, content{}, false
	}
	if p.whole && d.made.Before(p.made) {
		return nil
	}
	p.whole = false
	for !p.whole {
		before, err := p.Store.Get(ctx, headKey(p.Key))
		if err != nil {
			return err
		}
		if before == nil {
			before = new(etcd.Entry)
		}
		p.compare(before.Value)
		changed := d.changed(&p.there.parts)
		some := d.fitting(changed)
		if err := p.write(ctx, d, changed[:some], before.Modified); err != nil {
			return err
		}
		p.whole, p.made = some == len(changed), d.made
	}
	return nil
}

// compare forgets what is there if the head is not the one that was written last: another leader may
// have written, or etcd was restored.
func (p *Publisher) compare(head []byte) {
	switch {
	case bytes.Equal(head, p.there.head):
	case bytes.Equal(head, p.tried.head):
		p.there = p.tried
	default:
		p.there = content{}
	}
}

// changed are the parts that are not there as they are now. Those with times of another clock are taken as
// not there: the head says by how much times have to be corrected, and that doesn't hold for them.
func (d *Documents) changed(there *[parts]written) (changed []int) {
	for i := range there {
		part := &there[i]
		if differ(part.clock, d.head.Clock) {
			*part = written{}
		}
		if part.known && part.sum == d.sums[i] {
			part.judged = d.head.Judged
		} else {
			changed = append(changed, i)
		}
	}
	return changed
}

// fitting is how many of some parts go into a request.
func (d *Documents) fitting(of []int) (n int) {
	for size := 0; n < len(of) && size <= maxRequest; n++ {
		size += len(d.parts[of[n]])
	}
	return n
}

// write writes parts, and a head for what is there then. It is refused if the head is not as it was: so
// a request that arrives late isn't carried out after another one.
func (p *Publisher) write(ctx context.Context, d *Documents, changed []int, before uint64) error {
	var request []etcd.Entry
	p.tried.parts = p.there.parts
	for _, i := range changed {
		request = append(request, etcd.Entry{Key: partKey(p.Key, i), Value: d.parts[i]})
		p.tried.parts[i] = written{true, d.parts[i] == nil, d.sums[i], d.head.Judged, d.head.Clock}
	}
	var err error
	if p.tried.head, err = pack(d.headOf(p.epoch, &p.tried.parts)); err != nil {
		return err
	}
	request = append(request, etcd.Entry{Key: headKey(p.Key), Value: p.tried.head})
	if err := p.Store.WriteAfter(ctx, election.LeaderKey(p.Key), p.epoch, headKey(p.Key), before, request...); err != nil {
		return err
	}
	p.there = p.tried
	return nil
}

// headOf is the head of what is there: as old as the oldest part.
func (d *Documents) headOf(epoch uint64, there *[parts]written) head {
	top := d.head
	top.Epoch, top.Parts = epoch, []int{}
	for i := range there {
		switch part := &there[i]; {
		case !part.known && d.parts[i] != nil:
			top.Missing++
		case part.known && !part.empty:
			top.Parts = append(top.Parts, i)
			if part.judged.Before(top.Judged) {
				top.Judged = part.judged
			}
		}
	}
	return top
}
