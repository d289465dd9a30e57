// Package metrics turns the state of GPU hosts into the text that Prometheus scrapes.
//
//	text := metrics.Genv143([]metrics.Scraped{{Name: "gpu-01", Installed: true, Snapshot: s}})
//
// An Exporter serves what a running controller knows; a scrape asks no host anything:
//
//	counters := metrics.NewCounters(time.Now(), interval) // a sink of the controller, shown its cycles
//	e := &metrics.Exporter{Feed: feed, Counters: counters, Now: time.Now, Version: version}
//	e.Mount(mux, false)
//
// `genv monitor` has genv 1.4.3's names, for existing dashboards (genv143.go). A controller has its own, in hosts.go,
// controller.go and counters.go. docs/monitoring.md lists all families.
//
// Unknown is an absent series, never 0: what a host didn't report, an environment's uncertain processes, and everything
// about a host that didn't answer.
package metrics

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/seed-3119e985/genv/remote/live"
)

// Exporter has a controller's metrics. It is safe for concurrent use.
type Exporter struct {
	Feed     *live.Feed
	Counters *Counters
	Now      func() time.Time
	Version  string // of genv
}

// Mount serves /metrics, /sd, /-/healthy and /-/ready; with hideUsers without users' series.
func (e *Exporter) Mount(mux *http.ServeMux, hideUsers bool) {
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { e.serveMetrics(w, r, hideUsers) })
	mux.HandleFunc("GET /sd", e.serveTargets)
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, e.Counters.Healthy(e.Now()), "healthy", "no cycle has ended for far longer than the interval")
	})
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, e.Counters.Ready(), "ready", "no cycle has ended yet")
	})
}

func answer(w http.ResponseWriter, ok bool, yes, no string) {
	w.Header().Set("Cache-Control", "no-store")
	if ok {
		_, _ = w.Write([]byte(yes + "\n")) // the client may be gone
		return
	}
	http.Error(w, no, http.StatusServiceUnavailable)
}

// serveMetrics serves everything; with ?host=NAME (repeatable) those hosts; with ?part=controller the rest.
func (e *Exporter) serveMetrics(w http.ResponseWriter, r *http.Request, hideUsers bool) {
	names, part := r.URL.Query()["host"], r.URL.Query().Get("part")
	fleet := e.Feed.Fleet()
	switch {
	case part != "" && part != "controller", part != "" && len(names) > 0:
		http.Error(w, "write part=controller or host=NAME", http.StatusBadRequest)
	case part != "":
		write(w, r, e.ofController(fleet, hideUsers)...)
	case len(names) == 0:
		write(w, r, append(e.ofController(fleet, hideUsers), e.ofHosts(fleet.Hosts), Ages(fleet.Hosts, e.Now()))...)
	default:
		hosts := slices.DeleteFunc(slices.Clone(fleet.Hosts), func(h live.FleetHost) bool {
			return !slices.Contains(names, string(h.Name))
		})
		if len(hosts) == 0 {
			http.Error(w, "no such host", http.StatusNotFound)
			return
		}
		write(w, r, e.ofHosts(hosts), Ages(hosts, e.Now()))
	}
}

// ofController has the series of no host. If cycles don't advance, the present is unknown.
func (e *Exporter) ofController(fleet *live.FleetState, hideUsers bool) [][]byte {
	texts := [][]byte{Build(e.Version), e.Counters.Text(fleet.Enforcing)}
	if !e.Counters.Healthy(e.Now()) {
		return texts
	}
	if texts = append(texts, Findings(fleet)); hideUsers {
		return texts
	}
	return append(texts, e.Counters.Users(fleet.Users))
}

// ofHosts is empty if cycles don't advance.
func (e *Exporter) ofHosts(hosts []live.FleetHost) []byte {
	if !e.Counters.Healthy(e.Now()) {
		return nil
	}
	return Hosts(hosts)
}

func write(w http.ResponseWriter, r *http.Request, texts ...[]byte) {
	length := 0
	for _, text := range texts {
		length += len(text)
	}
	w.Header().Set("Content-Type", ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(length))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return
	}
	for _, text := range texts {
		if _, err := w.Write(text); err != nil {
			return // the client is gone
		}
	}
}

// serveTargets serves a target for the controller and one per host, at the client's address. Each has its own instance,
// or the series that Prometheus adds would collide.
func (e *Exporter) serveTargets(w http.ResponseWriter, r *http.Request) {
	// for Prometheus' http_sd (https://prometheus.io/docs/prometheus/latest/http_sd/)
	type targets struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	hosts, address := e.Feed.Fleet().Hosts, []string{r.Host}
	list := []targets{{address, map[string]string{"__metrics_path__": "/metrics", "__param_part": "controller"}}}
	for i := range hosts {
		name := string(hosts[i].Name)
		labels := map[string]string{"__metrics_path__": "/metrics", "__param_host": name, "instance": name}
		list = append(list, targets{address, labels})
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(list) // the client may be gone
}
