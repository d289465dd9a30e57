package live

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// NewHandler returns the handler of a feed. It answers GET and HEAD.
func NewHandler(feed Source) http.Handler {
	mux := http.NewServeMux()
	for path, of := range map[string]func(f *FleetState, name string) (any, bool){
		"fleet": func(f *FleetState, _ string) (any, bool) { return f, true },
		"gpus":  func(f *FleetState, _ string) (any, bool) { return f.AllGPUs(), true },
		"findings": func(f *FleetState, _ string) (any, bool) {
			return map[string]any{"schema": "genv.live.findings/1", "findings": f.Findings}, true
		},
		"hosts/{name}": hostDocument,
		"users/{name}": userDocument,
	} {
		mux.HandleFunc("GET /api/v1/"+path, func(w http.ResponseWriter, r *http.Request) { servePart(feed, of, w, r) })
	}
	mux.HandleFunc("GET /api/v1/events", func(w http.ResponseWriter, r *http.Request) { serveEvents(feed, w, r) })
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) { serveStream(feed, w, r) })
	return mux
}

func servePart(
	feed Source, of func(f *FleetState, name string) (any, bool), w http.ResponseWriter, r *http.Request,
) {
	now := feed.Position()
	if etag := etagOf(now.Run, now.Revision); matches(r, etag) {
		w.Header().Set("ETag", etag)
		w.Header().Set("Cache-Control", "no-cache")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	fleet := feed.Fleet()
	value, known := of(fleet, r.PathValue("name"))
	if !known {
		http.Error(w, "unknown host or user", http.StatusNotFound)
		return
	}
	sendJSON(w, r, etagOf(fleet.Run, fleet.Revision), value)
}

func serveEvents(feed Source, w http.ResponseWriter, r *http.Request) {
	after, err := number(r.FormValue("after"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	position := feed.Position()
	document := EventsDocument{Schema: "genv.live.events/1", Run: position.Run, Events: feed.Events(after)}
	if list := document.Events; len(list) > 0 {
		document.Last, document.Missed = list[len(list)-1].Number, list[0].Number-after-1
	} else {
		document.Last, document.Events = position.Events, []FleetEvent{}
	}
	sendJSON(w, r, "", document)
}

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
func etagOf(run string, revision uint64) string {
	return strconv.Quote(fmt.Sprintf("%s-%d", run, revision))
}

func matches(r *http.Request, etag string) bool {
	return slices.ContainsFunc(strings.Split(r.Header.Get("If-None-Match"), ","), func(tag string) bool {
		tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
		return tag == etag || tag == "*"
	})
}

func sendJSON(w http.ResponseWriter, r *http.Request, etag string, value any) {
	w.Header().Set("Cache-Control", "no-cache") // browsers ask again, with the ETag
	if etag != "" {
		w.Header().Set("ETag", etag)
	}
	send(w, r, http.StatusOK, value)
}

func send(w http.ResponseWriter, r *http.Request, status int, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		status, body = http.StatusInternalServerError, fmt.Appendf(nil, "%q", err.Error())
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(append(body, '\n')) // the viewer may have left
	}
}

// ActionsPath takes actions.
const ActionsPath = "/api/v1/actions"

// Do carries out an action. An error that is a *operator.Refusal goes to the operator.
type Do func(context.Context, operator.Author, operator.Action) (operator.Answer, error)

// RefuseActions is a Do that refuses all actions.
func RefuseActions(because *operator.Refusal) Do {
	return func(context.Context, operator.Author, operator.Action) (operator.Answer, error) {
		return operator.Answer{}, because
	}
}

var refusalStatus = map[operator.Code]int{
	operator.Invalid: http.StatusBadRequest, operator.Forbidden: http.StatusForbidden,
	operator.Changed: http.StatusConflict, operator.Busy: http.StatusTooManyRequests,
}

// NewActions returns the handler of POST ActionsPath, for a unix socket and socket.Serve only. name returns the name of
// a uid; empty for none.
func NewActions(do Do, name func(context.Context, snapshot.UID) snapshot.Username) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := serveAction(w, r, do, name)
		w.Header().Set("Cache-Control", "no-store")
		if err == nil {
			send(w, r, http.StatusOK, answer)
			return
		}
		var refusal *operator.Refusal
		if !errors.As(err, &refusal) {
			refusal = operator.Refuse(operator.Unable, "Look at the log of the controller.", "%v", err)
		}
		send(w, r, cmp.Or(refusalStatus[refusal.Code], http.StatusServiceUnavailable), refusal)
	})
}

func serveAction(
	w http.ResponseWriter, r *http.Request, do Do, name func(context.Context, snapshot.UID) snapshot.Username,
) (operator.Answer, error) {
	peer, known := socket.PeerOf(r.Context())
	if own := snapshot.UID(os.Geteuid()); !known || peer.UID != 0 && peer.UID != own { //nolint:gosec // a uid fits
		return operator.Answer{}, operator.Refuse(operator.Forbidden, "Run it with sudo.",
			"only root and the controller's account (uid %d) may do this; you may look", own)
	}
	action, err := readAction(r)
	if err != nil {
		return operator.Answer{}, err
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the request's would end the action
	return do(r.Context(), PersonOf(r.Context(), peer, name), action)
}

// readAction reads an action. It refuses one with unknown parts.
func readAction(r *http.Request) (operator.Action, error) {
	var action operator.Action
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return action, operator.RefuseInvalid("the Content-Type is not application/json")
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&action); err != nil {
		return action, operator.RefuseInvalid("not an action: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return action, operator.RefuseInvalid("there is more than one action")
	}
	return action, nil
}

// PersonOf names a peer, and the user who logged in, if that is another one who used sudo.
func PersonOf(
	ctx context.Context, peer socket.Peer, name func(context.Context, snapshot.UID) snapshot.Username,
) operator.Author {
	person := operator.Author{UID: peer.UID, Name: name(ctx, peer.UID)}
	if peer.Login != nil && *peer.Login != peer.UID {
		person.Login, person.LoginName = peer.Login, name(ctx, *peer.Login)
	}
	return person
}

const (
	together  = 50 * time.Millisecond // changes in this time are one message: a round often begins and ends in it
	pingEvery = 15 * time.Second      // breaks connections to viewers who have left
	maxBatch  = 64                    // events that are encoded at a time
)

// serveStream sends server-sent events: from now on, or those after the number in `after` or Last-Event-ID.
func serveStream(feed Source, w http.ResponseWriter, r *http.Request) {
	s := stream{feed: feed, w: w, control: http.NewResponseController(w)}
	if err := s.begin(r); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = s.control.SetReadDeadline(time.Time{}) // the request's would end the stream
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy passes them on at once
	if r.Method == http.MethodHead {
		return
	}
	changes, stop := feed.Watch()
	defer stop()
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
		case <-changes:
			if !remote.Sleep(r.Context(), together) {
				return
			}
			err = s.changes()
		}
		if err != nil {
			return // the viewer has left, or doesn't read
		}
	}
}

type stream struct {
	feed    Source
	w       http.ResponseWriter
	control *http.ResponseController
	after   uint64
	sent    Position
	buffer  bytes.Buffer
}

// begin reads after which event to begin: for a number of another run at the first one.
func (s *stream) begin(r *http.Request) (err error) {
	now := s.feed.Position()
	s.after = now.Events
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
		return // all values can be encoded
	}
	if id != "" {
		fmt.Fprintf(&s.buffer, "id: %s\n", id)
	}
	fmt.Fprintf(&s.buffer, "event: %s\ndata: %s\n\n", kind, body)
}

func (s *stream) flush() error {
	if _, err := s.buffer.WriteTo(s.w); err != nil {
		return err
	}
	return s.control.Flush()
}
