package web_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/web"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// passwords is a file for alice and another user.
func passwords(t *testing.T) *web.Access {
	text := "basic_auth_users:\n"
	for _, user := range []string{"alice", "mallory-secret"} {
		hash := proctest.Try(bcrypt.GenerateFromPassword([]byte("word of "+user), bcrypt.MinCost)).OK(t)
		text += "  " + user + ": " + string(hash) + "\n"
	}
	path := filepath.Join(t.TempDir(), "web.yml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	access := proctest.Try(web.OpenAccess(path, time.Now, func(err error) { t.Error(err) })).OK(t)
	return access
}

func as(user string) func(*http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(user, "word of "+user) }
}

func TestAuth(t *testing.T) {
	f := newFleet(20, 2)
	handler := f.handler(func(o *web.Options) {
		o.Access, o.Mount = passwords(t), func(mux *http.ServeMux, _ bool) {
			for _, path := range []string{"GET /metrics", "GET /-/healthy"} {
				mux.HandleFunc(path, func(http.ResponseWriter, *http.Request) {})
			}
		}
	})
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
	user := func(handler http.Handler, headers ...string) (int, string) {
		w := get(t, handler, "/me", func(r *http.Request) {
			for i := 0; i < len(headers); i += 2 {
				r.Header.Add(headers[i], headers[i+1])
			}
		})
		return w.Code, w.Header().Get("Location")
	}
	code, _ := user(f.handler(), "X-Forwarded-User", "alice")
	require.Equal(t, http.StatusNotFound, code, "not trusted")
	handler := f.handler(func(o *web.Options) { o.Proxied = true })
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
	h := &f.round.Cluster.Hosts[0]
	h.Labels = map[string]string{"owner": secret}
	s := machine(0, 2, f.now)
	h.Snapshot = s
	s.Warnings = []string{"state of " + secret}
	s.Environments = []snapshot.Environment{{EID: secret, Username: secret, Config: snapshot.EnvConfig{Name: secret}}, {EID: "2", Username: "alice", Config: snapshot.EnvConfig{Name: "mine"}}}
	s.Devices[0].Attachments = []snapshot.Attachment{{EID: secret}}
	s.Devices[1].Attachments = []snapshot.Attachment{{EID: "2"}, {EID: secret}}
	s.Processes = []snapshot.Process{{PID: 9, Username: secret, EID: secret, Command: secret, Container: secret, Usage: []snapshot.DeviceUsage{{Index: 0}, {Index: 1}}}}
	f.round.Cluster.Hosts = append(f.round.Cluster.Hosts, snapshot.Host{Name: "gpu-02", Err: fmt.Errorf("sudo: %s: a password is required", secret)})
	f.round.Plan.Notes = []enforce.Note{{Host: "gpu-01", Text: secret}}
	f.round.Duplicates = []controller.Duplicate{{Name: "gpu-03", SameAs: "gpu-01"}}
	f.round.Unrecorded = fmt.Errorf("open /home/%s/log", secret)
	f.judged(
		enforce.Finding{ID: secret, Rule: enforce.RuleNonEnvProcesses, Host: "gpu-01", PID: 9, EID: secret, User: secret, Command: secret, BlockedBy: secret, Stuck: []enforce.StuckProcess{{Reason: secret}}},
		enforce.Finding{ID: "3", Rule: enforce.RuleMaxDevicesPerUser, User: "alice", Count: &enforce.CountExcess{Used: 3, Limit: 1}},
	)
	f.feed.Consume(&f.round, []enforce.Event{{Kind: enforce.EventHostLost, Host: "gpu-02", Err: fmt.Errorf("%s", secret)}, {Kind: enforce.EventNote, Text: secret}, {Kind: enforce.EventOver, ID: secret}})

	everything := []string{"/", "/?q=mallory", "/h/gpu-01", "/h/gpu-02", "/findings", "/week", "/reservations.ics", "/u/" + secret, "/u/nobody", "/u/alice", "/me", "/api/v1/fleet", "/api/v1/gpus", "/api/v1/findings", "/api/v1/hosts/gpu-01", "/api/v1/users/" + secret, "/api/v1/users/alice", "/api/v1/events", "/metrics", "/none"}
	for names, logins := range map[web.Names][]string{web.NoNames: {"", "alice", secret}, web.OwnName: {"alice"}} {
		hidden := false
		handler := f.handler(naming(names), func(o *web.Options) {
			o.Mount = func(_ *http.ServeMux, hide bool) { hidden = hide }
			if names == web.OwnName {
				o.Access = passwords(t)
			}
		})
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
	handler := f.handler(func(o *web.Options) { o.Names, o.Access = web.OwnName, passwords(t) })
	own := pageOf(t, handler, "/u/alice", as("alice"))
	presentAll(t, own, "/u/alice", "mine", "User alice is using 3 devices", "another user")
	present(t, pageOf(t, handler, "/u/"+secret, as(secret)), secret, "the own page")
	overview := pageOf(t, handler, "/", as("alice"))
	absent(t, overview, "mallory", "after somebody else looked")
	present(t, overview, "The names of others are hidden.", "/")
}

// TestEventsAreHidden: also those that are sent while somebody looks.
func TestEventsAreHidden(t *testing.T) {
	f := newFleet(1, 1)
	for names, want := range map[web.Names]bool{web.AllNames: true, web.NoNames: false} {
		server := httptest.NewServer(f.handler(naming(names)))
		request := proctest.Try(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/events?after=0", http.NoBody)).OK(t)
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
		n := proctest.Try(r.Read(buffer)).OK(t, all.String())
		all.Write(buffer[:n])
	}
}

// writePair writes a certificate with a name, and its key.
func writePair(t *testing.T, dir, name string, changed time.Time) {
	testfleet.WriteCertificate(t, dir, name, "gpus.example.org")
	for _, file := range []string{"cert", "key"} {
		require.NoError(t, os.Chtimes(filepath.Join(dir, file), changed, changed))
	}
}

// TestCertificates are followed when they are renewed.
func TestCertificates(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	path, cert, key := filepath.Join(dir, "web.yml"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	require.NoError(t, os.WriteFile(path, []byte("tls_server_config: {cert_file: cert, key_file: key}\n"), 0o600))
	require.ErrorIs(t, proctest.Try(web.OpenAccess(path, time.Now, nil)).Err, os.ErrNotExist)
	writePair(t, dir, "1", now)
	failed := 0
	access := proctest.Try(web.OpenAccess(path, func() time.Time { return now }, func(error) { failed++ })).OK(t)
	require.Equal(t, web.Demands{TLS: true}, access.Demands())
	config := access.TLS()
	name := func() string {
		config := proctest.Try(config.GetConfigForClient(nil)).OK(t)
		require.Equal(t, uint16(tls.VersionTLS12), config.MinVersion)
		leaf := proctest.Try(x509.ParseCertificate(config.Certificates[0].Certificate[0])).OK(t)
		return leaf.Subject.CommonName
	}
	require.Equal(t, "1", name())

	writePair(t, dir, "2", now.Add(time.Hour))
	now = now.Add(2 * time.Second)
	require.Equal(t, "2", name(), "it was renewed")
	require.Zero(t, failed)
	good := proctest.ReadFile(t, key)
	require.NoError(t, os.WriteFile(key, []byte("half of a k"), 0o600))
	now = now.Add(2 * time.Second)
	require.Equal(t, "2", name(), "while it is being written")
	require.Equal(t, 1, failed)
	require.NoError(t, os.Remove(cert))
	now = now.Add(2 * time.Second)
	require.Equal(t, "2", name())
	writePair(t, dir, "3", now.Add(2*time.Hour))
	now = now.Add(2 * time.Second)
	require.Equal(t, "3", name())
	require.Equal(t, 2, failed)

	later := filepath.Join(dir, "later")
	require.NoError(t, os.Mkdir(later, 0o700))
	require.NoError(t, os.WriteFile(path, []byte("tls_server_config: {cert_file: later/cert, key_file: later/key}\n"), 0o600))
	for range 3 {
		now = now.Add(2 * time.Second)
		require.Equal(t, "3", name(), "what the file names isn't there yet")
	}
	require.Equal(t, 3, failed, "it is said once")
	writePair(t, later, "4", now)
	now = now.Add(2 * time.Second)
	require.Equal(t, "4", name())

	require.NoError(t, os.WriteFile(path, []byte("tls_server_config: {cert_file: cert, key_file: key, min_version: TLS13}\n"), 0o600))
	now = now.Add(2 * time.Second)
	now3 := proctest.Try(config.GetConfigForClient(nil)).OK(t)
	require.Equal(t, uint16(tls.VersionTLS13), now3.MinVersion)

	require.NoError(t, os.WriteFile(key, good, 0o600))
	require.ErrorContains(t, proctest.Try(web.OpenAccess(path, time.Now, nil)).Err, "private key does not match")
}

// TestFIFO: reading a file that is a FIFO doesn't wait for a writer.
func TestFIFO(t *testing.T) {
	const config = `tls_server_config:
  cert_file: cert
  key_file: key
  client_ca_file: ca
  client_auth_type: RequireAndVerifyClientCert
`
	for _, name := range []string{"web.yml", "cert", "key", "ca"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writePair(t, dir, "1", time.Now())
			require.NoError(t, os.Symlink("cert", filepath.Join(dir, "ca")))
			path := filepath.Join(dir, "web.yml")
			require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
			proctest.Try(web.OpenAccess(path, time.Now, nil)).OK(t)
			require.NoError(t, os.Remove(filepath.Join(dir, name)))
			require.NoError(t, unix.Mkfifo(filepath.Join(dir, name), 0o600))
			opened := make(chan error, 1)
			go func() {
				_, err := web.OpenAccess(path, time.Now, nil)
				opened <- err
			}()
			select {
			case err := <-opened:
				require.ErrorContains(t, err, "not a regular file")
			case <-time.After(10 * time.Second):
				require.Fail(t, "it waits")
			}
		})
	}
}

// TestWeakerFiles: a listener that was opened for other machines isn't opened to all by a change.
func TestWeakerFiles(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	writePair(t, dir, "1", now)
	path := filepath.Join(dir, "web.yml")
	const (
		server = "tls_server_config:\n  cert_file: cert\n  key_file: key\n"
		verify = server + "  client_ca_file: cert\n  client_auth_type: RequireAndVerifyClientCert\n"
		users  = "basic_auth_users:\n  alice: $2y$04$abcdefghijklmnopqrstuuWVIXLKmRDiARbKcRUGZqtaZ5APPzjPa\n"
	)
	for _, row := range []struct{ before, after, says string }{
		{server + users, server, "basic_auth_users was removed: restart"},
		{server + users, users, "tls_server_config was added or removed: restart"},
		{users, server + users, "tls_server_config was added or removed: restart"},
		{verify, server, "client certificates aren't required any more: restart"},
		{verify + users, verify, "basic_auth_users was removed"},
		{server, verify, ""},
		{server, server + users, ""},
	} {
		require.NoError(t, os.WriteFile(path, []byte(row.before), 0o600))
		var failed error
		access := proctest.Try(web.OpenAccess(path, func() time.Time { return now }, func(err error) { failed = err })).OK(t)
		before := access.Demands()
		require.NoError(t, os.WriteFile(path, []byte(row.after), 0o600))
		now = now.Add(2 * time.Second)
		after := access.Demands()
		if row.says == "" {
			require.NoError(t, failed)
			require.NotEqual(t, before, after)
			continue
		}
		require.ErrorContains(t, failed, row.says)
		require.Equal(t, before, after)
	}
}
