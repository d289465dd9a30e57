package monitoring

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/metrics"
)

// exporter has the metrics of the last collection. It is an http.Handler, and safe for
// concurrent use. A scrape collects nothing: it gets what is there.
type exporter struct {
	now    func() time.Time
	maxAge time.Duration // older metrics are not shown

	mu   sync.Mutex
	text []byte
	at   time.Time // of the collection
}

// publish replaces the metrics by those of a collection that began at a time.
func (e *exporter) publish(text []byte, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text, e.at = text, at
}

// latest is the metrics; none if they are too old.
func (e *exporter) latest() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now().Sub(e.at) > e.maxAge {
		return nil
	}
	return e.text
}

// ServeHTTP answers GET and HEAD of /metrics, and of / as genv 1.4.3 does.
func (e *exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != "/metrics" && r.URL.Path != "/":
		http.NotFound(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
	default:
		text := e.latest()
		w.Header().Set("Content-Type", metrics.ContentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.Method == http.MethodGet {
			_, _ = w.Write(text) // the client may have gone
		}
	}
}
