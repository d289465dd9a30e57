// Package web is the page of a fleet: what is free, and who uses what.
//
//	handler := web.New(feed, web.Options{Now: time.Now, Names: web.AllNames})
//
// It only reads. The pages are rendered on the server and work without JavaScript; with it, they follow the server-sent
// events of remote/live. What comes from hosts and users is escaped by html/template, and shortened. What a viewer may
// see is decided once, by a live.Source, and not by the pages.
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

// Names says which users' names a viewer gets to see.
type Names string

// The values of --web-names.
const (
	AllNames Names = "all"
	OwnName  Names = "self" // of the user who is logged in
	NoNames  Names = "none"
)

// Options are how a fleet is shown, and to whom.
type Options struct {
	Now   func() time.Time
	Names Names
	Hosts []string // that requests may be for, besides loopback
	// Access has the users who may look; nil for everybody who can connect.
	Access *Access
	// Proxied says that a trusted proxy says in a header who the user is. Only the proxy may be able to connect then.
	Proxied bool
	Failed  func(error)   // called with errors that aren't the viewer's; nil for nothing
	Usage   *usage.Reader // nil for none
	// Recorded is what was ended before this run, the oldest first, and whether that is all of it; nil for no record.
	Recorded func() (list []audit.HistoryEntry, complete bool)
	// Mount adds handlers of other paths, such as /metrics, with the same checks; nil for none. With hideUsers they
	// must name no user.
	Mount func(mux *http.ServeMux, hideUsers bool)
}

type server struct {
	feed    *live.Feed
	options Options
	mux     *http.ServeMux
	pages   pageCache

	mu    sync.Mutex
	views map[snapshot.Username]*viewer // "" for those who have no name of their own
}

type viewer struct {
	live.Source
	self snapshot.Username // only if it makes a difference
	api  http.Handler
}

const maxViews = 32 // that are kept, each with its last documents

// New returns the handler of a feed, for requests to loopback and Options.Hosts: see AnswersTo.
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
	if s.options.Names == OwnName { // the tags of documents don't say what they show
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
