package top

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// serve serves a feed on a socket until it is stopped.
func serve(t *testing.T, path string, feed *live.Feed) (stop func()) {
	listener := proctest.Try(socket.Listen(t.Context(), path)).OK(t)
	_, stop = socket.Serve(listener, live.NewHandler(feed))
	return stop
}

func cycle(run string, number int) *controller.Round {
	host := snapshot.Host{Name: "a", Snapshot: &snapshot.Snapshot{Devices: []snapshot.Device{{UUID: "GPU-1"}}}}
	return &controller.Round{Run: run, Number: number, Start: time.Now(), Cluster: snapshot.Cluster{Hosts: []snapshot.Host{host}}}
}

// until takes updates until one is as expected, and returns it with the events of all.
func until(t *testing.T, next Next, ok func(Update, error) bool) (Update, []live.FleetEvent) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var events []live.FleetEvent
	for {
		u, err := next(ctx)
		require.NoError(t, ctx.Err())
		events = append(events, u.Events...)
		if ok(u, err) {
			return u, events
		}
	}
}

func TestFollowAControllerThatGoesAndComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	feed := live.NewFeed(live.Options{Now: time.Now})
	feed.Consume(cycle("r", 1).AtEnd(), nil)
	stop := serve(t, path, feed)
	client := live.NewClient(path)
	defer client.Close()
	next := Follow(client)
	u, _ := until(t, next, func(_ Update, err error) bool { return err == nil })
	require.Equal(t, 1, u.Fleet.Cycle)
	require.Equal(t, "controller", u.Origin)
	feed.Consume(cycle("r", 2), []enforce.Event{{Kind: enforce.EventHostLost, Host: "b"}})
	_, events := until(t, next, func(u Update, _ error) bool { return u.Fleet != nil && u.Fleet.Cycle == 2 && len(u.Events) == 1 })
	require.Len(t, events, 1)

	stop()
	_, _ = until(t, next, func(_ Update, err error) bool { return err != nil })
	feed.Consume(cycle("r", 3), []enforce.Event{{Kind: enforce.EventHostBack, Host: "b"}})
	stop = serve(t, path, feed)
	_, events = until(t, next, func(u Update, _ error) bool { return u.Fleet != nil && u.Fleet.Cycle == 3 && len(u.Events) > 0 })
	require.Equal(t, uint64(2), events[0].Number, "it goes on after the last event")
	require.Len(t, events, 1)

	stop()
	other := live.NewFeed(live.Options{Now: time.Now})
	other.Consume(cycle("other", 1), []enforce.Event{{Kind: enforce.EventHostLost, Host: "b"}})
	stop = serve(t, path, other)
	defer stop()
	_, events = until(t, next, func(u Update, _ error) bool { return u.Fleet != nil && u.Fleet.Run == "other" && len(u.Events) > 0 })
	require.Equal(t, uint64(1), events[len(events)-1].Number, "another controller counts from 1")
}

func TestFollowEndsAtOnce(t *testing.T) {
	next := Follow(live.NewClient(filepath.Join(t.TempDir(), "none")))
	require.ErrorContains(t, proctest.Try(next(t.Context())).Err, "the controller doesn't answer (dial unix ")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, proctest.Try(next(ctx)).Err, context.Canceled)
}

func TestOfFeed(t *testing.T) {
	feed := live.NewFeed(live.Options{Now: time.Now})
	next, stop := OfFeed(feed, "own looks")
	defer stop()
	feed.Consume(cycle("r", 1), []enforce.Event{{Kind: enforce.EventHostLost, Host: "b", Err: errors.New("gone")}})
	u, events := until(t, next, func(u Update, _ error) bool { return u.Fleet.Cycle == 1 })
	require.Equal(t, "own looks", u.Origin)
	require.Len(t, events, 1)
	feed.Consume(cycle("r", 2).AtEnd(), nil)
	_, events = until(t, next, func(u Update, _ error) bool { return u.Fleet.Cycle == 2 })
	require.Empty(t, events, "each event comes once")
}

// list has updates and errors; then the context ends.
type list struct {
	items  []any
	cancel context.CancelFunc
}

func (l *list) Next(ctx context.Context) (Update, error) {
	if len(l.items) == 0 {
		l.cancel()
		return Update{}, ctx.Err()
	}
	item := l.items[0]
	l.items = l.items[1:]
	if err, failed := item.(error); failed {
		return Update{}, err
	}
	return Update{Fleet: item.(*live.FleetState)}, nil
}

func plainLines(t *testing.T, options Options, cycles int, items ...any) ([]string, *live.FleetState, error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	options.Next, options.Now = (&list{items, cancel}).Next, func() time.Time { return noon }
	var out bytes.Buffer
	fleet, err := Plain(ctx, &out, options, cycles)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	return lines, fleet, err
}

func inCycle(n int) *live.FleetState {
	f := sample()
	f.Cycle = n
	return f
}

func TestPlain(t *testing.T) {
	later, away := inCycle(43), errors.New("the controller doesn't answer")
	later.Hosts[2].GPUs = later.Hosts[2].GPUs[:1]
	later.Hosts = later.Hosts[:4]
	lines, fleet, err := plainLines(t, Options{}, 0, inCycle(0), inCycle(41), inCycle(42), away, away, later)
	require.NoError(t, err)
	require.Equal(t, 43, fleet.Cycle)
	at := "2026-11-20T12:00:00Z "
	require.Equal(t, []string{
		at + "gpu-1: 3 of 8 GPUs free, 1 attached, 1 idle, 2 busy, 1 unknown; memory ?/640 GiB; utilization ?; users alice bob carol",
		at + "gpu-2: 0 of 2 GPUs free, 2 busy; memory 72.0/160 GiB; utilization 97%; users bob dave; findings: Process 4011 is not running in a GPU environment of user dave: python train.py",
		at + "gpu-3: 2 of 2 GPUs free; memory 0.0/160 GiB; utilization 0%",
		at + "gpu-4: failed (unreachable): dial tcp 10.0.0.4:22: connect: no route to host; it answered 5m ago",
		at + "gpu-5: failed (): ; it has never answered",
		at + "no new data: the controller doesn't answer; the last data are 2s old",
		at + "new data again",
		at + "gpu-3: 1 of 1 GPUs free; memory 0.0/80 GiB; utilization 0%",
		at + "gpu-5: not shown any more",
	}, lines)
}

// TestPlainSaysAHold: what holds for all hosts is said when it begins and when it ends.
func TestPlainSaysAHold(t *testing.T) {
	held := inCycle(41)
	held.Hold = &operator.OnHold{By: "root", Reason: "a demo"}
	lines, _, err := plainLines(t, Options{}, 0, held, held, inCycle(42))
	require.NoError(t, err)
	var said []string
	for _, line := range lines {
		if strings.Contains(line, "a demo") {
			said = append(said, line)
		}
	}
	require.Len(t, said, 2)
	require.Equal(t, strings.Replace(said[0], "Z ", "Z over: ", 1), said[1])
}

// TestPlainSaysWhoWaits: once for each change of who that is, and not each minute.
func TestPlainSaysWhoWaits(t *testing.T) {
	f, later := inCycle(41), inCycle(42)
	for i, f := range []*live.FleetState{f, later} {
		f.Hosts = f.Hosts[2:3]
		f.Hosts[0].Waiting = &live.Waiting{Commands: 1, GPUs: 2, People: []live.WaitingPerson{{User: "erin", GPUs: 2, Seconds: int64(60 * i)}}}
		f.Hosts[0].Reservations = []live.Reservation{{User: "bob", GPUs: 2, From: noon.Add(3 * time.Hour), Until: noon.Add(50 * time.Hour)}}
	}
	lines, _, err := plainLines(t, Options{}, 0, f, later)
	require.NoError(t, err)
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "; erin waits for 2 GPUs; 2 GPUs reserved by bob from ")
}

func TestPlainEnds(t *testing.T) {
	lines, fleet, err := plainLines(t, Options{Filter: proctest.Try(ParseFilter("host=gpu-3")).OK(t)}, 1, inCycle(0), inCycle(41), inCycle(42))
	require.NoError(t, err)
	require.Equal(t, 41, fleet.Cycle)
	require.Len(t, lines, 1)
	_, fleet, _ = plainLines(t, Options{Hosts: map[snapshot.Hostname]bool{"gpu-3": true}}, 2, inCycle(41), inCycle(41), inCycle(42), inCycle(43))
	require.Equal(t, 42, fleet.Cycle)
	_, _, err = plainLines(t, Options{}, 1, errors.New("none"))
	require.ErrorContains(t, err, "none")
}

func TestPlainHostileTexts(t *testing.T) {
	for _, s := range hostileTexts {
		lines, _, err := plainLines(t, Options{}, 0, hostile(s))
		require.NoError(t, err)
		require.Len(t, lines, 6, "an alert, and five hosts")
		for _, line := range lines {
			require.NotContains(t, line, "\x1b")
			require.False(t, strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }), line)
		}
	}
}
