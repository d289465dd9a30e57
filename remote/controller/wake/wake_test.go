package wake

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ringing is hosts that wake when somebody rings.
type ringing struct {
	mu     sync.Mutex
	bells  map[string]chan error // an error is why a wait fails
	asked  map[string]int
	waits  map[string]int
	frozen map[string]bool // snapshots of it never come
}

func newRinging(names ...string) (*ringing, []remote.Host) {
	r := &ringing{bells: map[string]chan error{}, asked: map[string]int{}, waits: map[string]int{}, frozen: map[string]bool{}}
	var hosts []remote.Host
	for _, name := range names {
		r.bells[name] = make(chan error)
		hosts = append(hosts, remote.Host{Name: name})
	}
	return r, hosts
}

func (r *ringing) Await(ctx context.Context, h remote.Host, done func(bool, error)) {
	r.mu.Lock()
	r.waits[h.Name]++
	r.mu.Unlock()
	go func() { done(r.wait(ctx, h)) }()
}

func (r *ringing) wait(ctx context.Context, h remote.Host) (bool, error) {
	select {
	case err := <-r.bells[h.Name]:
		return err == nil, err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

func (r *ringing) Snapshot(ctx context.Context, h remote.Host) (*snapshot.Snapshot, error) {
	r.mu.Lock()
	r.asked[h.Name]++
	frozen, number := r.frozen[h.Name], r.asked[h.Name]
	r.mu.Unlock()
	if frozen {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return &snapshot.Snapshot{BootID: fmt.Sprint(number)}, nil
}

func (r *ringing) waited(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waits[name]
}

// next is the next looks, by host and the number of the snapshot.
func next(w *Watch) map[string]string {
	looks := map[string]string{}
	select {
	case list := <-w.Looks():
		for _, l := range list {
			looks[l.Host.Name] = l.Snapshot.BootID
		}
	case <-time.After(time.Minute):
	}
	return looks
}

func TestLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hosts := newRinging("a", "b", "c")
		w := Start(r)
		defer w.Close()
		require.Empty(t, next(w))
		w.Watch(hosts)
		r.bells["a"] <- nil
		require.Equal(t, map[string]string{"a": "1"}, next(w))

		// Looks that are not taken are kept, the last one of each host.
		for range 3 {
			r.bells["a"] <- nil
			time.Sleep(time.Second)
		}
		r.bells["b"] <- nil
		synctest.Wait()
		require.Equal(t, map[string]string{"a": "4", "b": "1"}, next(w))

		// A host of which no snapshot comes delays no other.
		r.mu.Lock()
		r.frozen["a"] = true
		r.mu.Unlock()
		time.Sleep(time.Second)
		r.bells["a"] <- nil
		r.bells["c"] <- nil
		require.Equal(t, map[string]string{"c": "1"}, next(w))

		// A host that can't be waited for is tried again after the next tick.
		time.Sleep(time.Second)
		r.bells["b"] <- errors.New("no events")
		time.Sleep(time.Hour)
		waits := r.waited("b")
		w.Watch(hosts)
		synctest.Wait()
		require.Equal(t, waits+1, r.waited("b"))

		// Hosts that are not listed any more are not waited for.
		w.Watch(hosts[2:])
		synctest.Wait()
		select {
		case r.bells["b"] <- nil:
			require.Fail(t, "it waits")
		default:
		}
	})
}

// TestAHostWithoutEvents: it is tried again after many ticks, when its genv may be another.
func TestAHostWithoutEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hosts := newRinging("a", "b")
		w := Start(r)
		defer w.Close()
		w.Watch(hosts)
		r.bells["a"] <- fmt.Errorf("a: %w", agent.ErrNoEvents)
		r.bells["b"] <- errors.New("not connected")
		time.Sleep(time.Second)
		for range restWithoutEvents - 1 {
			w.Watch(hosts)
			synctest.Wait()
			require.Equal(t, 1, r.waited("a"))
			require.Equal(t, 2, r.waited("b"))
		}
		w.Watch(hosts)
		time.Sleep(time.Second)
		require.Equal(t, 2, r.waited("a"))
		r.bells["a"] <- nil
		require.Equal(t, map[string]string{"a": "1"}, next(w))
		r.bells["a"] <- errors.New("cut off")
		time.Sleep(time.Second)
		w.Watch(hosts)
		time.Sleep(time.Second)
		require.Equal(t, 4, r.waited("a"), "at once: it had events")
	})
}

func TestNoWatch(t *testing.T) {
	var w *Watch
	require.Nil(t, w.Looks())
	w.Close()
}

func TestHowOftenAHostIsAsked(t *testing.T) {
	for name, row := range map[string]struct {
		changed bool
		minute  int // times in the first minute,
		hour    int // and in an hour
	}{"while it changes": {true, 600, 36000}, "while nothing changes": {false, 170, 7250}} {
		t.Run(name, func(t *testing.T) {
			begun := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
			now, p, asked := begun, newPacing(begun), 0
			for ; now.Sub(begun) < time.Hour; asked++ {
				if now.Sub(begun) < time.Minute {
					require.LessOrEqual(t, asked, row.minute)
				}
				for d := p.before(now); d > 0; d = p.before(now) {
					now = now.Add(d)
				}
				p.asked(now, row.changed, 0)
			}
			require.InDelta(t, row.hour, asked, 10)
		})
	}
	p := newPacing(time.Time{}.Add(time.Hour))
	require.Zero(t, p.before(time.Time{}.Add(time.Hour)), "the first time at once")
}

// manyProcesses is a snapshot that takes the controller's time.
func manyProcesses(n int) *snapshot.Snapshot {
	return &snapshot.Snapshot{Processes: make([]snapshot.Process, n)}
}

func TestALargeHostIsAskedLessOften(t *testing.T) {
	begun := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for n, want := range map[int]time.Duration{0: floor, 400: floor, 4000: 800 * time.Millisecond, 65536: 13107200 * time.Microsecond} {
		p := newPacing(begun)
		p.asked(begun, true, entries(manyProcesses(n)))
		require.Equal(t, want, p.before(begun), n)
	}
	s := &snapshot.Snapshot{
		Environments: []snapshot.Environment{{PIDs: []snapshot.PID{1, 2}, KernelIDs: []string{"k"}}},
		Devices:      []snapshot.Device{{Attachments: make([]snapshot.Attachment, 3)}},
	}
	require.Equal(t, 8, entries(s))
	s.Processes = []snapshot.Process{{Command: "python3 train.py", Usage: make([]snapshot.DeviceUsage, 8)}}
	require.Equal(t, 9, entries(s), "an ordinary process is one")
	s.Processes[0] = snapshot.Process{Command: strings.Repeat("x", 4096), Usage: make([]snapshot.DeviceUsage, 1024)}
	require.Equal(t, 9+4+64, entries(s))
	require.Zero(t, entries(nil), "a look that failed")
}

// A host that makes up processes, other ones each time, keeps no other host waiting.
func TestHostsThatAreTooLargeAreForFullCycles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hosts := newRinging("a", "b")
		w := Start(large{r})
		defer w.Close()
		w.Watch(hosts)
		for range 3 {
			select {
			case r.bells["a"] <- nil:
			case <-time.After(time.Minute):
			}
			time.Sleep(time.Minute)
		}
		r.bells["b"] <- nil
		require.Equal(t, map[string]string{"b": "1"}, next(w))
		require.Equal(t, 1, r.askedOf("a"))

		w.Watch(hosts) // after a tick
		time.Sleep(time.Minute)
		r.bells["a"] <- nil
		time.Sleep(time.Minute)
		require.Equal(t, 2, r.askedOf("a"))
	})
}

// large makes the snapshots of host a too large.
type large struct{ *ringing }

func (l large) Snapshot(ctx context.Context, h remote.Host) (*snapshot.Snapshot, error) {
	s, err := l.ringing.Snapshot(ctx, h)
	if h.Name == "a" {
		s = manyProcesses(maxEntries + 1)
	}
	return s, err
}

func (r *ringing) askedOf(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[name]
}

func TestSpread(t *testing.T) {
	for name, row := range map[string]struct {
		hosts    int
		interval time.Duration
		want     time.Duration
	}{
		"none":                         {0, 10 * time.Second, 0},
		"one is not kept waiting":      {1, 10 * time.Second, 0},
		"a few":                        {2, 10 * time.Second, 25 * time.Millisecond},
		"a hundred":                    {100, 10 * time.Second, 25 * time.Millisecond},
		"within a part of an interval": {1000, 10 * time.Second, 2500 * time.Microsecond},
		"and of a short one":           {100, 5 * time.Second, 12500 * time.Microsecond},
		"at most some seconds":         {10000, time.Hour, 500 * time.Microsecond},
		"not at short intervals":       {100, time.Second, 0},
		"nor once":                     {100, 0, 0},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, row.want, Spread(row.hosts, row.interval)) })
	}
}

func TestListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none *Watch
		require.False(t, none.Listens("a"))
		r, hosts := newRinging("a", "b")
		w := Start(r)
		defer w.Close()
		w.Watch(hosts)
		synctest.Wait()
		require.False(t, w.Listens("a"), "it is not known whether it will be heard")
		require.False(t, w.Listens("c"))

		r.bells["a"] <- nil
		next(w)
		synctest.Wait()
		require.True(t, w.Listens("a"))
		require.False(t, w.Listens("b"))

		// It woke, and is asked after a pause.
		r.bells["a"] <- nil
		synctest.Wait()
		require.False(t, w.Listens("a"))
		next(w)
		synctest.Wait()
		require.True(t, w.Listens("a"))

		// Its events end, until it was heard again.
		r.bells["a"] <- errors.New("connection lost")
		synctest.Wait()
		require.False(t, w.Listens("a"))
		time.Sleep(time.Minute)
		w.Watch(hosts)
		synctest.Wait()
		require.False(t, w.Listens("a"))
		r.bells["a"] <- nil
		next(w)
		synctest.Wait()
		require.True(t, w.Listens("a"))

		time.Sleep(time.Second)
		require.True(t, w.Listens("b"), "it would have said if it couldn't")

		w.Watch(hosts[1:])
		require.False(t, w.Listens("a"))
	})
}
