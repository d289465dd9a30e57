package web

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// freshFor is how long a page is served that was rendered once: its ages are right to
	// this, whatever number of browsers ask.
	freshFor = 2 * time.Second
	// maxPages bounds how many pages of a revision are kept. One of 1,000 hosts takes
	// half a megabyte.
	maxPages = 64
)

// rendered is a page, as it is and compressed.
type rendered struct {
	status           int
	etag             string
	body, compressed []byte
}

// cache has pages, each rendered once for all who ask at the same time.
type cache struct {
	rendering sync.Mutex // one at a time: enforcement needs the machine too

	mu       sync.Mutex
	revision uint64
	until    time.Time
	pages    map[string]*entry
}

type entry struct {
	once sync.Once
	page *rendered
	err  error
}

// get is a page, which is rendered unless that was just done.
func (c *cache) get(key string, revision uint64, now time.Time, render func() (*rendered, error)) (*rendered, error) {
	c.mu.Lock()
	if c.pages == nil || c.revision != revision || now.After(c.until) || now.Add(freshFor).Before(c.until) || len(c.pages) >= maxPages {
		c.revision, c.until, c.pages = revision, now.Add(freshFor), make(map[string]*entry)
	}
	e := c.pages[key]
	if e == nil {
		e = &entry{}
		c.pages[key] = e
	}
	c.mu.Unlock()
	e.once.Do(func() {
		c.rendering.Lock()
		defer c.rendering.Unlock()
		e.page, e.err = render()
	})
	return e.page, e.err
}

// newRendered compresses a page.
func newRendered(status int, body []byte) (*rendered, error) {
	hash := fnv.New64a()
	_, _ = hash.Write(body)
	var compressed bytes.Buffer
	z, err := gzip.NewWriterLevel(&compressed, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(body); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return &rendered{status, fmt.Sprintf(`W/"%x"`, hash.Sum64()), body, compressed.Bytes()}, nil
}

// send writes a page, unless the browser has it.
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
		_, _ = w.Write(body) // the browser may have gone
	}
}
