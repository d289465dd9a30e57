package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/live"
)

//go:embed templates
var templateFiles embed.FS

var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/*.html"))
})

// pageFunc returns a template and its data; no name if the page doesn't exist.
type pageFunc func(p *page, r *http.Request) (name string, body any)

type page struct {
	Title   string
	Path    string
	Fleet   *live.Index
	Hidden  bool         // others' names are hidden
	Me      bool         // the viewer's name may be known
	Usage   bool         // usage reports exist
	Query   template.URL // of the same report as JSON
	Now     time.Time
	Version string // of script and styles
	Body    any

	view *viewer
}

// Stale says whether the state is too old.
func (p *page) Stale() bool {
	return p.Fleet.Cycle > 0 && p.Now.Sub(p.Fleet.Time).Seconds() > 3*max(p.Fleet.Interval, 10)
}

func (s *server) page(of pageFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { s.servePage(w, r, filterOf(r).key(), of) }
}

// servePage uses the cache. key is what the page shows besides path and viewer.
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

func (s *server) render(
	of pageFunc, r *http.Request, v *viewer, fleet *live.FleetState, now time.Time,
) (*rendered, error) {
	p := &page{
		Fleet: live.NewIndex(fleet), Now: now, Hidden: s.options.Names != AllNames, Me: s.knowsUsers(),
		Usage: s.options.Usage != nil, Version: staticVersion(), view: v, Path: r.URL.Path,
	}
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
	return newRendered(status, b.Bytes()), nil
}

func (s *server) refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Error(w, why, status)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	p := &page{Title: http.StatusText(status), Fleet: live.NewIndex(new(live.FleetState)), Version: staticVersion()}
	p.Body = why
	_ = templates().ExecuteTemplate(w, "message", p) // the browser may be gone
}

//go:embed static
var staticFiles embed.FS

var staticKinds = map[string]string{
	"style.css": "text/css; charset=utf-8", "live.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
}

var staticVersion = sync.OnceValue(func() string {
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(staticKinds)) {
		content, _ := staticFiles.ReadFile("static/" + name) // embedded
		hash.Write(content)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
})

// static lets browsers cache this version.
func static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	kind, exists := staticKinds[name]
	if !exists {
		http.Error(w, "There is no such file.", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	if r.URL.RawQuery == staticVersion() {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeFileFS(w, r, staticFiles, "static/"+name)
}

const (
	freshFor = 2 * time.Second // how long a rendered page is served, and so the error of its ages
	maxPages = 64              // per revision; one of 1,000 hosts takes half a megabyte
)

type rendered struct {
	status           int
	etag             string
	body, compressed []byte
}

// pageCache renders each page once for all concurrent viewers.
type pageCache struct {
	rendering sync.Mutex // one at a time, as enforcement needs the machine too

	mu       sync.Mutex
	revision uint64
	until    time.Time
	pages    map[string]func() (*rendered, error)
}

func (c *pageCache) get(
	key string, revision uint64, now time.Time, render func() (*rendered, error),
) (*rendered, error) {
	c.mu.Lock()
	if c.pages == nil || c.revision != revision || now.After(c.until) || now.Add(freshFor).Before(c.until) ||
		len(c.pages) >= maxPages {
		c.revision, c.until, c.pages = revision, now.Add(freshFor), make(map[string]func() (*rendered, error))
	}
	page := c.pages[key]
	if page == nil {
		page = sync.OnceValues(func() (*rendered, error) {
			c.rendering.Lock()
			defer c.rendering.Unlock()
			return render()
		})
		c.pages[key] = page
	}
	c.mu.Unlock()
	return page()
}

func newRendered(status int, body []byte) *rendered {
	hash := fnv.New64a()
	_, _ = hash.Write(body)
	var compressed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&compressed, gzip.BestSpeed) // a valid level
	_, _ = z.Write(body)                                     // never fails
	_ = z.Close()
	return &rendered{status, fmt.Sprintf(`W/"%x"`, hash.Sum64()), body, compressed.Bytes()}
}

func (p *rendered) send(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "private, no-cache")
	header.Set("ETag", p.etag)
	header.Set("Vary", "Accept-Encoding, Authorization")
	if p.status == http.StatusOK && r.Header.Get("If-None-Match") == p.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := p.body
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		body = p.compressed
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the browser may be gone
	}
}
