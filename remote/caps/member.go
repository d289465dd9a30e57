package caps

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/snapshot"
)

// MemberOptions are what the controller of a shard needs.
type MemberOptions struct {
	Store  Store
	Key    string // of all controllers, such as /genv/lab
	Number int    // of the shard
	// Guard is the key that only the leader of the shard has made, and Epoch the revision in
	// which this controller made it; 0 while it doesn't lead.
	Guard string
	Epoch func() uint64
	// Order is the place of each host in the whole fleet: see enforce.Shard.
	Order func() map[snapshot.Hostname]int
	// Every is about how long it is from one cycle to the next.
	Every time.Duration
	// Clock never goes back, and goes on while the machine sleeps.
	Clock func() time.Duration
}

// Member tells what users hold in a shard, and learns what was decided. Its methods are safe
// for concurrent use, but Run, which is called once.
type Member struct {
	MemberOptions
	wake chan struct{}

	mu       sync.Mutex
	decision *decision     // the last one
	since    time.Duration // by when it was written at the earliest
	known    [2]stamp      // the decision at the time of the last cycle but one, and of the last
	leads    uint64        // the epoch of these
	pending  *document     // that is to be written; nil for none
	err      error         // of the last time

	// These are for Run alone.
	modified uint64        // the revision of the decision's key
	asked    time.Duration // when the store answered last
	number   uint64        // of the last holdings that were written, or may have been
	epoch    uint64        // of the leader who wrote all parts,
	sum      []byte        // their sum; nil if that or the head failed
	written  time.Duration // and when
}

// NewMember returns a Member that knows no decision until Run.
func NewMember(options MemberOptions) *Member {
	return &Member{MemberOptions: options, wake: make(chan struct{}, 1), asked: options.Clock() - 2*maxAge}
}

// maxAge is how old a decision may be that is used: the judge repeats it much more often.
const maxAge = 10 * time.Second

// Shard is how the hosts are to be judged in the cycle that begins. There is no Decision if none
// is known, or it is too old, or was made from the holdings of an earlier leader of the shard.
func (m *Member) Shard() enforce.Shard {
	m.mu.Lock()
	defer m.mu.Unlock()
	return enforce.Shard{Order: m.Order(), Decision: m.next(m.Epoch())}
}

// next is the decision for a cycle.
func (m *Member) next(epoch uint64) *holdings.Decision {
	if m.leads != epoch { // what an earlier leader did is not known
		m.leads, m.known = epoch, [2]stamp{}
	}
	d := m.decision
	m.known[0] = m.known[1]
	if d == nil {
		return nil
	}
	m.known[1] = d.Stamp
	if from := d.From[m.Number]; m.Clock()-m.since > maxAge || from.Epoch == 0 || from.Epoch != epoch {
		return nil
	}
	return &d.Decision
}

// Publish has what users hold written, by the cycle for which Shard was asked. It doesn't
// wait, and changes nothing while this controller doesn't lead.
func (m *Member) Publish(s *holdings.Shard) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending = &document{head{Version: stamp{Epoch: m.Epoch()}, Seen: m.known[0], Every: m.Every}, s}
	select {
	case m.wake <- struct{}{}:
	default: // it is awake already
	}
}

// Err is why etcd can't be asked, nil if it answered last; etcd.ErrConflict if this controller does
// not lead the shard any more.
func (m *Member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// askEvery is how often the store is asked for what is new.
const askEvery = 250 * time.Millisecond

// Run writes and reads until ctx ends.
func (m *Member) Run(ctx context.Context) {
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		err := errors.Join(m.read(ctx), m.write(ctx))
		m.mu.Lock()
		m.err = err
		m.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-ticker.C:
		}
	}
}

// read learns the last decision. One that is no later than the one that is known was written
// by a judge that was replaced.
func (m *Member) read(ctx context.Context) error {
	now, before := m.Clock(), m.asked
	entry, err := m.Store.Get(ctx, decisionKey(m.Key, m.Number))
	if err != nil {
		return err
	}
	m.asked = now
	if entry == nil || entry.Modified == m.modified {
		return nil
	}
	d, err := decodeDecision(entry.Value)
	if err != nil {
		return err // each time, until there is one that can be read
	}
	m.modified = entry.Modified
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.decision == nil || m.decision.Stamp.before(d.Stamp) {
		m.decision, m.since = d, before
	}
	return nil
}

// rewriteEvery is how often parts are written again that have not changed. An earlier write, of
// which the answer was lost, may have been carried out late and replaced some of them.
const rewriteEvery = time.Minute

// write writes what the last cycle published: all of it if it has changed, otherwise only that
// it was looked at.
func (m *Member) write(ctx context.Context) error {
	m.mu.Lock()
	pending := m.pending
	m.mu.Unlock()
	if pending == nil || pending.Version.Epoch == 0 || pending.Version.Epoch != m.Epoch() {
		return nil
	}
	m.number++
	pending.Version.Number = m.number
	top, parts, err := pending.encode()
	if err != nil {
		return err
	}
	key := holdingsKey(m.Key, m.Number)
	if err := m.writeParts(ctx, pending, key, parts); err != nil {
		return err
	}
	if err := m.Store.Write(ctx, m.Guard, pending.Version.Epoch, etcd.Entry{Key: key, Value: top}); err != nil {
		m.sum = nil
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pending == pending {
		m.pending = nil
	}
	return nil
}

// writeParts writes the parts, if they are not there.
func (m *Member) writeParts(ctx context.Context, d *document, key string, parts [][]byte) error {
	now, epoch := m.Clock(), d.Version.Epoch
	if m.epoch == epoch && bytes.Equal(m.sum, d.Sum) && now-m.written < rewriteEvery {
		return nil
	}
	m.sum = nil
	for i, part := range parts {
		if err := m.Store.Write(ctx, m.Guard, epoch, etcd.Entry{Key: partKey(key, i), Value: part}); err != nil {
			return err
		}
	}
	m.epoch, m.sum, m.written = epoch, d.Sum, now
	return nil
}
