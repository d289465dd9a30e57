package top

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/snapshot"
)

// serve serves a feed on a socket until it is stopped.
func serve(t *testing.T, path string, feed *live.Feed) (stop func()) {
	listener, err := socket.Listen(t.Context(), path)
	require.NoError(t, err)
	server := &http.Server{Handler: live.NewHandler(feed)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // it ends with Close
	}()
	return func() {
		_ = server.Close()
		_ = listener.Close()
		<-ended
	}
}

func cycle(run string, number int) *controller.Cycle {
	host := snapshot.Host{Name: "a", Snapshot: &snapshot.Snapshot{Devices: []snapshot.Device{{UUID: "GPU-1"}}}}
	return &controller.Cycle{Run: run, Number: number, Start: time.Now(), Cluster: snapshot.Cluster{Hosts: []snapshot.Host{host}}}
}

// until takes updates until one is as expected, and returns it with the events of all.
func until(t *testing.T, s Source, ok func(Update, error) bool) (Update, []live.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var events []live.Event
	for {
		u, err := s.Next(ctx)
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
	feed.Show(cycle("r", 1))
	stop := serve(t, path, feed)
	f := Follow(t.Context(), live.NewClient(path))
	defer f.Close()
	u, _ := until(t, f, func(_ Update, err error) bool { return err == nil })
	require.Equal(t, 1, u.Fleet.Cycle)
	require.Equal(t, "controller", u.Origin)
	feed.Consume(cycle("r", 2), []enforce.Event{{Kind: enforce.EventHostLost, Host: "b"}})
	_, events := until(t, f, func(u Update, _ error) bool { return u.Fleet != nil && u.Fleet.Cycle == 2 && len(u.Events) == 1 })
	require.Len(t, events, 1)

	stop()
	_, _ = until(t, f, func(_ Update, err error) bool { return err != nil })
	feed.Consume(cycle("r", 3), []enforce.Event{{Kind: enforce.EventHostBack, Host: "b"}})
	stop = serve(t, path, feed)
	_, events = until(t, f, func(u Update, _ error) bool { return u.Fleet != nil && u.Fleet.Cycle == 3 && len(u.Events) > 0 })
	require.Equal(t, uint64(2), events[0].Number, "it goes on after the last event")
	require.Len(t, events, 1)

	stop()
	other := live.NewFeed(live.Options{Now: time.Now})
	other.Consume(cycle("other", 1), []enforce.Event{{Kind: enforce.EventHostLost, Host: "b"}})
	stop = serve(t, path, other)
	defer stop()
	_, events = until(t, f, func(u Update, _ error) bool { return u.Fleet != nil && u.Fleet.Run == "other" && len(u.Events) > 0 })
	require.Equal(t, uint64(1), events[len(events)-1].Number, "another controller counts from 1")
}

func TestFollowEndsAtOnce(t *testing.T) {
	f := Follow(t.Context(), live.NewClient(filepath.Join(t.TempDir(), "none")))
	_, err := f.Next(t.Context())
	require.ErrorContains(t, err, "the controller doesn't answer (dial unix ")
	f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.Next(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestOfFeed(t *testing.T) {
	feed := live.NewFeed(live.Options{Now: time.Now})
	s := OfFeed(feed, "own looks")
	defer s.Close()
	feed.Consume(cycle("r", 1), []enforce.Event{{Kind: enforce.EventHostLost, Host: "b", Err: errors.New("gone")}})
	u, events := until(t, s, func(u Update, _ error) bool { return u.Fleet.Cycle == 1 })
	require.Equal(t, "own looks", u.Origin)
	require.Len(t, events, 1)
	feed.Show(cycle("r", 2))
	_, events = until(t, s, func(u Update, _ error) bool { return u.Fleet.Cycle == 2 })
	require.Empty(t, events, "each event comes once")
}
