package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote"
)

const (
	// together is how long changes are gathered into one message: the beginning and the end of a cycle are often one.
	together = 50 * time.Millisecond
	// pingEvery is how often something is sent that makes a connection to a viewer who has gone break.
	pingEvery = 15 * time.Second
	// maxBatch bounds how many events are encoded at a time.
	maxBatch = 64
)

// stream sends server-sent events for as long as the viewer reads them. Without a number
// after which it wants events (`after`, or Last-Event-ID), it gets those from now on.
func (h *feedHandler) stream(w http.ResponseWriter, r *http.Request) {
	s := stream{feed: h.feed, w: w, control: http.NewResponseController(w)}
	if err := s.begin(r); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = s.control.SetReadDeadline(time.Time{}) // the request has been read; else its deadline would end this
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy passes them on at once
	if r.Method == http.MethodHead {
		return
	}
	watch := h.feed.Watch()
	defer watch.Close()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		var err error
		select {
		case <-r.Context().Done():
			return
		case <-ping.C:
			s.buffer.WriteString(": ping\n\n")
			err = s.flush()
		case <-watch.C:
			if !remote.Sleep(r.Context(), together) {
				return
			}
			err = s.changes()
		}
		if err != nil {
			return // the viewer has gone, or doesn't read
		}
	}
}

// stream is one viewer's. Its buffer has one batch of events at most.
type stream struct {
	feed    Source
	w       http.ResponseWriter
	control *http.ResponseController
	run     string
	after   uint64
	sent    Position
	buffer  bytes.Buffer
}

// begin reads after which event to begin. The numbers of another run don't count.
func (s *stream) begin(r *http.Request) (err error) {
	now := s.feed.Position()
	s.run, s.after = now.Run, now.Events
	if run, last, found := strings.Cut(r.Header.Get("Last-Event-ID"), "."); found {
		s.after = 0
		if run == now.Run {
			s.after, err = number(last)
		}
	} else if after := r.FormValue("after"); after != "" {
		s.after, err = number(after)
	}
	return err
}

func (s *stream) changes() error {
	now := s.feed.Position()
	if err := s.events(now.Run); err != nil {
		return err
	}
	if now.Run == s.sent.Run && now.Revision == s.sent.Revision && now.Revision > 0 {
		return nil
	}
	s.sent = now
	s.add("fleet", "", struct { // there is a new revision to fetch
		Run      string `json:"run"`
		Revision uint64 `json:"revision"`
	}{now.Run, now.Revision})
	return s.flush()
}

func (s *stream) events(run string) error {
	list := s.feed.Events(s.after)
	if len(list) > 0 && list[0].Number > s.after+1 {
		s.add("missed", "", map[string]uint64{"count": list[0].Number - s.after - 1}) // no longer kept
	}
	for batch := range slices.Chunk(list, maxBatch) {
		for i := range batch {
			s.add("event", run+"."+strconv.FormatUint(batch[i].Number, 10), &batch[i])
		}
		if err := s.flush(); err != nil {
			return err
		}
		s.after = batch[len(batch)-1].Number
	}
	return nil
}

func (s *stream) add(kind, id string, data any) {
	body, err := json.Marshal(data)
	if err != nil {
		return // there are no such values
	}
	if id != "" {
		fmt.Fprintf(&s.buffer, "id: %s\n", id)
	}
	fmt.Fprintf(&s.buffer, "event: %s\ndata: %s\n\n", kind, body)
}

// flush writes, and gives up on a viewer that doesn't read: see the deadlines of the server.
func (s *stream) flush() error {
	if _, err := s.buffer.WriteTo(s.w); err != nil {
		return err
	}
	return s.control.Flush()
}
