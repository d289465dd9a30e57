package handover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/operator"
)

// Follower keeps what the leader published, for when this controller takes its place. It is
// safe for concurrent use.
type Follower struct {
	Store Store
	Key   string // of the election
	Now   func() time.Time
	Clock func() time.Duration // one that can't be set

	mu     sync.Mutex
	begun  bool
	top    value // the head
	memory value
	polled time.Duration // when the head was read last, or not there, by Clock
	skew   time.Duration // by how much Now is ahead of the leader's clock, as far as it is known
	// learned is when skew was measured, by both clocks: what passed since then by each shows
	// whether Now was set.
	learned moment
	from    head // of which skew was measured: shows whether the leader's clock was set
}

// moment is a time by two clocks.
type moment struct {
	now   time.Time
	clock time.Duration
}

type value struct {
	modified uint64 // 0 if there is none
	data     []byte
	current  time.Duration // when it was known last to be as in the Store, by Clock
}

// Poll reads what has changed. Polls less than 2 s apart also measure the difference
// between this clock and the leader's. The error is the Store's; what was read before it is kept.
func (f *Follower) Poll(ctx context.Context) error {
	top, err := f.Store.Get(ctx, headKey(f.Key))
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := moment{f.Now().Round(0), f.Clock()}
	often := f.begun && now.clock-f.polled <= tolerated
	if !f.begun {
		f.begun, f.learned = true, now // until more is known, the clocks are taken to be the same
	}
	f.polled = now.clock
	if top == nil {
		f.top, f.memory = value{}, value{}
		return nil
	}
	changed := top.Modified != f.top.modified
	f.top = value{top.Modified, top.Value, now.clock}
	var h head
	if unpack(top.Value, &h) != nil {
		return nil // Memory says so
	}
	if changed && often {
		f.skew, f.learned, f.from = beyondTolerated(now.now.Sub(h.Time)), now, h
	}
	return f.readMemory(ctx, h.Memory, now.clock)
}

// readMemory reads the memory of a head, if it isn't the one that was read.
func (f *Follower) readMemory(ctx context.Context, hash []byte, now time.Duration) error {
	if bytes.Equal(hash, hashOf(f.memory.data)) {
		f.memory.current = now
		return nil
	}
	entry, err := f.Store.Get(ctx, memoryKey(f.Key))
	switch {
	case err != nil:
		return err
	case entry == nil:
		f.memory = value{}
	default:
		f.memory = value{entry.Modified, entry.Value, now}
	}
	return nil
}

// Restart forgets what was read and learned, for one that has led meanwhile: it is of another
// leader and another time.
func (f *Follower) Restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun, f.top, f.memory, f.skew, f.from = false, value{}, value{}, 0, head{}
}

// Epoch is that of the leader that published last, as far as was read; 0 if none is known.
func (f *Follower) Epoch() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var h head
	if unpack(f.top.data, &h) != nil {
		return 0
	}
	return h.Epoch
}

// HeadSince reports whether the head was read, or found unchanged, since a time by Clock: then Epoch and
// what operators asked for are those of the last leader, however old the rest is.
func (f *Follower) HeadSince(t time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.top.modified != 0 && f.top.current >= t
}

// tolerated is how far two clocks may be apart before times are corrected. What is new may be
// as old as the time between two polls.
const tolerated = 2 * time.Second

// skewAt is the skew of a head at a time by this clock. Both clocks may have been set since it was learned. The
// clocks of this and another leader are taken to be the same until more is known.
func (f *Follower) skewAt(now time.Time, h *head) time.Duration {
	set := now.Round(0).Sub(f.learned.now) - (f.Clock() - f.learned.clock)
	skew := beyondTolerated(set)
	if h.Epoch != f.from.Epoch {
		return skew
	}
	if skew += f.skew; differ(h.Clock, f.from.Clock) {
		skew -= h.Clock.Sub(f.from.Clock)
	}
	return skew
}

// beyondTolerated is a difference of clocks; 0 for one that is tolerated.
func beyondTolerated(d time.Duration) time.Duration {
	if d.Abs() < tolerated {
		return 0
	}
	return d
}

// Written is when the memory was published last, by the leader's clock; ErrNone if it wasn't.
func Written(ctx context.Context, store Store, key string) (time.Time, error) {
	top, err := store.Get(ctx, headKey(key))
	if err != nil {
		return time.Time{}, err
	}
	if top == nil {
		return time.Time{}, ErrNone
	}
	var h head
	err = errors.Join(unpack(top.Value, &h), h.check())
	return h.Time, err
}

// outdatedFor is for how long a memory may be known to be older than the head: about what is lost if
// a leader is killed.
const outdatedFor = 10 * time.Second

// ErrNone says that no leader has published a memory.
var ErrNone = errors.New("no memory was published")

// Memory is what the leader published last, with its times by the clock of now. The error is
// ErrNone or says why it can't be used; what operators asked for doesn't age, and is there
// also then, or if the rest is not found: it is not there, can't be read, is outdated (as if it were
// current, something would seem to have lasted without a break), or has times of another clock than the head.
func (f *Follower) Memory(now time.Time) (m controller.FleetMemory, found bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.top.modified == 0 {
		return m, false, ErrNone
	}
	var h head
	if err := errors.Join(unpack(f.top.data, &h), h.check()); err != nil {
		m.Operator = operator.Lost(now)
		return m, false, fmt.Errorf("the memory in etcd is damaged: %w", err)
	}
	skew := f.skewAt(now, &h)
	leaderNow := now.Add(-skew) // Decode takes a difference for a clock that was set
	state, err := operator.Decode(h.Operator, leaderNow)
	if err != nil {
		state = operator.Lost(leaderNow)
	}
	state = state.Later(skew)
	state.Exemptions = state.Exemptions.From(now)
	m.Operator = state
	written := h.Time.Add(skew)
	if age := now.Sub(written); age > controller.MaxMemoryAge || age < -tolerated {
		return m, false, fmt.Errorf("the memory in etcd was written at %s, which is too long ago or in the future", written.Format(time.RFC3339))
	}
	var c content
	if f.top.current-f.memory.current <= outdatedFor && unpack(f.memory.data, &c) == nil && !differ(c.Clock, h.Clock) {
		m, found = c.Memory, true
		m.Operator = state
	}
	m.Rules.Time, m.Mail.Sent = h.Judged, h.Mail
	m.Rules = m.Rules.Shifted(skew).At(now) // measured by the monotonic clock from here on
	m.Rules.Resumed = true
	return m, found, nil // a hold says that what operators asked for was lost
}

// Behind reports whether the memory is known to be older than the head, and is continued nevertheless.
func (f *Follower) Behind() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	age := f.top.current - f.memory.current
	return f.memory.modified != 0 && age > 0 && age <= outdatedFor
}
