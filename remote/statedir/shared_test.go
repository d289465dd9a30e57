package statedir_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const documentKey = "/lab/memory/document"

// cluster is an etcd in memory.
type cluster struct {
	revision uint64
	epoch    uint64 // of the key of the leader
	entries  map[string]etcd.KeyValue
	fails    error
	takes    time.Duration // each answer
	silent   int           // how many reads have no answer
	stalls   bool          // writes have no answer, and
	late     func() error  // carries the last one of them out
}

func newCluster() *cluster { return &cluster{epoch: 7, entries: make(map[string]etcd.KeyValue)} }

func (s *cluster) wait(ctx context.Context) error {
	select {
	case <-time.After(s.takes):
		return s.fails
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *cluster) Get(ctx context.Context, key string) (*etcd.KeyValue, error) {
	if s.silent > 0 {
		s.silent--
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	if e, ok := s.entries[key]; ok {
		return &e, nil
	}
	return nil, nil //nolint:nilnil // as etcd.Gateway does
}

func (s *cluster) PutAfter(ctx context.Context, guard string, created uint64, key string, modified uint64, value []byte) (uint64, error) {
	if s.stalls {
		s.late = func() error { return s.put(guard, created, key, modified, value) }
		return 0, context.DeadlineExceeded
	}
	if err := s.wait(ctx); err != nil {
		return 0, err
	}
	err := s.put(guard, created, key, modified, value)
	return s.revision, err
}

func (s *cluster) put(guard string, created uint64, key string, modified uint64, value []byte) error {
	if guard != election.LeaderKey("/lab") || created != s.epoch || s.entries[key].Modified != modified {
		return etcd.ErrConflict
	}
	s.revision++
	s.entries[key] = etcd.KeyValue{Key: []byte(key), Value: value, Modified: s.revision}
	return nil
}

// leader is the store of a controller in a term, at a time that the test sets.
func leader(t *testing.T, c *cluster, name string, now *time.Time) *statedir.Shared {
	t.Helper()
	return inFolder(t, c, t.TempDir(), name, now)
}

func inFolder(t *testing.T, c *cluster, dir, name string, now *time.Time) *statedir.Shared {
	t.Helper()
	folder := proctest.Try(statedir.Open(dir)).OK(t)
	t.Cleanup(func() { _ = folder.Close() })
	folder.Now = func() time.Time { return *now }
	return &statedir.Shared{Folder: folder, Cluster: c, Key: "/lab", Self: name, Epoch: c.epoch}
}

func encode(t *testing.T, m *controller.FleetMemory, now time.Time) controller.Saved {
	t.Helper()
	return proctest.Try(m.Encode(now)).OK(t)
}

// memoryOf is what a controller may know of hosts.
func memoryOf(hosts int) controller.FleetMemory {
	m := controller.FleetMemory{Rules: enforce.Memory{
		Time: noon, Findings: map[string]enforce.KnownFinding{}, Present: map[string]enforce.Presence{}, Uses: enforce.Uses{},
		IdleDetached: map[snapshot.AttachmentKey]bool{}, Stuck: map[snapshot.ProcessKey]string{}, RetryAt: map[snapshot.ProcessKey]time.Time{},
		Hosts: map[snapshot.Hostname]enforce.KnownHost{},
	}}
	m.Machines.OtherNames = map[string][]string{}
	for i := range hosts {
		host := snapshot.Hostname(fmt.Sprintf("gpu-%04d", i))
		key := fmt.Sprintf("env-devices/%s/7/100", host)
		m.Rules.Findings[key] = enforce.KnownFinding{Host: host, Decision: enforce.DecisionWait, Notified: enforce.NotifiedOfWarning}
		m.Rules.Present[key] = enforce.Presence{Since: noon.Add(-time.Minute), Cycles: 6}
		m.Rules.Uses[host] = map[enforce.UseKey]enforce.Use{{Person: "alice", Device: "0"}: {Idle: noon.Add(-time.Hour)}}
		m.Rules.IdleDetached[snapshot.AttachmentKey{Host: host, Device: "1", EID: "2"}] = true
		m.Rules.Stuck[snapshot.ProcessKey{Host: host, PID: 8, Start: 5}] = "it survived"
		m.Rules.RetryAt[snapshot.ProcessKey{Host: host, PID: 9, Start: 5}] = noon.Add(time.Minute)
		m.Rules.Hosts[host] = enforce.KnownHost{Answered: true}
		m.Machines.OtherNames[string(host)] = []string{string(host) + "-twin"}
		m.Companions = map[string]json.RawMessage{"messages": json.RawMessage(`{"users":{}}`)}
	}
	m.FormerHours = map[string]enforce.Hours{"month": {Period: noon, Seconds: map[snapshot.Username]float64{"alice": 3600.5}}}
	m.Operator.Hold = &operator.OnHold{Since: noon.Add(-time.Minute), By: "ann", Reason: "a test"}
	m.Operator.Exemptions = policy.ExemptionList{{
		Who: policy.Who{User: "alice"}, Reason: "a test", By: "ann", Created: noon.Add(-time.Minute), Until: noon.Add(time.Hour),
	}}
	return m
}

func TestTheNextLeaderKnowsAll(t *testing.T) {
	for _, hosts := range []int{0, 1, 2, 1000} {
		c, now, m := newCluster(), noon, memoryOf(hosts)
		require.NoError(t, leader(t, c, "a", &now).Save(t.Context(), encode(t, &m, noon)))
		now = noon.Add(10 * time.Second)
		got := proctest.Try(leader(t, c, "b", &now).Load(t.Context())).OK(t)
		require.True(t, got.Rules.Resumed)
		got.Rules.Resumed = false
		want := proctest.Try(json.Marshal(m)).OK(t)
		require.JSONEq(t, string(want), string(proctest.Try(json.Marshal(got)).OK(t)))
		require.Equal(t, m.Operator, got.Operator)
		require.Equal(t, m.FormerHours, got.FormerHours)
	}
}

// The leader that wrote the document last has in its folder also what etcd didn't take, and what operators asked for
// while no controller ran. Otherwise its folder is older than what etcd has.
func TestWhoWroteLast(t *testing.T) {
	for name, row := range map[string]struct {
		between, next string
		hold          bool
	}{
		"the same leader":    {"", "a", true},
		"another leader":     {"", "b", false},
		"the same, later":    {"b", "a", false},
		"another one, twice": {"b", "b", false},
	} {
		c, now, m := newCluster(), noon, memoryOf(1)
		m.Operator = operator.State{}
		dirs := map[string]string{"a": t.TempDir(), "b": t.TempDir()}
		first := inFolder(t, c, dirs["a"], "a", &now)
		require.NoError(t, first.Save(t.Context(), encode(t, &m, noon)))
		c.fails = errors.New("no answer")
		m.Operator.Hold = &operator.OnHold{Since: noon, By: "ann", Reason: "a test"}
		now = now.Add(time.Second)
		var notShared *statedir.NotSharedError
		require.ErrorAs(t, first.Save(t.Context(), encode(t, &m, now)), &notShared)
		require.NoError(t, first.Folder.Close())
		c.fails = nil
		if row.between != "" {
			c.epoch++
			now = time.Now().Add(time.Second) // later than the files
			m.Operator = operator.State{}
			between := inFolder(t, c, dirs[row.between], row.between, &now)
			_, _ = between.Load(t.Context())
			require.NoError(t, between.Save(t.Context(), encode(t, &m, now)))
			require.NoError(t, between.Folder.Close())
		}
		c.epoch++
		got := proctest.Try(inFolder(t, c, dirs[row.next], row.next, &now).Load(t.Context())).OK(t, name)
		require.Equal(t, row.hold, got.Operator.Hold != nil, name)
		require.Len(t, got.Rules.Hosts, 1, name)
	}
}

// What operators asked for doesn't age: it is there also if the rest can't be continued.
func TestAHoldDoesNotAge(t *testing.T) {
	c, now, m := newCluster(), noon, memoryOf(2)
	require.NoError(t, leader(t, c, "a", &now).Save(t.Context(), encode(t, &m, noon)))
	now = noon.Add(61 * time.Minute)
	got, err := leader(t, c, "b", &now).Load(t.Context())
	require.ErrorContains(t, err, "too long ago")
	require.Equal(t, m.Operator.Hold.Reason, got.Operator.Hold.Reason)
	require.Empty(t, got.Rules.Findings)
	require.Equal(t, m.FormerHours, got.FormerHours, "nor do GPU hours of an earlier version")

	for _, value := range []string{"", "x", "\x1f\x8b damaged"} {
		c.entries[documentKey] = etcd.KeyValue{Key: []byte(documentKey), Value: []byte(value), Modified: 99}
		got, err = leader(t, c, "b", &now).Load(t.Context())
		require.ErrorContains(t, err, "damaged", "%q", value)
		require.Contains(t, got.Operator.Hold.Reason, "can't be read")
	}
}

// A write whose answer was lost, and that arrives after a newer one, changes nothing.
func TestAWriteThatArrivesLate(t *testing.T) {
	c, now, m := newCluster(), noon, memoryOf(2)
	a := leader(t, c, "a", &now)
	require.NoError(t, a.Save(t.Context(), encode(t, &m, noon)))
	c.stalls = true
	m.Rules.Stuck = nil
	require.Error(t, a.Save(t.Context(), encode(t, &m, noon)))
	c.stalls = false
	m = memoryOf(3)
	require.NoError(t, a.Save(t.Context(), encode(t, &m, noon)))
	require.ErrorIs(t, c.late(), etcd.ErrConflict)
	require.Len(t, proctest.Try(leader(t, c, "b", &now).Load(t.Context())).OK(t).Rules.Stuck, 3)

	// One that arrives before the next write is carried out, and so is that one.
	c.stalls = true
	require.Error(t, a.Save(t.Context(), encode(t, &m, noon)))
	c.stalls = false
	require.NoError(t, c.late())
	require.NoError(t, a.Save(t.Context(), encode(t, &m, noon)))

	// One of a leader that was replaced isn't.
	c.epoch++
	require.ErrorIs(t, a.Save(t.Context(), encode(t, &m, noon)), etcd.ErrConflict)
}

// Of a memory that is too large for etcd, the next leader has what operators asked for.
func TestAMemoryThatIsTooLarge(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c, now, m := newCluster(), noon, memoryOf(200)
	text := make([]byte, 2<<20)
	for i := range text {
		text[i] = byte('!' + random.IntN(90))
	}
	m.Rules.Stuck[snapshot.ProcessKey{Host: "gpu-0001", PID: 10, Start: 5}] = string(text)
	a := leader(t, c, "a", &now)
	require.ErrorIs(t, a.Save(t.Context(), encode(t, &m, noon)), statedir.ErrTooLarge)
	got, err := leader(t, c, "b", &now).Load(t.Context())
	require.ErrorContains(t, err, "start again")
	require.Empty(t, got.Rules.Findings)
	require.NotNil(t, got.Operator.Hold)
	got = proctest.Try(a.Load(t.Context())).OK(t)
	require.Len(t, got.Rules.Findings, 200, "its folder has it")
}

// The clock of the leader before was ahead: what was a minute ago for it is so for the next one.
func TestAClockThatIsAhead(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Second, 10 * time.Minute, 2 * time.Hour} {
		c, now, m := newCluster(), noon, memoryOf(1)
		require.NoError(t, leader(t, c, "a", &now).Save(t.Context(), encode(t, &m, noon)))
		now = noon.Add(-ahead)
		got := proctest.Try(leader(t, c, "b", &now).Load(t.Context())).OK(t)
		require.WithinDuration(t, now.Add(-time.Minute), got.Rules.Present["env-devices/gpu-0000/7/100"].Since, time.Second, ahead)
		require.WithinDuration(t, now.Add(time.Hour), got.Operator.Exemptions[0].Until, time.Second, ahead)
	}
}

// The clock of the leader before was behind: what was a minute ago for it is so for the next one, which saw it lead.
// The clock of a leader that was not seen, or was seen a moment after it wrote, is taken to be right.
func TestAClockThatIsBehind(t *testing.T) {
	for _, row := range []struct{ seen, shift time.Duration }{
		{-time.Hour, 0}, {0, 0}, {10 * time.Second, 0}, {10 * time.Minute, 10 * time.Minute}, {3 * time.Hour, 3 * time.Hour},
	} {
		c, now, m := newCluster(), noon, memoryOf(1)
		require.NoError(t, leader(t, c, "a", &now).Save(t.Context(), encode(t, &m, noon)))
		now = noon.Add(max(0, row.seen) + 5*time.Second)
		b := leader(t, c, "b", &now)
		b.Followed = noon.Add(row.seen)
		got := proctest.Try(b.Load(t.Context())).OK(t)
		since := got.Rules.Present["env-devices/gpu-0000/7/100"].Since
		require.WithinDuration(t, noon.Add(row.shift-time.Minute), since, time.Second, row.seen)
	}
}

// etcd elects a controller, and then doesn't answer for a while: before it acts, the new leader knows that operators
// had everything held.
func TestAHoldThatIsReadLate(t *testing.T) {
	for silent, held := range map[int]bool{0: true, 1: true, 5: true, 1000: false} {
		synctest.Test(t, func(t *testing.T) {
			c, now, m := newCluster(), noon, memoryOf(1)
			require.NoError(t, leader(t, c, "a", &now).Save(t.Context(), encode(t, &m, noon)))
			c.silent = silent
			got, err := leader(t, c, "b", &now).Load(t.Context())
			require.Equal(t, held, got.Operator.Hold != nil, silent)
			require.Equal(t, held, err == nil, silent)
		})
	}
}

// The member of etcd that is asked first hangs: the memory is kept by the one that is asked after a second. What waits
// for it is sent after two seconds at most.
func TestASlowEtcd(t *testing.T) {
	for takes, kept := range map[time.Duration]bool{time.Millisecond: true, 1500 * time.Millisecond: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			c, now, m := newCluster(), noon, memoryOf(1)
			a := leader(t, c, "a", &now)
			require.NoError(t, a.Save(t.Context(), encode(t, &m, noon)))
			c.takes = takes
			begun := time.Now()
			err := a.Save(t.Context(), encode(t, &m, noon))
			require.Equal(t, kept, err == nil, "%s: %v", takes, err)
			require.LessOrEqual(t, time.Since(begun), 2*time.Second, takes)
			require.Len(t, proctest.Try(a.Folder.Load(t.Context())).OK(t).Rules.Hosts, 1, "it is in the folder")
		})
	}
}

// Whatever is in etcd: there is a memory or an error.
func FuzzShared(f *testing.F) {
	c, now, m := newCluster(), noon, memoryOf(1)
	saved, err := m.Encode(noon)
	if err != nil {
		f.Fatal(err)
	}
	folder, err := statedir.Open(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	defer folder.Close()
	folder.Now = func() time.Time { return now }
	store := &statedir.Shared{Folder: folder, Cluster: c, Key: "/lab", Self: "b", Epoch: 7}
	if err := (&statedir.Shared{Folder: folder, Cluster: c, Key: "/lab", Self: "a", Epoch: 7}).Save(context.Background(), saved); err != nil {
		f.Fatal(err)
	}
	f.Add(c.entries[documentKey].Value)
	f.Fuzz(func(t *testing.T, value []byte) {
		c.entries[documentKey] = etcd.KeyValue{Key: []byte(documentKey), Value: value, Modified: 1}
		got, err := store.Load(t.Context())
		require.True(t, err != nil || got.Rules.Resumed)
	})
}

// A controller whose disk somebody has filled starts again, and keeps its memory.
func TestAFullDisk(t *testing.T) {
	proctest.NeedRoot(t)
	dir := t.TempDir()
	require.NoError(t, unix.Mount("none", dir, "tmpfs", 0, "size=512k,mode=0700"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	run := func(memory string) (epoch uint64) {
		s := proctest.Try(statedir.Open(dir)).OK(t)
		defer func() { require.NoError(t, s.Close()) }()
		proctest.Try(s.ID()).OK(t)
		epoch = proctest.Try(s.NextEpoch()).OK(t)
		require.NoError(t, s.Save(t.Context(), controller.Saved{Memory: []byte(memory)}))
		return epoch
	}
	require.Equal(t, uint64(1), run(`"first"`))
	require.Error(t, os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600))
	require.Equal(t, uint64(2), run(`"second"`))
	require.Equal(t, uint64(3), run(`"third"`))
	require.Equal(t, `"third"`, proctest.ReadText(t, filepath.Join(dir, "memory.json")))
}
