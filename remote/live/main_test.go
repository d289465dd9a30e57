package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// serve serves on a socket, which it returns.
func serve(t *testing.T, handler http.Handler) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	listener := proctest.Try(socket.Listen(t.Context(), path)).OK(t)
	_, stop := socket.Serve(listener, handler)
	t.Cleanup(stop)
	return path
}

func cycle(number int) *controller.Round {
	host := snapshot.Host{Name: "a", Snapshot: &snapshot.Snapshot{Devices: []snapshot.Device{{UUID: "GPU-1", Name: "Tesla"}}}}
	return &controller.Round{Run: "r", Number: number, Start: time.Now(), Cluster: snapshot.Cluster{Hosts: []snapshot.Host{host}}}
}

func TestClient(t *testing.T) {
	feed := live.NewFeed(live.Options{Now: time.Now})
	client := live.NewClient(serve(t, live.NewHandler(feed)))
	defer client.Close()
	require.Zero(t, proctest.Try(client.Fleet(t.Context())).OK(t).Cycle, "there was no cycle yet")
	feed.Consume(cycle(1), []enforce.Event{{Kind: enforce.EventHostLost, Host: "b", Err: errors.New("gone")}})

	fleet := proctest.Try(client.Fleet(t.Context())).OK(t)
	require.Equal(t, feed.Fleet().Hosts[0].GPUs, fleet.Hosts[0].GPUs)
	require.Same(t, fleet, proctest.Try(client.Fleet(t.Context())).OK(t), "nothing has changed")
	next := cycle(2)
	next.Cluster.Hosts = append([]snapshot.Host{{Name: "b", Err: errors.New("gone")}}, cycle(1).Cluster.Hosts...)
	feed.Consume(next.AtEnd(), nil)
	later := proctest.Try(client.Fleet(t.Context())).OK(t)
	requireEqual(t, feed.Fleet(), later)
	third := *next
	third.Start = third.Start.Add(time.Minute)
	feed.Consume(third.AtEnd(), nil)
	last := proctest.Try(client.Fleet(t.Context())).OK(t)
	requireEqual(t, feed.Fleet(), last)
	events := proctest.Try(client.Events(t.Context(), 0)).OK(t)
	require.Len(t, events.Events, 1)
	require.Equal(t, live.EventsDocument{Schema: "genv.live.events/1", Run: "r", Last: 1, Events: events.Events}, events)
}

// requireEqual: a viewer has the state that the controller has.
func requireEqual(t *testing.T, want, got *live.FleetState) {
	t.Helper()
	require.JSONEq(t, string(proctest.Try(json.Marshal(want)).OK(t)), string(proctest.Try(json.Marshal(got)).OK(t)))
}

// A server waits for half a second after a request that was too long.
func TestMain(m *testing.M) {
	if path := os.Getenv(sendTo); path != "" {
		if _, err := live.SendAction(context.Background(), path, hold); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
