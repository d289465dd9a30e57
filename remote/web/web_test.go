package web_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/web"
	"github.com/seed-3119e985/genv/remote/web/htpasswd"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var paths = []string{"/", "/?q=a&free=1&model=x", "/h/gpu-01", "/h/gpu-06", "/u/alice", "/findings"}

func TestPages(t *testing.T) {
	f := newFleet(20, 8)
	f.judged(usual(f.now)...)
	handler := web.New(f.feed, f.options())
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
	for _, text := range []string{"A100-SXM4-80GB", "<dd>35<small> of 152", "connection refused", "check that the host is up", `href="/u/alice"`, `href="/h/gpu-20"`} {
		present(t, overview, text, "/")
	}
	present(t, pageOf(t, handler, "/h/gpu-06"), "Next step: check that the host is up", "")
	alice := pageOf(t, handler, "/u/alice")
	for _, text := range []string{"18<small> of at most 5", "Process 4000 is not running in a GPU environment", "process 4000 (user alice, python notebook.py): terminated", "non-env-processes"} {
		present(t, alice, text, "/u/alice")
	}
	present(t, pageOf(t, handler, "/u/bob"), "in 20 min", "")
	require.NotContains(t, pageOf(t, handler, "/?q=gpu-07"), `href="/h/gpu-08"><`, "the filter is for hosts")
	for path, text := range map[string]string{"/h/gpu-99": "no host of this name", "/u/nobody": "No user of this name", "/x": "no such page", "/h/..%2f": "no host"} {
		w := get(t, handler, path)
		require.Equal(t, http.StatusNotFound, w.Code, path)
		require.Contains(t, w.Body.String(), text)
	}
	require.Equal(t, http.StatusNotFound, get(t, handler, "/me").Code)
}

// TestAFailedHost: what it had is neither free nor shown as used now.
func TestAFailedHost(t *testing.T) {
	f := newFleet(1, 8)
	f.cycle.Cluster.Hosts[0].Err, f.cycle.Cluster.Hosts[0].Snapshot = io.ErrUnexpectedEOF, nil
	f.now = f.now.Add(10 * time.Minute)
	f.cycle.Number, f.cycle.Start = 2, f.now
	f.feed.Show(&f.cycle)
	handler := web.New(f.feed, f.options())
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
	options := f.options()
	options.Mount = func(mux *http.ServeMux, hide bool) {
		require.False(t, hide)
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "metrics") })
	}
	handler := web.New(f.feed, options)
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
	for _, path := range []string{"/api/v1/actions"} {
		require.Equal(t, http.StatusMethodNotAllowed, get(t, handler, path, func(r *http.Request) { r.Method = http.MethodPost }).Code, "nothing can be done here")
	}
}

// TestHost: only names of loopback and those that are configured, on every path.
func TestHost(t *testing.T) {
	f := newFleet(2, 2)
	options := f.options()
	options.Mount = func(mux *http.ServeMux, _ bool) {
		mux.HandleFunc("GET /metrics", func(http.ResponseWriter, *http.Request) {})
	}
	handler := web.New(f.feed, options)
	status := func(path, host string) int {
		return get(t, handler, path, func(r *http.Request) { r.Host = host }).Code
	}
	all := []string{"/", "/h/gpu-01", "/u/alice", "/findings", "/api/v1/fleet", "/metrics", "/static/live.js"}
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

// TestHostileNames: of users, environments, commands, containers, images, models, labels and
// warnings.
func TestHostileNames(t *testing.T) {
	for name, evil := range map[string]string{
		"markup":     `<script>alert(1)</script><img src=x onerror=alert(1)>`,
		"attribute":  `"><svg onload=alert(1)>' onmouseover='x`,
		"template":   "{{.Fleet}} ${x} `x` </textarea></title></script>",
		"escapes":    "\x1b[31mred\x1b]0;title\x07\n\r\n\tx\u202eevil\u200b\xff\xfe",
		"url":        "javascript:alert(1)",
		"path":       "../../api/v1/fleet?x#y%2f",
		"dots":       "..",
		"ten KB":     strings.Repeat("<b>&\"'", 1800),
		"diacritics": strings.Repeat("e\u0301\u0302\u0303", 500),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(1, 1)
			h := &f.cycle.Cluster.Hosts[0]
			s := machine(0, 1, f.now)
			h.Snapshot = s
			h.Labels = map[string]string{"room": evil, evil: "x"}
			s.Warnings = []string{evil}
			s.Devices[0].Name = evil
			s.Environments = []snapshot.Environment{{EID: "7", Username: snapshot.Username(evil), Config: snapshot.EnvConfig{Name: evil}}}
			s.Devices[0].Attachments = []snapshot.Attachment{{EID: "7"}}
			s.Processes = []snapshot.Process{{PID: 9, Username: snapshot.Username(evil), EID: snapshot.EnvID(evil), Command: evil, Container: evil, Usage: []snapshot.DeviceUsage{{Index: 0}}}}
			f.cycle.Number++
			f.cycle.Plan.Notes = []enforce.Note{{Host: "gpu-01", Text: evil}}
			f.judged(enforce.Finding{ID: evil, Rule: enforce.RuleNonEnvProcesses, Host: "gpu-01", PID: 9, EID: snapshot.EnvID(evil), User: snapshot.Username(evil), Command: evil, Container: evil, Waits: evil, Pending: true, Stuck: []enforce.StuckProcess{{Reason: evil}}})
			handler := web.New(f.feed, f.options())
			for _, path := range []string{"/", "/h/gpu-01", "/findings", "/?q=" + "%3Cscript%3E"} {
				page := pageOf(t, handler, path)
				require.Less(t, len(page), 64<<10, "%s is bounded", path)
				if name != "template" && name != "url" && name != "path" && name != "dots" { // which are harmless as texts
					absent(t, page, evil, path)
				}
				for _, bad := range []string{"<script>", "<img src=x", "<svg onload", "</textarea>", "<b>", "\x1b", "\u202e", "\u200b", "href=\"javascript", "href=\"..", "\xff"} {
					absent(t, page, bad, path)
				}
				absent(t, page, "ZgotmplZ", path)
			}
		})
	}
}

// absent requires that a page doesn't contain something. Unlike require.NotContains it
// doesn't print the page.
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

// TestALotOfEverything: a host may report as much as it likes.
func TestALotOfEverything(t *testing.T) {
	f := newFleet(1, 1)
	s := &snapshot.Snapshot{}
	for i := range 2000 {
		user := snapshot.Username(fmt.Sprintf("user-%d", i))
		s.Devices = append(s.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), Name: fmt.Sprintf("model %d", i)})
		s.Devices[0].Attachments = append(s.Devices[0].Attachments, snapshot.Attachment{EID: snapshot.EnvID(user)})
		s.Environments = append(s.Environments, snapshot.Environment{EID: snapshot.EnvID(user), Username: user})
		s.Processes = append(s.Processes, snapshot.Process{PID: snapshot.PID(i + 1), Username: user, Usage: []snapshot.DeviceUsage{{Index: 0}}})
		s.Warnings = append(s.Warnings, "warning")
		f.cycle.Plan.Notes = append(f.cycle.Plan.Notes, enforce.Note{Text: "note"})
	}
	f.cycle.Cluster.Hosts[0].Snapshot = s
	findings := make([]enforce.Finding, 2000)
	for i := range findings {
		findings[i] = enforce.Finding{ID: fmt.Sprint(i), Rule: enforce.RuleNonEnvProcesses, Host: "gpu-01", PID: snapshot.PID(i + 1), User: "user-1"}
	}
	f.judged(findings...)
	handler := web.New(f.feed, f.options())
	for _, path := range []string{"/", "/h/gpu-01", "/u/user-1", "/findings"} {
		page := pageOf(t, handler, path)
		require.Less(t, len(page), 640<<10, path)
	}
	present(t, pageOf(t, handler, "/h/gpu-01"), "and 1744 more GPUs", "")
	present(t, pageOf(t, handler, "/"), "and 1700 more", "")
	present(t, pageOf(t, handler, "/findings"), "and 1500 more", "")
}

// passwords is a file for alice and bob.
func passwords(t *testing.T) *htpasswd.File {
	var text string
	for _, user := range []string{"alice", "mallory-secret"} {
		hash, err := bcrypt.GenerateFromPassword([]byte("word of "+user), bcrypt.MinCost)
		require.NoError(t, err)
		text += user + ":" + string(hash) + "\n"
	}
	path := filepath.Join(t.TempDir(), "htpasswd")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	file, err := htpasswd.Open(path, time.Now)
	require.NoError(t, err)
	return file
}

func as(user string) func(*http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(user, "word of "+user) }
}

func TestAuth(t *testing.T) {
	f := newFleet(20, 2)
	options := f.options()
	options.Passwords = passwords(t)
	options.Mount = func(mux *http.ServeMux, _ bool) {
		for _, path := range []string{"GET /metrics", "GET /-/healthy"} {
			mux.HandleFunc(path, func(http.ResponseWriter, *http.Request) {})
		}
	}
	handler := web.New(f.feed, options)
	for _, path := range append([]string{"/api/v1/fleet", "/events", "/metrics", "/static/style.css", "/me", "/none"}, paths...) {
		for _, change := range []func(*http.Request){
			func(*http.Request) {},
			func(r *http.Request) { r.SetBasicAuth("alice", "wrong") },
			func(r *http.Request) { r.SetBasicAuth("alice", "") },
			func(r *http.Request) { r.SetBasicAuth("eve", "word of alice") },
			func(r *http.Request) { r.SetBasicAuth(strings.Repeat("x", 10<<10), "word of alice") },
			func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") },
			func(r *http.Request) { r.Header.Set("X-Forwarded-User", "alice") },
		} {
			w := get(t, handler, path, change)
			require.Equal(t, http.StatusUnauthorized, w.Code, path)
			require.Contains(t, w.Header().Get("WWW-Authenticate"), "Basic")
			require.NotContains(t, w.Body.String(), "gpu-")
		}
	}
	pageOf(t, handler, "/", as("alice"))
	w := get(t, handler, "/me", as("alice"))
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "/u/alice", w.Header().Get("Location"))
	require.Equal(t, http.StatusOK, get(t, handler, "/-/healthy").Code, "it says nothing about anybody")
}

// TestProxied: the header counts only where the proxy alone can connect.
func TestProxied(t *testing.T) {
	f := newFleet(20, 2)
	options := f.options()
	user := func(handler http.Handler, headers ...string) (int, string) {
		w := get(t, handler, "/me", func(r *http.Request) {
			for i := 0; i < len(headers); i += 2 {
				r.Header.Add(headers[i], headers[i+1])
			}
		})
		return w.Code, w.Header().Get("Location")
	}
	code, _ := user(web.New(f.feed, options), "X-Forwarded-User", "alice")
	require.Equal(t, http.StatusNotFound, code, "not trusted")
	options.Proxied = true
	handler := web.New(f.feed, options)
	for _, headers := range [][]string{{"X-Forwarded-User", "alice"}, {"X-Auth-Request-User", "alice"}, {"X-Auth-Request-User", "alice", "X-Forwarded-User", "alice"}} {
		code, location := user(handler, headers...)
		require.Equal(t, http.StatusSeeOther, code)
		require.Equal(t, "/u/alice", location)
	}
	for _, headers := range [][]string{{"X-Forwarded-User", "alice", "X-Forwarded-User", "bob"}, {"X-Auth-Request-User", "alice", "X-Forwarded-User", "bob"}, {"X-Forwarded-User", strings.Repeat("a", 999)}} {
		code, _ := user(handler, headers...)
		require.Equal(t, http.StatusBadRequest, code)
	}
	code, _ = user(handler)
	require.Equal(t, http.StatusNotFound, code)
}

// TestHiddenNames: a name that is in every field isn't on any path.
func TestHiddenNames(t *testing.T) {
	const secret = "mallory-secret"
	f := newFleet(1, 2)
	h := &f.cycle.Cluster.Hosts[0]
	h.Labels = map[string]string{"owner": secret}
	s := machine(0, 2, f.now)
	h.Snapshot = s
	s.Warnings = []string{"state of " + secret}
	s.Environments = []snapshot.Environment{{EID: secret, Username: secret, Config: snapshot.EnvConfig{Name: secret}}, {EID: "2", Username: "alice", Config: snapshot.EnvConfig{Name: "mine"}}}
	s.Devices[0].Attachments = []snapshot.Attachment{{EID: secret}}
	s.Devices[1].Attachments = []snapshot.Attachment{{EID: "2"}, {EID: secret}}
	s.Processes = []snapshot.Process{{PID: 9, Username: secret, EID: secret, Command: secret, Container: secret, Usage: []snapshot.DeviceUsage{{Index: 0}, {Index: 1}}}}
	f.cycle.Cluster.Hosts = append(f.cycle.Cluster.Hosts, snapshot.Host{Name: "gpu-02", Err: fmt.Errorf("sudo: %s: a password is required", secret)})
	f.cycle.Plan.Notes = []enforce.Note{{Host: "gpu-01", Text: secret}}
	f.cycle.Duplicates = []controller.Duplicate{{Name: "gpu-03", SameAs: "gpu-01"}}
	f.cycle.Unrecorded = fmt.Errorf("open /home/%s/log", secret)
	f.judged(
		enforce.Finding{ID: secret, Rule: enforce.RuleNonEnvProcesses, Host: "gpu-01", PID: 9, EID: secret, User: secret, Command: secret, Waits: secret, Stuck: []enforce.StuckProcess{{Reason: secret}}},
		enforce.Finding{ID: "3", Rule: enforce.RuleMaxDevicesPerUser, User: "alice", Count: &enforce.CountExcess{Used: 3, Limit: 1}},
	)
	f.feed.Consume(&f.cycle, []enforce.Event{{Kind: enforce.EventHostLost, Host: "gpu-02", Err: fmt.Errorf("%s", secret)}, {Kind: enforce.EventNote, Text: secret}, {Kind: enforce.EventOver, ID: secret}})

	everything := []string{"/", "/?q=mallory", "/h/gpu-01", "/h/gpu-02", "/findings", "/u/" + secret, "/u/nobody", "/u/alice", "/me", "/api/v1/fleet", "/api/v1/gpus", "/api/v1/findings", "/api/v1/hosts/gpu-01", "/api/v1/users/" + secret, "/api/v1/users/alice", "/api/v1/events", "/metrics", "/none"}
	for names, logins := range map[web.Names][]string{web.NoNames: {"", "alice", secret}, web.OwnName: {"alice"}} {
		options := f.options()
		options.Names = names
		hidden := false
		options.Mount = func(_ *http.ServeMux, hide bool) { hidden = hide }
		if names == web.OwnName {
			options.Passwords = passwords(t)
		}
		handler := web.New(f.feed, options)
		require.True(t, hidden)
		for _, login := range logins {
			for _, path := range everything {
				w := get(t, handler, path, as(login))
				text := strings.ReplaceAll(w.Body.String(), `value="mallory"`, "") // what was searched for
				absent(t, text, "mallory", fmt.Sprintf("%s of %s by %q", path, names, login))
				require.NotContains(t, fmt.Sprint(w.Header()), "mallory")
				if names == web.NoNames && login != "alice" {
					absent(t, text, "alice", path)
				}
			}
			one, other := get(t, handler, "/u/"+secret, as(login)), get(t, handler, "/u/nobody", as(login))
			require.Equal(t, other.Code, one.Code)
			require.Equal(t, other.Body.String(), one.Body.String(), "it doesn't say who exists")
		}
	}
	options := f.options()
	options.Names, options.Passwords = web.OwnName, passwords(t)
	handler := web.New(f.feed, options)
	own := pageOf(t, handler, "/u/alice", as("alice"))
	for _, text := range []string{"mine", "User alice is using 3 devices", "another user"} {
		present(t, own, text, "/u/alice")
	}
	present(t, pageOf(t, handler, "/u/"+secret, as(secret)), secret, "the own page")
	overview := pageOf(t, handler, "/", as("alice"))
	absent(t, overview, "mallory", "after somebody else looked")
	present(t, overview, "The names of others are hidden.", "/")
}

// TestEventsAreHidden: also those that are sent while somebody looks.
func TestEventsAreHidden(t *testing.T) {
	f := newFleet(1, 1)
	for names, want := range map[web.Names]bool{web.AllNames: true, web.NoNames: false} {
		options := f.options()
		options.Names = names
		server := httptest.NewServer(web.New(f.feed, options))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/events?after=0", http.NoBody)
		require.NoError(t, err)
		response, err := server.Client().Do(request)
		require.NoError(t, err)
		require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
		f.judged(enforce.Finding{ID: "1", Rule: enforce.RuleNonEnvProcesses, Host: "gpu-01", PID: 9, User: "mallory", Command: "mallory"})
		text := readUntil(t, response.Body, "non-env-processes", "event: fleet")
		require.Equal(t, want, strings.Contains(text, "mallory"), names)
		require.NoError(t, response.Body.Close())
		server.CloseClientConnections()
		server.Close()
	}
}

// readUntil reads until all texts were there.
func readUntil(t *testing.T, r io.Reader, texts ...string) string {
	var all strings.Builder
	buffer := make([]byte, 4096)
	for {
		missing := false
		for _, text := range texts {
			missing = missing || !strings.Contains(all.String(), text)
		}
		if !missing {
			return all.String()
		}
		n, err := r.Read(buffer)
		require.NoError(t, err, all.String())
		all.Write(buffer[:n])
	}
}

// TestManyBrowsers: fifty ask for the page of a thousand hosts at the same time.
func TestManyBrowsers(t *testing.T) {
	f := newFleet(1000, 8)
	handler := web.New(f.feed, f.options())
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
	handler := web.New(f.feed, f.options())
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
	f.cycle.Number, f.cycle.Start = 2, f.now
	f.feed.Show(&f.cycle)
	present(t, pageOf(t, handler, "/"), "Cycle 2,", "")
	for i := range 200 { // whatever is asked for is bounded
		get(t, handler, fmt.Sprintf("/?q=%d", i))
	}
}

func BenchmarkOverview(b *testing.B) {
	f := newFleet(1000, 8)
	handler := web.New(f.feed, f.options())
	for b.Loop() {
		f.now = f.now.Add(time.Minute)
		r := httptest.NewRequest(http.MethodGet, "http://localhost/", http.NoBody)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
}
