package handover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election/etcd"
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
	values map[string]value // by key
	polled time.Duration    // when the head was read last, or not there, by Clock
	skew   time.Duration    // by how much Now is ahead of the leader's clock, as far as it is known
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
	modified uint64 // 0 if it was not read yet
	data     []byte
	current  time.Duration // when it was known last to be as in the Store, by Clock
	asked    time.Duration // when it was read, or could not be
}

// Poll reads what has changed: the head first, then the keys that have waited longest, so that all
// are read even if every poll is cut short. Polls less than 2 s apart also measure the difference
// between this clock and the leader's. The error is the Store's; what was read before it is kept.
func (f *Follower) Poll(ctx context.Context) error {
	keys, err := f.Store.Keys(ctx, prefixOf(f.Key))
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := moment{f.Now().Round(0), f.Clock()}
	often := f.values != nil && now.clock-f.polled <= tolerated
	if f.values == nil {
		f.learned = now // until more is known, the clocks are taken to be the same
		f.values, f.polled = make(map[string]value), -tolerated-1
	}
	changed := f.compare(keys, now.clock)
	if len(changed) > 0 && changed[0] == headKey(f.Key) {
		entry, err := f.Store.Get(ctx, changed[0])
		if err != nil {
			return err
		}
		f.keep(changed[0], entry, now)
		if often {
			f.learnSkew(f.values[changed[0]].data, now)
		}
		changed = changed[1:]
	}
	f.polled = now.clock
	return f.readParts(ctx, changed, now)
}

// compare drops what isn't in the Store any more, and returns the keys of what has changed there, in
// the order in which they are to be read.
func (f *Follower) compare(keys []etcd.Entry, now time.Duration) (changed []string) {
	next := make(map[string]value, len(keys))
	for _, k := range keys {
		v := f.values[k.Key]
		if v.modified == k.Modified {
			v.current = now
		} else {
			changed = append(changed, k.Key)
		}
		next[k.Key] = v
	}
	f.values = next
	slices.SortStableFunc(changed, func(a, b string) int {
		if a == headKey(f.Key) || b == headKey(f.Key) {
			return strings.Compare(a, b) // it is before all parts
		}
		return cmp.Compare(next[a].asked, next[b].asked)
	})
	return changed
}

// Restart forgets what was read and learned, for one that has led meanwhile: it is of another
// leader and another time.
func (f *Follower) Restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.values, f.skew, f.from = nil, 0, head{}
}

// Epoch is that of the leader that published last, as far as was read; 0 if none is known.
func (f *Follower) Epoch() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var h head
	if unpack(f.values[headKey(f.Key)].data, &h) != nil {
		return 0
	}
	return h.Epoch
}

// HeadSince reports whether the head was read, or found unchanged, since a time by Clock: then Epoch and
// what operators asked for are those of the last leader, however old the rest is.
func (f *Follower) HeadSince(t time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	top := f.values[headKey(f.Key)]
	return top.modified != 0 && top.current >= t
}

// tolerated is how far two clocks may be apart before times are corrected. What is new may be
// as old as the time between two polls.
const tolerated = 2 * time.Second

func (f *Follower) learnSkew(data []byte, now moment) {
	var h head
	if unpack(data, &h) != nil {
		return
	}
	f.skew, f.learned, f.from = beyondTolerated(now.now.Sub(h.Time)), now, h
}

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

// outdatedFor is for how long a part may be known to be older than the head: about what is lost if
// a leader is killed.
const outdatedFor = 10 * time.Second

// ErrNone says that no leader has published a memory.
var ErrNone = errors.New("no memory was published")

// Memory is what the leader published last, with its times by the clock of now. The error is
// ErrNone or says why it can't be used; what operators asked for doesn't age, and is there
// also then. missing is how many of its parts are not there, can't be read, are outdated (as if they were
// current, something would seem to have lasted without a break), or have times of another clock than the head.
func (f *Follower) Memory(now time.Time) (m controller.FleetMemory, missing int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	top := f.values[headKey(f.Key)]
	if top.modified == 0 {
		return m, 0, ErrNone
	}
	var h head
	if err := errors.Join(unpack(top.data, &h), h.check()); err != nil {
		m.Operator = operator.Lost(now)
		return m, 0, fmt.Errorf("the memory in etcd is damaged: %w", err)
	}
	skew := f.skewAt(now, &h)
	leaderNow := now.Add(-skew) // Decode takes a difference for a clock that was set
	if m.Operator, err = h.operator(leaderNow); err != nil {
		m.Operator = operator.Lost(leaderNow)
	}
	m.Operator = m.Operator.Later(skew)
	m.Operator.Exemptions = m.Operator.Exemptions.From(now)
	written := h.Time.Add(skew)
	if age := now.Sub(written); age > controller.MaxMemoryAge || age < -tolerated {
		return m, 0, fmt.Errorf("the memory in etcd was written at %s, which is too long ago or in the future", written.Format(time.RFC3339))
	}
	missing = max(0, h.Missing)
	for _, i := range h.Parts {
		var p part
		v := f.values[partKey(f.Key, i)]
		if top.current-v.current > outdatedFor || unpack(v.data, &p) != nil || p.Schema != schema || differ(p.Clock, h.Clock) {
			missing++
			continue
		}
		join(&m, &p.Memory)
	}
	m.Rules.Time, m.Mail.Sent = h.Judged, h.Mail
	m.Rules = m.Rules.Shifted(skew).At(now) // measured by the monotonic clock from here on
	m.Rules.Resumed = true
	return m, missing, nil // a hold says that what operators asked for was lost
}

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
