package web_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/web"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var paths = []string{"/", "/?q=a&free=1&model=x", "/h/gpu-01", "/h/gpu-06", "/u/alice", "/findings", "/week"}

// TestPicture: the README's picture of the page has the columns of today; else run make screenshots.
func TestPicture(t *testing.T) {
	var names []string
	for _, m := range regexp.MustCompile(`<th scope="col"[^>]*>([^<]*)`).FindAllStringSubmatch(pageOf(t, newFleet(4, 6).handler(), "/"), -1) {
		names = append(names, m[1])
	}
	columns := proctest.ReadFile(t, "../../docs/images/columns.txt")
	require.Equal(t, strings.Split(string(columns), "\n")[0], strings.Join(names, "|"))
}

func TestPages(t *testing.T) {
	f := newFleet(20, 8)
	f.judged(usual(f.now)...)
	handler := f.handler()
	for _, path := range paths {
		page := pageOf(t, handler, path)
		require.NotContains(t, page, " style=", path)
		require.NotContains(t, page, "<style", path)
		require.NotContains(t, page, "javascript:", path)
		require.NotRegexp(t, ` on[a-z]+="`, page, path)
		require.NotContains(t, page, "ZgotmplZ", path)
		for _, script := range strings.Split(page, "<script")[1:] {
			require.True(t, strings.HasPrefix(script, ` src="/static/live.js?`), path)
		}
	}
	overview := pageOf(t, handler, "/")
	presentAll(t, overview, "/", "A100-SXM4-80GB", "<dd>35<small> of 152", "connection refused", "check that the host is up", `href="/u/alice"`, `href="/h/gpu-20"`)
	present(t, pageOf(t, handler, "/h/gpu-06"), "Next step: check that the host is up", "")
	alice := pageOf(t, handler, "/u/alice")
	presentAll(t, alice, "/u/alice", "18<small> of at most 5", "Process 4000 is not running in a GPU environment", "process 4000 (user alice, python notebook.py): terminated", "non-env-processes")
	why := strings.SplitN(alice, "What was ended", 2)[1]
	present(t, why, "Process 4000 is not running in a GPU environment", "a job's end says why, not the rule alone")
	presentAll(t, why, "the record of the decision, as genv why has it", "Decision "+audit.DecisionID("report-1", 4000, "", nil), "Outcome    terminated", "Judged     process 4000, GPU 0: 2 GiB")
	host := pageOf(t, handler, "/h/gpu-01")
	absent(t, host, "· stream", "a word of the protocol")
	present(t, pageOf(t, handler, "/u/bob"), "in 20 min", "")
	require.NotContains(t, pageOf(t, handler, "/?q=gpu-07"), `href="/h/gpu-08"><`, "the filter is for hosts")
	for _, path := range []string{"/findings", "/u/judy", "/h/gpu-04"} {
		present(t, pageOf(t, handler, path), "paper deadline", path)
	}
	absent(t, alice, "paper deadline", "/u/alice")
	for path, text := range map[string]string{"/h/gpu-99": "no host of this name", "/u/nobody": "No user of this name", "/x": "no such page", "/h/..%2f": "no host"} {
		w := get(t, handler, path)
		require.Equal(t, http.StatusNotFound, w.Code, path)
		require.Contains(t, w.Body.String(), text)
	}
	require.Equal(t, http.StatusNotFound, get(t, handler, "/me").Code)
}

// TestEndedBefore: after a restart the page of a person has what the record has, behind what happened since.
func TestEndedBefore(t *testing.T) {
	f := newFleet(20, 8)
	f.judged(usual(f.now)...)
	options := f.options()
	ended := audit.HistoryEntry{ID: "0a0b0c0d", Host: "gpu-09", User: "zoe", PID: 4711, Status: "killed", Text: "Terminating process 4711", Why: []string{"It was <idle>"}, Rules: []enforce.Rule{"idle"}}
	others, asked, notice := ended, ended, ended
	others.User, asked.Action, notice.ID = "eve", "hold", ""
	list := []audit.HistoryEntry{ended, others, asked, notice}
	complete := true
	options.Recorded = func() ([]audit.HistoryEntry, bool) { return list, complete }
	handler := web.New(f.feed, options)
	page := strings.SplitN(pageOf(t, handler, "/u/zoe"), "What was ended", 2)[1]
	presentAll(t, page, "", "Terminating process 4711: killed", "It was &lt;idle&gt;", "Decision 0a0b0c0d", "gpu-09")
	require.Equal(t, 1, strings.Count(page, "4711: killed"), "others' and operators' aren't there")
	present(t, pageOf(t, handler, "/u/alice"), "process 4000 (user alice, python notebook.py): terminated", "")
	require.Equal(t, http.StatusNotFound, get(t, handler, "/u/nobody").Code)
	present(t, pageOf(t, handler, "/u/bob"), "Nothing in the last 14 days.", "")
	complete = false
	partly := pageOf(t, web.New(f.feed, options), "/u/bob")
	present(t, partly, "Nothing since this controller started.", "")
	present(t, partly, "More may have been ended before", "")
	present(t, pageOf(t, f.handler(), "/u/bob"), "Nothing since this controller started.", "")
	options.Names = web.NoNames
	require.NotContains(t, get(t, web.New(f.feed, options), "/u/zoe").Body.String(), "4711")
}

// TestWithoutRules: nothing is checked, which isn't the same as that nothing is violated.
func TestWithoutRules(t *testing.T) {
	f := newFleet(5, 8)
	feed := live.NewFeed(live.Options{Now: func() time.Time { return f.now }, Interval: 10 * time.Second})
	feed.Consume(f.round.AtEnd(), nil)
	handler := web.New(feed, f.options())
	for _, path := range []string{"/findings", "/u/alice"} {
		page := pageOf(t, handler, path)
		present(t, page, "checks no rules", path)
		absent(t, strings.ToLower(page), "no rule is violated", path)
	}
}

// TestAFailedHost: what it had is neither free nor shown as used now.
func TestAFailedHost(t *testing.T) {
	f := newFleet(1, 8)
	f.round.Cluster.Hosts[0].Err, f.round.Cluster.Hosts[0].Snapshot = io.ErrUnexpectedEOF, nil
	f.now = f.now.Add(10 * time.Minute)
	f.round.Number, f.round.Start = 2, f.now
	f.feed.Consume(f.round.AtEnd(), nil)
	handler := f.handler()
	page := pageOf(t, handler, "/")
	require.Contains(t, page, "<dd>0<small> of 8", "none is free")
	require.Contains(t, page, `aria-label="8 unknown"`)
	require.Contains(t, page, "10 min ago", "the last answer")
	require.NotContains(t, page, "alice")

	f.now = f.now.Add(time.Hour) // no cycle any more
	present(t, pageOf(t, handler, "/"), "The controller may be stuck", "")
}

func TestBeforeTheFirstCycle(t *testing.T) {
	feed := live.NewFeed(live.Options{Now: time.Now})
	handler := web.New(feed, web.Options{Now: time.Now, Names: web.AllNames})
	for _, path := range []string{"/", "/findings"} {
		require.Contains(t, pageOf(t, handler, path), "has just started")
	}
}

// TestHeaders: every answer has them, whatever it is.
func TestHeaders(t *testing.T) {
	f := newFleet(2, 2)
	handler := f.handler(func(o *web.Options) {
		o.Mount = func(mux *http.ServeMux, hide bool) {
			require.False(t, hide)
			mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "metrics") })
		}
	})
	for _, path := range append([]string{"/api/v1/fleet", "/metrics", "/static/style.css", "/static/live.js", "/static/icon.svg", "/none", "/static/../x"}, paths...) {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"} {
			w := get(t, handler, path, func(r *http.Request) { r.Method = method; r.Header.Set("Origin", "https://evil.example") })
			header := w.Header()
			require.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self';")
			require.Contains(t, header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
			require.NotContains(t, header.Get("Content-Security-Policy"), "unsafe")
			require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"))
			require.Equal(t, "no-referrer", header.Get("Referrer-Policy"))
			require.Empty(t, header.Get("Access-Control-Allow-Origin"))
			require.NotEmpty(t, header.Get("Cache-Control"))
			if method != "GET" && method != "HEAD" {
				require.Equal(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
				require.Equal(t, "GET, HEAD", header.Get("Allow"))
			}
		}
	}
	actions := get(t, handler, "/api/v1/actions", func(r *http.Request) { r.Method = http.MethodPost })
	require.Equal(t, http.StatusMethodNotAllowed, actions.Code, "nothing can be done here")
}

// TestHost: only names of loopback and those that are configured, on every path.
func TestHost(t *testing.T) {
	f := newFleet(2, 2)
	handler := f.handler(func(o *web.Options) {
		o.Mount = func(mux *http.ServeMux, _ bool) {
			mux.HandleFunc("GET /metrics", func(http.ResponseWriter, *http.Request) {})
		}
	})
	status := func(path, host string) int {
		return get(t, handler, path, func(r *http.Request) { r.Host = host }).Code
	}
	all := []string{"/", "/h/gpu-01", "/u/alice", "/findings", "/week", "/reservations.ics", "/api/v1/fleet", "/metrics", "/static/live.js"}
	for _, path := range all {
		for _, host := range []string{"localhost", "LOCALHOST:8080", "localhost.", "127.0.0.1", "127.9.8.7:80", "[::1]", "[::1]:8080", "::1", "gpus.example.org", "GPUS.example.org:443", "[::ffff:127.0.0.1]:1"} {
			require.Equal(t, http.StatusOK, status(path, host), "%s of %s", path, host)
		}
		for _, host := range []string{"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[fe80::1]", "xgpus.example.org", "gpus.example.org.evil", "0.0.0.0", "a:b:c", "gpus.example.org@evil"} {
			require.Equal(t, http.StatusMisdirectedRequest, status(path, host), "%s of %s", path, host)
		}
	}
	require.Equal(t, http.StatusMisdirectedRequest, status("/events", "evil.example"))
}

// absent requires that a page doesn't contain something. Unlike require.NotContains it doesn't print the page.
func absent(t *testing.T, page, what, where string) {
	t.Helper()
	at := strings.Index(page, what)
	require.Negative(t, at, "%s: …%s…", where, page[max(0, at-100):min(len(page), max(0, at)+100)])
}

// present is the reverse.
func present(t *testing.T, page, what, where string) {
	t.Helper()
	require.True(t, strings.Contains(page, what), "%s: %s is missing", where, what)
}

func presentAll(t *testing.T, page, where string, list ...string) {
	t.Helper()
	for _, what := range list {
		present(t, page, what, where)
	}
}

// TestManyBrowsers: fifty ask for the page of a thousand hosts at the same time.
func TestManyBrowsers(t *testing.T) {
	f := newFleet(1000, 8)
	handler := f.handler()
	begun := time.Now()
	first := get(t, handler, "/")
	t.Logf("the page of 1000 hosts: %d KB after %s", first.Body.Len()>>10, time.Since(begun))
	require.Equal(t, http.StatusOK, first.Code)
	server := httptest.NewServer(handler)
	defer server.Close()
	begun = time.Now()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			response, err := server.Client().Get(server.URL + "/")
			if err != nil {
				t.Error(err)
				return
			}
			body, err := io.ReadAll(response.Body)
			if err != nil || string(body) != first.Body.String() {
				t.Error("another page", err, len(body))
			}
			_ = response.Body.Close()
		})
	}
	all.Wait()
	t.Logf("fifty browsers: %s", time.Since(begun))
	server.Client().CloseIdleConnections()
}

// TestRendering: once for a revision, and again when its ages have changed.
func TestRendering(t *testing.T) {
	f := newFleet(1, 1)
	handler := f.handler()
	first := get(t, handler, "/")
	tag := first.Header().Get("ETag")
	same := get(t, handler, "/", func(r *http.Request) { r.Header.Set("If-None-Match", tag) })
	require.Equal(t, http.StatusNotModified, same.Code)
	require.Empty(t, same.Body.String())
	packed := get(t, handler, "/", func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip, br") })
	require.Equal(t, "gzip", packed.Header().Get("Content-Encoding"))
	require.Less(t, packed.Body.Len(), first.Body.Len())
	head := get(t, handler, "/", func(r *http.Request) { r.Method = http.MethodHead })
	require.Empty(t, head.Body.String())
	require.Equal(t, fmt.Sprint(first.Body.Len()), head.Header().Get("Content-Length"))
	f.now = f.now.Add(time.Minute)
	present(t, pageOf(t, handler, "/"), "1 min ago", "")
	f.round.Number, f.round.Start = 2, f.now
	f.feed.Consume(f.round.AtEnd(), nil)
	present(t, pageOf(t, handler, "/"), "Cycle 2,", "")
	for i := range 200 { // whatever is asked for is bounded
		get(t, handler, fmt.Sprintf("/?q=%d", i))
	}
}

func BenchmarkOverview(b *testing.B) {
	f := newFleet(1000, 8)
	handler := f.handler()
	for b.Loop() {
		f.now = f.now.Add(time.Minute)
		r := httptest.NewRequest(http.MethodGet, "http://localhost/", http.NoBody)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
}
