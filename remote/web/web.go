// Package web is the page of a fleet: what is free, and who uses what.
//
//	handler := web.New(feed, web.Options{Now: time.Now, Names: web.AllNames})
//
// It only reads. Pages are rendered on the server and work without JavaScript; with it, they follow remote/live's
// server-sent events. Hosts' and users' texts are escaped by html/template, and shortened. A live.Source decides once
// what a viewer may see.
package web

import (
	"net/http"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
)

// Names says which users' names a viewer sees (--web-names).
type Names string

const (
	AllNames Names = "all"
	OwnName  Names = "self" // of the logged-in user
	NoNames  Names = "none"
)

// Options say how a fleet is shown, and to whom.
type Options struct {
	Now   func() time.Time
	Names Names
	Hosts []string // names of this server besides loopback
	// Access has the users who may look; nil: all who can connect.
	Access *Access
	// Proxied: a trusted proxy names the user in a header. Only it may be able to connect.
	Proxied bool
	Failed  func(error)   // gets errors that aren't the viewer's; may be nil
	Usage   *usage.Reader // may be nil
	// Recorded returns what was ended before this run, oldest first, and whether that is all; may be nil.
	Recorded func() (list []audit.HistoryEntry, complete bool)
	// Mount adds other paths, such as /metrics, behind the same checks; may be nil. With hideUsers they name no users.
	Mount func(mux *http.ServeMux, hideUsers bool)
}

type server struct {
	feed    *live.Feed
	options Options
	mux     *http.ServeMux
	pages   pageCache

	mu    sync.Mutex
	views map[snapshot.Username]*viewer // "" for viewers without a name of their own
}

type viewer struct {
	live.Source
	self snapshot.Username // only if it makes a difference
	api  http.Handler
}

const maxViews = 32 // kept, each with its last documents

// New returns a feed's handler, for requests that AnswersTo accepts.
func New(feed *live.Feed, options Options) http.Handler {
	s := &server{feed: feed, options: options, mux: http.NewServeMux(), views: make(map[snapshot.Username]*viewer)}
	for path, page := range map[string]pageFunc{
		"/{$}": overview, "/h/{host}": hostPage, "/findings": findingsPage, "/week": weekPage,
	} {
		s.mux.HandleFunc(path, s.page(page))
	}
	s.mux.HandleFunc("/u/{user}", s.userPage)
	s.mux.HandleFunc("/me", s.me)
	s.mux.HandleFunc("/report", s.reportPage)
	s.mux.HandleFunc("/api/v1/report", s.reportDocument)
	s.mux.HandleFunc("/reservations.ics", s.calendar)
	s.mux.HandleFunc("/static/{file}", static)
	s.mux.HandleFunc("/api/v1/", s.api)
	s.mux.HandleFunc("/events", s.api)
	if options.Mount != nil {
		options.Mount(s.mux, options.Names != AllNames)
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, r, http.StatusNotFound, "There is no such page.")
	})
	return s.guard(s.mux)
}

func (s *server) view(r *http.Request) *viewer {
	var self snapshot.Username
	if s.options.Names == OwnName {
		self = userOf(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.views[self]
	if v == nil {
		if len(s.views) >= maxViews {
			clear(s.views)
		}
		v = &viewer{Source: s.feed.Public(), self: self}
		if s.options.Names != AllNames {
			v.Source = s.feed.For(self)
		}
		v.api = live.NewHandler(v.Source)
		s.views[self] = v
	}
	return v
}

func (s *server) api(w http.ResponseWriter, r *http.Request) {
	if s.options.Names == OwnName { // the tags of documents don't depend on the viewer
		r.Header.Del("If-None-Match")
	}
	s.view(r).api.ServeHTTP(w, r)
}

func (s *server) me(w http.ResponseWriter, r *http.Request) {
	path := userPath(userOf(r))
	if path == "" {
		s.refuse(w, r, http.StatusNotFound, "This page doesn't know who you are: look for your name on the overview.")
		return
	}
	http.Redirect(w, r, path, http.StatusSeeOther)
}
