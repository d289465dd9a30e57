package metrics_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/snapshot"
)

var scrapeTime = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// rig is a controller without hosts, on whose clock it is now.
type rig struct {
	t        testing.TB
	now      time.Time
	number   int
	feed     *live.Feed
	counters *metrics.Counters
	mux      *http.ServeMux
}

func newRig(t testing.TB, hideUsers bool) *rig {
	r := &rig{t: t, now: scrapeTime, counters: metrics.NewCounters(scrapeTime, 10*time.Second), mux: http.NewServeMux()}
	clock := func() time.Time { return r.now }
	r.feed = live.NewFeed(live.Options{Now: clock, Interval: 10 * time.Second, Enforcing: true})
	e := &metrics.Exporter{Feed: r.feed, Counters: r.counters, Now: clock, Version: "v1.2.3"}
	e.Mount(r.mux, hideUsers)
	return r
}

// cycle is one in which hosts answer, or fail if their name begins with "down".
func (r *rig) cycle(names ...snapshot.Hostname) {
	round := r.make(names...)
	r.feed.Consume(round, nil)
	r.counters.Consume(round.AtEnd(), nil)
	r.feed.Consume(round.AtEnd(), nil)
}

func (r *rig) make(names ...snapshot.Hostname) *controller.Round {
	r.number++
	round := &controller.Round{Number: r.number, Start: r.now, Took: time.Second}
	for _, name := range names {
		h := snapshot.Host{Name: name, Snapshot: &snapshot.Snapshot{
			Environments: []snapshot.Environment{{EID: "7", UID: 1001, Username: "alice"}},
			Devices:      []snapshot.Device{{Name: "H100", UUID: "GPU-a", UsedMemory: snapshot.MiB(3), Attachments: []snapshot.Attachment{{EID: "7"}}}},
		}}
		if strings.HasPrefix(string(name), "down") {
			h.Snapshot, h.Err = nil, errors.New("no answer")
		}
		round.Cluster.Hosts = append(round.Cluster.Hosts, h)
	}
	return round
}

func (r *rig) ask(method, target string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	r.mux.ServeHTTP(answer, httptest.NewRequest(method, target, nil))
	return answer
}

func (r *rig) get(target string) string {
	answer := r.ask(http.MethodGet, target)
	require.Equal(r.t, http.StatusOK, answer.Code, answer.Body)
	require.Equal(r.t, fmt.Sprint(answer.Body.Len()), answer.Header().Get("Content-Length"))
	return answer.Body.String()
}

func TestMetrics(t *testing.T) {
	r := newRig(t, false)
	r.cycle("gpu-1", "gpu-2", "down")
	text := r.get("/metrics")
	for _, line := range []string{
		`genv_build_info{version="v1.2.3",`, `genv_host_up{host="gpu-1"} 1`, `genv_host_up{host="down"} 0`, `genv_host_failure{host="down",class="command-failed"} 1`,
		`genv_gpus{host="gpu-2",model="H100",state="attached"} 1`, `genv_user_devices{user="alice"} 2`, `genv_findings{rule="idle",decision="act"} 0`,
		`genv_cycle_duration_seconds_count 1`, `genv_host_snapshot_age_seconds{host="gpu-1"} 0`, `genv_user_gpu_seconds_total{user="alice"} 0`,
	} {
		require.Contains(t, text, "\n"+line)
	}
	r.now = r.now.Add(3 * time.Second)
	require.Contains(t, r.get("/metrics"), `genv_host_snapshot_age_seconds{host="gpu-1"} 3`, "an age grows between two cycles")
	r.now = r.now.Add(7 * time.Second)
	r.cycle("gpu-1", "down-2")
	text = r.get("/metrics")
	require.Contains(t, text, `genv_user_gpu_seconds_total{user="alice"} 10`)
	require.NotContains(t, text, `gpu-2`)
	require.Equal(t, strings.Count(text, "# TYPE"), strings.Count(text, "# HELP"))
}

func TestParts(t *testing.T) {
	r := newRig(t, false)
	r.cycle("gpu-1", "gpu-2", "gpu-3")
	require.NotContains(t, r.get("/metrics?part=controller"), "host=")
	require.Contains(t, r.get("/metrics?part=controller"), "genv_user_devices{")
	text := r.get("/metrics?host=gpu-1&host=gpu-3&host=gone")
	for _, family := range []string{"genv_build_info", "genv_user", "genv_findings", "genv_cycle", "gpu-2"} {
		require.NotContains(t, text, family)
	}
	require.Contains(t, text, `genv_host_snapshot_age_seconds{host="gpu-3"} 0`)
	all := strings.Split(r.get("/metrics"), "\n")
	parts := strings.Split(r.get("/metrics?part=controller")+r.get("/metrics?host=gpu-1&host=gpu-2&host=gpu-3"), "\n")
	require.ElementsMatch(t, all, parts)
	require.Equal(t, http.StatusNotFound, r.ask(http.MethodGet, "/metrics?host=gone").Code, "so that its target is down")
	require.Equal(t, http.StatusBadRequest, r.ask(http.MethodGet, "/metrics?part=other").Code)
	require.Equal(t, http.StatusBadRequest, r.ask(http.MethodGet, "/metrics?part=controller&host=gpu-1").Code)
}

func TestMethods(t *testing.T) {
	r := newRig(t, false)
	r.cycle("gpu-1")
	for _, path := range []string{"/metrics", "/sd", "/-/healthy", "/-/ready"} {
		require.Equal(t, http.StatusMethodNotAllowed, r.ask(http.MethodPost, path).Code, path)
		require.Equal(t, http.StatusOK, r.ask(http.MethodHead, path).Code, path)
	}
	require.Zero(t, r.ask(http.MethodHead, "/metrics").Body.Len())
	require.Equal(t, metrics.ContentType, r.ask(http.MethodGet, "/metrics").Header().Get("Content-Type"))
}

func TestHideUsers(t *testing.T) {
	r := newRig(t, true)
	r.cycle("gpu-1")
	for _, target := range []string{"/metrics", "/metrics?part=controller", "/metrics?host=gpu-1", "/sd"} {
		require.NotContains(t, r.ask(http.MethodGet, target).Body.String(), "alice")
	}
	require.Contains(t, r.get("/metrics"), "genv_gpus{")
}

// TestStalled: what was seen long ago says nothing about now.
func TestStalled(t *testing.T) {
	r := newRig(t, false)
	require.Equal(t, http.StatusServiceUnavailable, r.ask(http.MethodGet, "/-/ready").Code)
	require.Equal(t, http.StatusOK, r.ask(http.MethodGet, "/-/healthy").Code)
	require.NotContains(t, r.get("/metrics"), "genv_last_cycle")
	r.cycle("down")
	require.Equal(t, http.StatusOK, r.ask(http.MethodGet, "/-/ready").Code, "although all hosts failed")
	r.cycle("gpu-1")
	r.now = r.now.Add(time.Hour)
	require.Equal(t, http.StatusServiceUnavailable, r.ask(http.MethodGet, "/-/healthy").Code)
	text := r.get("/metrics")
	for _, gone := range []string{"genv_host_up", "genv_gpus{", "genv_user_", "genv_findings"} {
		require.NotContains(t, text, gone)
	}
	require.Contains(t, text, `genv_host_snapshot_age_seconds{host="gpu-1"} 3600`)
	require.Contains(t, text, "genv_last_cycle_timestamp_seconds")
	require.NotContains(t, r.get("/metrics?host=gpu-1"), "genv_gpus")
	r.cycle("gpu-1")
	require.Contains(t, r.get("/metrics"), `genv_host_up{host="gpu-1"} 1`)
}

func TestTargets(t *testing.T) {
	r := newRig(t, false)
	r.cycle("gpu-1", "down")
	answer := r.ask(http.MethodGet, "http://jump.lab:9400/sd")
	require.Equal(t, "application/json", answer.Header().Get("Content-Type"))
	type target struct {
		Targets []string
		Labels  map[string]string
	}
	var list []target
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &list))
	at := []string{"jump.lab:9400"}
	require.Equal(t, []target{
		{at, map[string]string{"__metrics_path__": "/metrics", "__param_part": "controller"}},
		{at, map[string]string{"__metrics_path__": "/metrics", "__param_host": "gpu-1", "instance": "gpu-1"}},
		{at, map[string]string{"__metrics_path__": "/metrics", "__param_host": "down", "instance": "down"}},
	}, list)
}

// TestScrapesWhileCyclesRun: the race detector watches.
func TestScrapesWhileCyclesRun(t *testing.T) {
	r := newRig(t, false)
	r.cycle("gpu-1")
	server := httptest.NewServer(r.mux)
	defer server.Close()
	var scrapers sync.WaitGroup
	for i := range 8 {
		target := server.URL + []string{"/metrics", "/metrics?host=gpu-1", "/sd", "/-/healthy"}[i%4]
		scrapers.Go(func() {
			for range 20 {
				if answer, err := server.Client().Get(target); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
				}
			}
		})
	}
	for range 50 {
		r.cycle("gpu-1", "gpu-2", "down")
	}
	scrapers.Wait()
	require.Contains(t, r.get("/metrics"), "genv_cycle_duration_seconds_count 51")
}
