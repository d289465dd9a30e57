package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/live"
)

//go:embed templates
var templateFiles embed.FS

// templates are parsed when the first page is asked for.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/*.html"))
})

// pageFunc is what a page shows: the name of its template, and its data. An empty name is
// for what there isn't.
type pageFunc func(p *page, r *http.Request) (name string, body any)

// page is what all pages show, and the data of one.
type page struct {
	Title   string
	Path    string // of the menu's entry
	Fleet   *live.Fleet
	Counts  counts
	Hidden  bool         // names of others are hidden
	Me      bool         // it may be known who asks
	Usage   bool         // there are reports of usage
	Query   template.URL // of the same as JSON
	Now     time.Time
	Version string // of the script and the styles
	Body    any

	view  *view
	marks *live.Marks // of the GPUs
}

// Stale reports whether the state is older than it should be.
func (p *page) Stale() bool {
	return p.Fleet.Cycle > 0 && p.Now.Sub(p.Fleet.Time).Seconds() > 3*max(p.Fleet.Interval, 10)
}

// page serves a page.
func (s *server) page(of pageFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { s.servePage(w, r, filterOf(r).key(), of) }
}

// servePage serves a page; key is what it shows besides its path and its viewer.
func (s *server) servePage(w http.ResponseWriter, r *http.Request, key string, of pageFunc) {
	v, now := s.view(r), s.options.Now()
	fleet := v.Fleet()
	key = string(v.self) + "\x00" + r.URL.Path + "\x00" + key
	answer, err := s.pages.get(key, fleet.Revision, now, func() (*rendered, error) {
		return s.render(of, r, v, fleet, now)
	})
	if err != nil {
		if s.options.Failed != nil {
			s.options.Failed(err)
		}
		http.Error(w, "the page can't be shown", http.StatusInternalServerError)
		return
	}
	answer.send(w, r)
}

func (s *server) render(of pageFunc, r *http.Request, v *view, fleet *live.Fleet, now time.Time) (*rendered, error) {
	p := &page{Fleet: fleet, Now: now, Hidden: v.names != AllNames, Me: s.knowsUsers(), Usage: s.options.Usage != nil, Version: assets().version, view: v, marks: fleet.Marks(), Path: r.URL.Path}
	p.Counts = p.count(fleet.Hosts)
	status := http.StatusOK
	name, body := of(p, r)
	if name == "" {
		status, name, body = http.StatusNotFound, "message", cmp.Or(p.Title, "There is no such page.")
		p.Title = "Not found"
	}
	p.Body = body
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, name, p); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return newRendered(status, b.Bytes())
}

// refuse says in a page why there is nothing else.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	p := &page{Title: http.StatusText(status), Fleet: &live.Fleet{}, Version: assets().version, Body: why}
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Error(w, why, status)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = templates().ExecuteTemplate(w, "message", p) // the browser may have gone
}

//go:embed static
var staticFiles embed.FS

// asset is a file that pages refer to.
type asset struct {
	content []byte
	kind    string
}

type assetList struct {
	files   map[string]asset
	version string // changes with the content
}

var assets = sync.OnceValue(func() assetList {
	list, hash := assetList{files: make(map[string]asset)}, sha256.New()
	for _, file := range []struct{ name, kind string }{
		{"style.css", "text/css; charset=utf-8"}, {"live.js", "text/javascript; charset=utf-8"}, {"icon.svg", "image/svg+xml"},
	} {
		content, err := staticFiles.ReadFile("static/" + file.name)
		if err != nil {
			panic(err) // it is embedded
		}
		hash.Write(content)
		list.files[file.name] = asset{content, file.kind}
	}
	list.version = hex.EncodeToString(hash.Sum(nil)[:8])
	return list
})

// static serves the script and the styles, which may be kept for as long as their version
// is the same.
func static(w http.ResponseWriter, r *http.Request) {
	list := assets()
	file, exists := list.files[r.PathValue("file")]
	if !exists {
		http.Error(w, "There is no such file.", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", file.kind)
	w.Header().Set("Cache-Control", "no-cache")
	if r.URL.RawQuery == list.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.content))
}
