package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// handler serves a feed.
type handler struct {
	feed Source

	mu      sync.Mutex
	encoder encoder
}

// NewHandler returns the handler of a feed, or of what may be seen of it. It answers GET and HEAD.
func NewHandler(feed Source) http.Handler {
	h := &handler{feed: feed}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/fleet", h.fleet)
	mux.HandleFunc("GET /api/v1/gpus", h.part("", func(f *Fleet, _ string) (any, bool) { return f.AllGPUs(), true }))
	mux.HandleFunc("GET /api/v1/findings", h.part("", func(f *Fleet, _ string) (any, bool) {
		return Findings{Schema: "genv.live.findings/1", Findings: f.Findings}, true
	}))
	mux.HandleFunc("GET /api/v1/hosts/{name}", h.part("host", func(f *Fleet, name string) (any, bool) { return hostOf(f, name) }))
	mux.HandleFunc("GET /api/v1/users/{name}", h.part("user", func(f *Fleet, name string) (any, bool) { return userOf(f, name) }))
	mux.HandleFunc("GET /api/v1/events", h.events)
	mux.HandleFunc("GET /events", h.stream)
	return mux
}

// fleet serves the whole state. A viewer that has an earlier one names it by its ETag
// (`since`), and gets only the hosts that have changed since.
func (h *handler) fleet(w http.ResponseWriter, r *http.Request) {
	if etag := etagOf(h.feed.Position()); matches(r, etag) {
		notModified(w, etag)
		return
	}
	text, err := h.encodedFleet()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	describe(w, etagOf(Position{Run: text.run, Revision: text.revision}))
	if r.Method == http.MethodHead {
		return
	}
	since := uint64(0)
	if run, revision, found := strings.Cut(strings.Trim(r.FormValue("since"), `"`), "-"); found && run == text.run {
		since, _ = number(revision) // 0 is all hosts
	}
	_ = text.writeTo(w, since) // the viewer may have gone
}

func (h *handler) encodedFleet() (*fleetText, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.encoder.encode(h.feed.Fleet())
}

// part serves a part of the state, or that there is no such thing as the one that the path names.
func (h *handler) part(what string, of func(f *Fleet, name string) (any, bool)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if etag := etagOf(h.feed.Position()); matches(r, etag) {
			notModified(w, etag)
			return
		}
		fleet := h.feed.Fleet()
		value, known := of(fleet, r.PathValue("name"))
		if !known {
			http.Error(w, "unknown "+what, http.StatusNotFound)
			return
		}
		sendJSON(w, r, etagOf(Position{Run: fleet.Run, Revision: fleet.Revision}), value)
	}
}

func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	after, err := number(r.FormValue("after"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	position := h.feed.Position()
	document := Events{Schema: "genv.live.events/1", Run: position.Run, Events: h.feed.Events(after)}
	document.Last = max(position.Events, after+uint64(len(document.Events)))
	if list := document.Events; len(list) > 0 {
		document.Last, document.Missed = list[len(list)-1].Number, list[0].Number-after-1
	} else {
		document.Last, document.Events = position.Events, []Event{}
	}
	sendJSON(w, r, "", document)
}

// number reads a number of an event; 0 if it is missing.
func number(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not the number of an event", text)
	}
	return n, nil
}

// etagOf changes with the content: revisions begin again with each run.
func etagOf(p Position) string {
	return fmt.Sprintf("%q", fmt.Sprintf("%s-%d", p.Run, p.Revision))
}

func matches(r *http.Request, etag string) bool {
	for _, tag := range strings.Split(r.Header.Get("If-None-Match"), ",") {
		if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == etag || tag == "*" {
			return true
		}
	}
	return false
}

func notModified(w http.ResponseWriter, etag string) {
	w.Header().Set("ETag", etag)
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusNotModified)
}

func sendJSON(w http.ResponseWriter, r *http.Request, etag string, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	describe(w, etag)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	if r.Method != http.MethodHead {
		_, _ = w.Write(append(body, '\n')) // the viewer may have gone
	}
}

// describe sets the header of a document.
func describe(w http.ResponseWriter, etag string) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-cache") // browsers ask again, with the ETag
	header.Set("X-Content-Type-Options", "nosniff")
	if etag != "" {
		header.Set("ETag", etag)
	}
}
