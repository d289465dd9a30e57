package usage_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kept is a store in memory, whose disk may be full, slow or away.
type kept struct {
	mu      sync.Mutex
	total   usage.Sums
	gaps    []usage.Gap
	mark    usage.Mark
	begun   int64
	fails   error
	unsure  bool // each entry is kept, and the answer is lost
	ids     map[string]bool
	missing error         // why it can't be opened
	slow    time.Duration // for each entry
	tidied  int
}

func (k *kept) open() (usage.Store, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids == nil {
		k.ids = make(map[string]bool)
	}
	return k, k.missing
}

func (k *kept) Add(_ context.Context, e *usage.Entry) (err error) {
	k.mu.Lock()
	slow := k.slow
	k.mu.Unlock()
	time.Sleep(slow)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fails != nil {
		return k.fails
	}
	if k.ids[e.ID] {
		return nil
	}
	if k.ids[e.ID] = true; k.unsure {
		defer func() { err = errors.New("the answer is lost") }()
	}
	if k.total == nil {
		k.total = make(usage.Sums)
		k.begun = e.Since
	}
	k.total.Merge(e.Sums)
	k.gaps, k.mark = append(k.gaps, e.Gaps...), e.Mark
	return nil
}

func (k *kept) Mark(context.Context) (usage.Mark, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mark, nil
}

func (k *kept) Report(context.Context, usage.Query) (*usage.Report, error) {
	return nil, errors.New("not here")
}

func (k *kept) Tidy(context.Context, time.Time) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tidied++
	return "", nil
}

func (k *kept) Close() error { return nil }

func (k *kept) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

func (k *kept) attached() (seconds int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.total {
		if key.Kind == usage.OfAll {
			seconds += k.total[key].Attached
		}
	}
	return seconds
}

// run is a controller with a cycle every 10 s on a host with one attached device, each of which waits for nothing.
type run struct {
	*usage.Recorder
	t       *testing.T
	number  int
	log     *said
	standby bool
}

// said is a log.
type said struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.String()
}

func start(t *testing.T, open func() (usage.Store, error), maxWaiting int) *run {
	return startWith(t, &usage.Recorder{Open: open, MaxWaiting: maxWaiting})
}

func startWith(t *testing.T, r *usage.Recorder) *run {
	log := new(said)
	r.Now, r.In, r.Log = time.Now, time.UTC, zerolog.New(log)
	r.Start()
	r.Configure(10 * time.Second)
	return &run{Recorder: r, t: t, log: log}
}

func (r *run) cycles(n int) {
	s := &snapshot.Snapshot{Devices: []snapshot.Device{{Attachments: []snapshot.Attachment{{EID: "1"}}}}, Environments: []snapshot.Environment{{EID: "1", Username: "alice"}}}
	for range n {
		r.number++
		begun := time.Now()
		round := controller.Round{Number: r.number, Standby: r.standby, Cluster: snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}}
		r.Consume(&round, nil)
		r.Consume(&round, nil) // sinks get a cycle again when a report ends
		require.Zero(r.t, time.Since(begun), "a cycle waits for nothing")
		time.Sleep(10 * time.Second)
	}
}

// cyclesSay has cycles end, and what they have written, and compares the log.
func (r *run) cyclesSay(n int, lines ...string) {
	r.t.Helper()
	r.cycles(n)
	synctest.Wait()
	r.requireSaid(lines...)
}

func (r *run) requireSaid(lines ...string) {
	r.t.Helper()
	said := r.log.String()
	require.Equal(r.t, len(lines), strings.Count(said, "\n"), said)
	for _, line := range lines {
		require.Contains(r.t, said, line)
	}
}

func TestItIsWrittenOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := new(kept)
		r := start(t, k.open, 0)
		r.cycles(6)
		synctest.Wait()
		require.Zero(t, k.attached())
		r.cycles(1)
		synctest.Wait()
		require.Equal(t, int64(60), k.attached())
		r.cycles(60)
		synctest.Wait()
		require.GreaterOrEqual(t, k.attached(), int64(600))
		r.Close()
		require.Equal(t, int64(670), k.attached(), "until the end")
		require.True(t, k.mark.Ended)
		require.Equal(t, 1, k.tidied)
		r.requireSaid()
	})
}

// A disk that is slow, full or away delays no cycle, and what waits is made up for.
func TestADiskThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{slow: 3 * time.Minute}
		r := start(t, k.open, 0)
		r.cycles(60)
		k.set(func() { k.slow, k.fails = 0, usage.ErrFull })
		r.cyclesSay(60, "can't be written: it is tried again")
		k.set(func() { k.fails = nil })
		r.cyclesSay(10, "can't be written", "is written again: nothing is missing")
		r.Close()
		require.Equal(t, int64(1300), k.attached())
		require.Empty(t, k.gaps)
	})
}

func TestAStoreThatCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{missing: errors.New("no such server")}
		r := start(t, k.open, 0)
		r.cycles(30)
		k.set(func() { k.missing = nil })
		r.cycles(10)
		r.Close()
		r.requireSaid("no such server", "nothing is missing")
		require.Equal(t, int64(400), k.attached())
		r = start(t, func() (usage.Store, error) { time.Sleep(5 * time.Second); return nil, k.fails }, 0)
		k.set(func() { k.fails = errors.New("no answer") })
		r.cycles(10)
		begun := time.Now()
		r.Close()
		require.LessOrEqual(t, time.Since(begun), time.Second, "the run ends soon all the same")
		time.Sleep(time.Minute) // until the attempt is over
	})
}

// What waits is bounded: the oldest hours are dropped, said, and noted as missing.
func TestTooMuchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{fails: errors.New("disk quota exceeded")}
		r := start(t, k.open, 12) // four an hour
		r.cycles(5 * 360)
		k.set(func() { k.fails = nil })
		r.cycles(10)
		r.Close()
		missing := int64(0)
		for _, gap := range k.gaps {
			missing += gap.Until - gap.Since
		}
		require.Positive(t, missing)
		require.Equal(t, int64(5*3600+100), k.attached()+missing)
		require.Contains(t, r.log.String(), "some hours are missing")
	})
}

// An answer that is lost is asked for again, and counts once.
func TestUnsure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{unsure: true}
		r := start(t, k.open, 0)
		r.cyclesSay(100, "the answer is lost")
		k.set(func() { k.unsure = false })
		r.cycles(10)
		r.Close()
		r.requireSaid("the answer is lost", "nothing is missing")
		require.Equal(t, int64(1100), k.attached())
	})
}

// Of several controllers, the one that leads counts. Leaders that follow each other count each
// second at most once, and the time without one is a gap.
func TestLeadersFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := new(kept)
		first := startWith(t, &usage.Recorder{Open: k.open, Shared: true})
		first.cycles(10)
		second := startWith(t, &usage.Recorder{Open: k.open, Shared: true})
		second.standby = true
		second.cycles(3)
		synctest.Wait()
		require.EqualValues(t, 60, k.attached(), "a standby writes nothing")
		first.cycles(3)
		first.standby, second.standby = true, false
		first.cycles(1)
		synctest.Wait()
		require.True(t, k.mark.Ended)
		require.EqualValues(t, 150, k.attached(), "until it led last")
		second.cycles(12)
		first.cycles(30)
		second.standby, first.standby = true, false
		second.cycles(1)
		first.cycles(7)
		first.Close()
		second.Close()
		require.EqualValues(t, 150+110+70, k.attached())
		require.Len(t, k.gaps, 2)
		require.EqualValues(t, 20, k.gaps[0].Until-k.gaps[0].Since)
		require.EqualValues(t, 320, k.gaps[1].Until-k.gaps[1].Since)
		first.requireSaid()
		second.requireSaid()
	})
}

// A leader that was replaced while the store is away writes what it counted when it is back.
func TestAStandbyMakesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{fails: errors.New("no such server")}
		r := startWith(t, &usage.Recorder{Open: k.open, Shared: true})
		r.cycles(10)
		r.standby = true
		r.cycles(20)
		k.set(func() { k.fails = nil })
		r.cycles(10)
		synctest.Wait()
		require.EqualValues(t, 90, k.attached())
		require.True(t, k.mark.Ended)
		r.Consume(&controller.Round{Standby: true}, []enforce.Event{{ // after a long grace
			Kind: enforce.EventOutcome, Order: &order.Order{Terminate: []order.Termination{{Process: snapshot.Process{PID: 1}}}},
			Outcomes: []order.Outcome{{PID: 1, Status: order.StatusTerminated}},
		}})
		r.Close()
		require.EqualValues(t, 90, k.attached())
		require.Contains(t, slices.Collect(maps.Values(k.total)), usage.Sum{Amounts: usage.Amounts{Terminated: 1}})
	})
}

// A run that follows one that was killed says what is missing; one that follows an orderly end
// notes the time between, and says nothing.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := new(kept)
		first := start(t, k.open, 0)
		first.cycles(8)
		synctest.Wait()
		killed := k.mark
		first.Close()
		k.mark = killed // as if it had not been closed
		time.Sleep(time.Hour)
		second := start(t, k.open, 0)
		begun := time.Now().Unix()
		second.cycles(8)
		second.Close()
		second.requireSaid("the last run ended without saving what it had counted last")
		require.Equal(t, []usage.Gap{{Since: killed.Until, Until: begun}}, k.gaps)
		time.Sleep(time.Hour)
		third := start(t, k.open, 0)
		third.cycles(8)
		third.Close()
		third.requireSaid()
		require.Len(t, k.gaps, 2)

		time.Sleep(time.Hour)
		fourth := start(t, k.open, 0)
		fourth.cycles(1)
		synctest.Wait()
		killed = k.mark // in its first minute
		fourth.Close()
		k.mark = killed
		fifth := start(t, k.open, 0)
		fifth.cycles(1)
		fifth.Close()
		fifth.requireSaid("the last run ended without saving what it had counted last")
	})
}

func TestNothingSeen(t *testing.T) {
	k := new(kept)
	r := start(t, k.open, 0)
	r.Consume(&controller.Round{Number: 1, Stopped: true}, nil)
	r.Close()
	require.Zero(t, k.mark)
}
