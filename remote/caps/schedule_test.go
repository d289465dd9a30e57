package caps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/snapshot"
)

// shelf is a Store in memory. With a Rand it fails at random: a write may have been done all the same.
type shelf struct {
	*rand.Rand
	revision uint64
	entries  map[string]etcd.Entry
}

func (s *shelf) set(key string, value []byte) uint64 {
	s.revision++
	e := s.entries[key]
	if e.Created == 0 {
		e.Created = s.revision
	}
	e.Key, e.Value, e.Modified = key, value, s.revision
	s.entries[key] = e
	return e.Created
}

func (s *shelf) fails() error {
	if s.Rand != nil && s.IntN(20) == 0 {
		return context.DeadlineExceeded
	}
	return nil
}

func (s *shelf) Get(_ context.Context, key string) (*etcd.Entry, error) {
	e, ok := s.entries[key]
	if !ok {
		return nil, s.fails()
	}
	return &e, s.fails()
}

func (s *shelf) GetAll(_ context.Context, keys ...string) ([]*etcd.Entry, error) {
	entries := make([]*etcd.Entry, len(keys))
	for i, key := range keys {
		if e, ok := s.entries[key]; ok {
			entries[i] = &e
		}
	}
	if len(keys) > maxKeys {
		return nil, errors.New("too many operations in txn request")
	}
	return entries, s.fails()
}

func (s *shelf) Keys(_ context.Context, prefix string) (list []etcd.Entry, err error) {
	for key, e := range s.entries {
		if strings.HasPrefix(key, prefix) {
			list = append(list, etcd.Entry{Key: key, Created: e.Created, Modified: e.Modified})
		}
	}
	return list, s.fails()
}

func (s *shelf) Write(_ context.Context, guard string, created uint64, entries ...etcd.Entry) error {
	if err := s.fails(); err != nil && s.IntN(2) == 0 {
		return err
	}
	if len(entries) > maxKeys {
		return errors.New("too many operations in txn request")
	}
	if s.entries[guard].Created != created {
		return cmp.Or(s.fails(), etcd.ErrConflict)
	}
	for _, e := range entries {
		s.set(e.Key, e.Value)
	}
	return s.fails()
}

// schedule is a fleet of three shards in which everything happens at random times.
type schedule struct {
	*testing.T
	*shelf
	limit   int
	now     time.Duration
	shards  []*simulated
	judges  []*Judge
	judging int
	epochs  []uint64 // of the judges
	taken   int      // by caps
	moving  bool     // alice attaches nothing more, but moves something now and then
}

// simulated is a shard with its leader.
type simulated struct {
	number  int
	attach  map[snapshot.DeviceIndex]snapshot.Date // of alice, on the one host
	member  *Member
	epoch   uint64
	memory  enforce.Memory
	reports []underWay
}

// underWay is a report that its host carries out some cycles later, or not at all.
type underWay struct {
	enforce.HostReport
	cycles int
	lost   bool
}

// capped caps everybody at a number of devices.
type capped int

func (c capped) Settings(enforce.Query) *enforce.Settings {
	limit := int(c)
	return &enforce.Settings{MaxDevices: &limit}
}
func (capped) Exempt(enforce.Subject) (string, bool) { return "", false }
func (capped) Fleet() enforce.Fleet                  { return enforce.Fleet{} }

func guardOf(shard int) string { return election.LeaderKey(fmt.Sprintf("/k/shards/%02d", shard)) }

func newSchedule(t *testing.T, seed uint64) *schedule {
	random := rand.New(rand.NewPCG(seed, 16))
	s := &schedule{T: t, shelf: &shelf{Rand: random, entries: make(map[string]etcd.Entry)}, limit: 3 + random.IntN(3)}
	clock := func() time.Duration { return s.now }
	for i := range 3 {
		shard := &simulated{number: i, attach: make(map[snapshot.DeviceIndex]snapshot.Date)}
		s.shards = append(s.shards, shard)
		s.lead(shard)
	}
	for i := range 2 {
		s.epochs = append(s.epochs, 0)
		s.judges = append(s.judges, NewJudge(JudgeOptions{
			Store: s.shelf, Key: "/k", Shards: 3, Guard: guardOf, Clock: clock, Hosts: func(int) int { return 1 },
			Rules: func() holdings.Rules { return enforce.CapRules(capped(s.limit), time.Time{}) },
			Epoch: func() uint64 {
				if s.judging != i {
					return 0
				}
				return s.epochs[i]
			},
		}))
	}
	s.elect()
	return s
}

// lead has another controller lead a shard, which knows what the one before wrote down. What
// hosts were told by then is done by the time of its first cycle.
func (s *schedule) lead(shard *simulated) {
	for _, r := range shard.reports {
		s.carryOut(shard, r)
	}
	shard.reports, shard.memory.UnderWay = nil, nil
	delete(s.entries, guardOf(shard.number))
	epoch := s.set(guardOf(shard.number), nil)
	shard.epoch = epoch
	shard.member = NewMember(MemberOptions{
		Store: s.shelf, Key: "/k", Number: shard.number, Guard: guardOf(shard.number), Every: time.Second,
		Epoch: func() uint64 { return epoch }, Clock: func() time.Duration { return s.now },
		Order: func() map[snapshot.Hostname]int { return nil },
	})
}

// elect has the other controller judge. The one before doesn't know yet, but may not write.
func (s *schedule) elect() {
	guard := election.LeaderKey(JudgeKey("/k"))
	delete(s.entries, guard)
	s.judging = 1 - s.judging
	s.epochs[s.judging] = s.set(guard, nil)
}

// cycle judges a shard, and has its host begin what is to be done.
func (s *schedule) cycle(shard *simulated) {
	shard.reports = slices.DeleteFunc(shard.reports, func(r underWay) bool {
		if r.cycles == 0 {
			s.carryOut(shard, r)
		}
		return r.cycles == 0
	})
	shard.memory.UnderWay = nil
	for i := range shard.reports {
		shard.reports[i].cycles--
		shard.memory.UnderWay = append(shard.memory.UnderWay, shard.reports[i].HostReport)
	}
	name := snapshot.Hostname(fmt.Sprintf("h%d", shard.number))
	h := &snapshot.Snapshot{Environments: []snapshot.Environment{{EID: "1", UID: 1001, Username: "alice"}}}
	for index := range snapshot.DeviceIndex(8) {
		d := snapshot.Device{Index: index}
		if at, attached := shard.attach[index]; attached {
			d.Attachments = []snapshot.Attachment{{EID: "1", Time: at}}
		}
		h.Devices = append(h.Devices, d)
	}
	cluster := snapshot.Cluster{Hosts: []snapshot.Host{{Name: name, Snapshot: h}}}
	plan, next, _, held := enforce.JudgeShard(capped(s.limit), cluster, shard.memory, time.Time{}, shard.member.Shard())
	shard.memory = next
	shard.member.Publish(held)
	for _, r := range plan.Reports {
		shard.reports = append(shard.reports, underWay{r, s.IntN(3), s.IntN(9) == 0})
	}
}

// carryOut detaches what a report says. Without anything given back, nothing may go that
// isn't over the cap.
func (s *schedule) carryOut(shard *simulated, r underWay) {
	if r.lost {
		return
	}
	for _, d := range r.Report.Detach {
		if _, attached := shard.attach[d.Device]; attached {
			s.taken++
			delete(shard.attach, d.Device)
		}
	}
	require.GreaterOrEqual(s, s.count(), s.limit, "more than the excess")
}

func (s *schedule) count() (n int) {
	for _, shard := range s.shards {
		n += len(shard.attach)
	}
	return n
}

// attach attaches a device, or one that is attached once more, which then is newer. There is
// at most one too many, so that anything else that is taken shows.
func (s *schedule) attach(shard *simulated, minute int) {
	index := snapshot.DeviceIndex(s.IntN(8))
	if from := s.shards[s.IntN(3)]; s.moving && s.IntN(4) == 0 && len(from.attach) > 0 {
		delete(from.attach, slices.Min(slices.Collect(maps.Keys(from.attach))))
	}
	_, again := shard.attach[index]
	if !s.moving && !again && s.count() == s.most() && len(shard.attach) > 0 {
		delete(shard.attach, slices.Min(slices.Collect(maps.Keys(shard.attach)))) // given back for this one
	}
	if !s.moving && again || s.count() < s.most() {
		shard.attach[index] = snapshot.DateOf(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC))
	}
}

// most is how many devices alice attaches.
func (s *schedule) most() int {
	if s.moving {
		return s.limit
	}
	return s.limit + 1
}

// step has one thing happen.
func (s *schedule) step(minute int) {
	s.now += time.Duration(s.IntN(200)) * time.Millisecond
	shard := s.shards[min(s.IntN(9)/4, 2)] // the last one is slow
	switch n := s.IntN(100); {
	case n < 30:
		s.cycle(shard)
	case n < 50:
		_ = shard.member.read(s.Context())
	case n < 70:
		_ = shard.member.write(s.Context())
	case n < 90:
		s.judges[s.judging].step(s.Context())
	case n < 96:
		s.attach(shard, minute)
	case s.IntN(8) > 0:
	case n < 98:
		s.lead(shard)
	default:
		s.elect()
	}
}

// TestRandomSchedules: whatever happens when, caps take no more than the excess, and all of it
// in the end.
func TestRandomSchedules(t *testing.T) {
	taken := 0
	schedules := uint64(4)
	if os.Getenv("GENV_SOAK") != "" {
		schedules = 400
	}
	for seed := range schedules {
		s := newSchedule(t, seed)
		for minute := range 800 {
			s.step(minute)
		}
		for range 40 { // now all goes well
			for _, shard := range s.shards {
				s.now += 50 * time.Millisecond
				s.cycle(shard)
				_, _ = shard.member.write(s.Context()), shard.member.read(s.Context())
				s.judges[s.judging].step(s.Context())
			}
		}
		require.LessOrEqual(t, s.count(), s.limit, "schedule %d", seed)
		taken += s.taken
	}
	require.Greater(t, taken, int(schedules), "they do take something")
	t.Log(taken, "devices were taken")
}

// TestMovesInRandomSchedules: one who is within the cap all the time loses nothing by moving something every few
// seconds. Only who moves something else before each shard has looked twice may.
func TestMovesInRandomSchedules(t *testing.T) {
	for seed := range uint64(8) {
		s := newSchedule(t, seed)
		s.moving = true
		for minute := range 800 {
			s.step(minute) // which requires it
		}
		require.Zero(t, s.taken, "schedule %d", seed)
	}
}

// TestAttachedAgainBeforeEachCycle: one who gives all devices back and takes them again before each cycle, so that
// the newest are in another shard each time, loses what is over the cap all the same.
func TestAttachedAgainBeforeEachCycle(t *testing.T) {
	for seed := range uint64(8) {
		s := newSchedule(t, seed)
		for i := range s.limit + 3 {
			s.shards[i%3].attach[snapshot.DeviceIndex(i)] = snapshot.Date{}
		}
		for minute := range 20 {
			for i, shard := range s.shards {
				s.now += 300 * time.Millisecond
				at := snapshot.DateOf(time.Date(2026, 1, 1, 0, minute, i, 0, time.UTC))
				for _, other := range s.shards {
					for index := range other.attach {
						other.attach[index] = at
					}
				}
				s.cycle(shard)
				_ = shard.member.write(s.Context())
				s.judges[s.judging].step(s.Context())
				for _, other := range s.shards {
					_ = other.member.read(s.Context())
				}
			}
		}
		require.Equal(t, s.limit, s.count(), "schedule %d", seed)
	}
}

// TestAnotherOneBeforeEachCycle: one who gives all devices back before each cycle and takes others of the same host
// instead loses what is over the cap all the same, and no more than that.
func TestAnotherOneBeforeEachCycle(t *testing.T) {
	for seed := range uint64(8) {
		s := newSchedule(t, seed)
		for i := range s.limit + 3 {
			s.shards[i%3].attach[snapshot.DeviceIndex(i)] = snapshot.Date{}
		}
		for minute := range 150 { // some reports are lost, or find it gone
			for i, shard := range s.shards {
				s.now += 300 * time.Millisecond
				at := snapshot.DateOf(time.Date(2026, 1, 1, 0, minute, i, 0, time.UTC))
				moved := make(map[snapshot.DeviceIndex]snapshot.Date)
				for index := range shard.attach {
					moved[(index+4)%8] = at
				}
				shard.attach = moved
				s.cycle(shard)
				_ = shard.member.write(s.Context())
				s.judges[s.judging].step(s.Context())
				for _, other := range s.shards {
					_ = other.member.read(s.Context())
				}
			}
		}
		require.Equal(t, s.limit, s.count(), "schedule %d", seed)
	}
}
