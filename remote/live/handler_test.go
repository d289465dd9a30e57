package live_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// full is a feed after a cycle with a host, a user and a finding.
func full() *live.Feed {
	feed := live.NewFeed(live.Options{Now: time.Now})
	c := cycle(1)
	c.Cluster.Hosts[0].Snapshot.Devices[0].TotalMemory = snapshot.MiB(16160)
	c.Cluster.Hosts[0].Snapshot.Processes = []snapshot.Process{{PID: 9, Username: "a/b", Usage: []snapshot.DeviceUsage{{Index: 0}}}}
	c.Plan.Findings = []enforce.Finding{{Host: "a", User: "a/b", PID: 9, Rule: enforce.RuleNonEnvProcesses}, {Host: "other"}}
	feed.Consume(c, []enforce.Event{{Kind: enforce.EventHostLost, Host: "b"}})
	return feed
}

func ask(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestDocuments(t *testing.T) {
	h := live.NewHandler(full())
	for path, schema := range map[string]string{
		"/api/v1/fleet":            "genv.live.fleet/1",
		"/api/v1/fleet?since=x":    "genv.live.fleet/1",
		"/api/v1/fleet?since=r-x":  "genv.live.fleet/1",
		"/api/v1/gpus":             "genv.remote.gpus/1",
		"/api/v1/hosts/a":          "genv.live.host/1",
		"/api/v1/users/a%2Fb":      "genv.live.user/1",
		"/api/v1/findings":         "genv.live.findings/1",
		"/api/v1/events":           "genv.live.events/1",
		"/api/v1/events?after=100": "genv.live.events/1",
	} {
		w := ask(h, "GET", path)
		require.Equal(t, http.StatusOK, w.Code, path)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		var document struct{ Schema string }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &document), path)
		require.Equal(t, schema, document.Schema, path)
		require.NotContains(t, w.Body.String(), ":null", path)
		head := ask(h, "HEAD", path)
		require.Empty(t, head.Body.String(), path)
		require.Equal(t, w.Header().Get("ETag"), head.Header().Get("ETag"))
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
			w := ask(h, method, path)
			require.Equal(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
			require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
		}
	}
	for path, code := range map[string]int{
		"/": 404, "/api/v1/": 404, "/api/v1/hosts/none": 404, "/api/v1/users/none": 404, "/api/v1/hosts/": 404, "/api/v1/actions": 404,
		"/api/v1/events?after=x": 400, "/api/v1/events?after=-1": 400, "/events?after=x": 400,
	} {
		require.Equal(t, code, ask(h, "GET", path).Code, path)
	}
}

func TestWhatAHostAndAUserHave(t *testing.T) {
	h := live.NewHandler(full())
	var host struct {
		live.FleetHost
		Findings []live.Finding `json:"findings"`
	}
	require.NoError(t, json.Unmarshal(ask(h, "GET", "/api/v1/hosts/a").Body.Bytes(), &host))
	require.EqualValues(t, "a", host.Name)
	require.Len(t, host.Findings, 1, "and not those of other hosts")
	var user struct {
		live.FleetUser
		GPUs     []gpus.Row
		Findings []live.Finding `json:"findings"`
	}
	require.NoError(t, json.Unmarshal(ask(h, "GET", "/api/v1/users/a%2Fb").Body.Bytes(), &user))
	require.Equal(t, 1, user.Used)
	require.EqualValues(t, "a", user.GPUs[0].Host)
	require.Len(t, user.Findings, 1)
}

func TestNotModified(t *testing.T) {
	feed := full()
	h := live.NewHandler(feed)
	for _, path := range []string{"/api/v1/fleet", "/api/v1/gpus", "/api/v1/hosts/a", "/api/v1/findings"} {
		etag := ask(h, "GET", path).Header().Get("ETag")
		require.NotEmpty(t, etag, path)
		for tag, code := range map[string]int{etag: 304, "W/" + etag: 304, `"x", ` + etag: 304, "*": 304, `"x"`: 200, strings.Trim(etag, `"`): 200, "": 200} {
			require.Equal(t, code, ask(h, "GET", path, "If-None-Match", tag).Code, "%s %s", path, tag)
		}
		feed.Consume(cycle(2).AtEnd(), nil)
		require.Equal(t, 200, ask(h, "GET", path, "If-None-Match", etag).Code, path)
	}
}

// follow reads server-sent events until ctx ends.
func follow(ctx context.Context, t *testing.T, url string, header []string, each func(kind, id string)) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Error(err)
		return
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return
	}
	defer response.Body.Close()
	if kind := response.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Error(kind)
	}
	lines := bufio.NewScanner(response.Body)
	kind, id := "", ""
	for lines.Scan() {
		switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
		case "event":
			kind = value
		case "id":
			id = value
		case "data":
			each(kind, id)
			id = ""
		}
	}
}

// stream is the first n messages.
func stream(t *testing.T, url string, n int, header ...string) (messages []string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	follow(ctx, t, url, header, func(kind, id string) {
		if messages = append(messages, strings.TrimSpace(kind+" "+id)); len(messages) >= n {
			cancel()
		}
	})
	return messages[:min(len(messages), n)]
}

func TestStream(t *testing.T) {
	feed := full()
	server := httptest.NewServer(live.NewHandler(feed))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	url := server.URL + "/events"
	require.Equal(t, []string{"fleet"}, stream(t, url, 1), "without a number, only what comes")
	require.Equal(t, []string{"event r.1", "fleet"}, stream(t, url+"?after=0", 2))
	require.Equal(t, []string{"event r.1", "fleet"}, stream(t, url, 2, "Last-Event-ID", "r.0"))
	require.Equal(t, []string{"event r.1", "fleet"}, stream(t, url, 2, "Last-Event-ID", "another.77"), "the controller was started again")
	require.Equal(t, []string{"fleet"}, stream(t, url, 1, "Last-Event-ID", "r.1"))
	events := make([]enforce.Event, 20_000)
	for i := range events {
		events[i] = enforce.Event{Kind: enforce.EventHostLost, Host: "b"}
	}
	feed.Consume(cycle(2), events)
	got := stream(t, url, 3, "Last-Event-ID", "r.1")
	require.Equal(t, "missed", got[0])
	require.Equal(t, fmt.Sprintf("event r.%d", 20_001-len(feed.Events(0))+1), got[1])
}

// TestManyViewersOverHTTP: 100 get each new state while cycles run, and one that doesn't read doesn't hold them up.
func TestManyViewersOverHTTP(t *testing.T) {
	feed := full()
	server := httptest.NewServer(live.NewHandler(feed))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	const last = 20
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	asleep := make(chan struct{})
	var viewers, sleeper sync.WaitGroup
	sleeper.Go(func() {
		follow(ctx, t, server.URL+"/events", nil, func(string, string) { <-asleep })
	})
	for range 100 {
		viewers.Go(func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			follow(ctx, t, server.URL+"/events", nil, func(kind, _ string) {
				if kind == "fleet" && feed.Fleet().Cycle == last {
					cancel()
				}
			})
		})
	}
	for i := range last {
		feed.Consume(cycle(i+1), []enforce.Event{{Kind: enforce.EventHostLost, Host: "b"}})
		feed.Consume(cycle(i+1).AtEnd(), nil)
	}
	viewers.Wait()
	require.NoError(t, ctx.Err())
	cancel()
	close(asleep)
	sleeper.Wait()
}
