package listeners_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
	"golang.org/x/crypto/bcrypt"

	"github.com/seed-3119e985/genv/cmd/genv/listeners"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// read reads flags as a command does.
func read(once bool, flags ...string) (config listeners.Endpoints, err error) {
	app := cli.NewApp()
	o := new(listeners.Flags)
	app.Flags, app.Writer, app.ErrWriter = o.Flags(), io.Discard, io.Discard
	app.ExitErrHandler = func(*cli.Context, error) {}
	app.Action = func(c *cli.Context) (err error) {
		config, err = o.Read(c, func(string) string { return "off" }, once)
		return err
	}
	return config, app.Run(append([]string{"genv"}, flags...))
}

func TestWebFlags(t *testing.T) {
	for flags, want := range map[string]string{
		"--web 127.0.0.1:8080": "", "--web localhost:8080": "", "--web [::1]:8080": "", "--web 127.3.4.5:0 --web-names none": "",
		"--web unix:/x/y": "", "--web unix:/x/y --web-names self": "", "--web 127.0.0.1:1 --web-names self --web-config f": "",
		"--web :443 --web-config f --web-host gpus.example.org": "", "--web 10.0.0.5:443 --web-config f --web-host 10.0.0.5": "",
		"--metrics :9400 --web-config f": "", "--web unix:/x/y --metrics :9400 --web-config f": "",

		"--web 8080":                             "write an address and a port",
		"--web 127.0.0.1":                        "write an address and a port",
		"--web 127.0.0.1:http":                   "write an address and a port",
		"--web 127.0.0.1:70000":                  "write an address and a port",
		"--web unix:":                            "write an address and a port",
		"--web gpus.example.org:80":              "in numbers",
		"--web :8080":                            "can be reached from other machines: say with --web-config",
		"--web 0.0.0.0:8080":                     "can be reached from other machines",
		"--web [::]:8080":                        "can be reached from other machines",
		"--web :443 --web-config f":              "say with --web-host",
		"--web unix:/x --web-config f":           "a unix socket has neither TLS nor passwords",
		"--web 127.0.0.1:1 --web-config=":        "write the path of a file",
		"--web 127.0.0.1:1 --web-names self":     "the page knows who looks only with",
		"--web 127.0.0.1:1 --web-host https://x": "without https://",
		"--web 127.0.0.1:1 --web-host x:80":      "without a port",
		"--web 127.0.0.1:1 --web-host *":         "write a name",
		"--web-names none":                       "--web-names needs --web",
		"--web-config f":                         "--web-config needs --web or --metrics",
		"--web-host x":                           "--web-host needs --web",
	} {
		config, err := read(false, strings.Fields(flags)...)
		if want == "" {
			require.NoError(t, err, flags)
			require.True(t, config.Any(), flags)
			continue
		}
		require.ErrorContains(t, err, want, flags)
	}
	require.ErrorContains(t, proctest.Try(read(true, "--web", "127.0.0.1:1")).Err, "--web needs a loop")
	require.False(t, proctest.Try(read(false)).OK(t).Any())
}

// seen is a feed with a host.
func seen() *live.Feed {
	feed := live.NewFeed(live.Options{Now: time.Now})
	feed.Consume(&controller.Round{Ended: true, Number: 1, Start: time.Now(), Cluster: snapshot.Cluster{Hosts: []snapshot.Host{{
		Name: "gpu-1", Snapshot: &snapshot.Snapshot{
			Devices:      []snapshot.Device{{Name: "H100", Attachments: []snapshot.Attachment{{EID: "1"}}}},
			Environments: []snapshot.Environment{{EID: "1", Username: "alice"}},
		},
	}}}}, nil)
	return feed
}

func open(t *testing.T, flags ...string) *listeners.Listeners {
	return openWith(t, listeners.Content{Feed: seen()}, zerolog.Nop(), flags...)
}

func openWith(t *testing.T, shown listeners.Content, log zerolog.Logger, flags ...string) *listeners.Listeners {
	config := proctest.Try(read(false, flags...)).OK(t)
	l := proctest.Try(listeners.Open(t.Context(), config, shown, log)).OK(t)
	t.Cleanup(l.Close)
	require.Len(t, l.Addresses, 1)
	return l
}

// accessFiles are files of --web-config by what they have, and a certificate in cert, for servers and clients.
func accessFiles(t *testing.T) (dir string) {
	dir = t.TempDir()
	hash := proctest.Try(bcrypt.GenerateFromPassword([]byte("password"), bcrypt.MinCost)).OK(t)
	testfleet.WriteCertificate(t, dir, "genv test", "localhost", "127.0.0.1")
	users := "basic_auth_users: {alice: " + string(hash) + ", bob: " + string(hash) + "}\n"
	const (
		server  = "tls_server_config:\n  cert_file: cert\n  key_file: key\n"
		clients = server + "  client_ca_file: cert\n  client_auth_type: RequireAndVerifyClientCert\n"
	)
	for name, content := range map[string]string{
		"users": users, "tls": server, "both": server + users, "clients": clients,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

func TestAddressOfThePage(t *testing.T) {
	for want, w := range map[string]listeners.Web{
		"":                              {Address: netip.MustParseAddrPort("127.0.0.1:8080")},
		"https://gpus.example.org":      {Address: netip.MustParseAddrPort("127.0.0.1:8080"), Hosts: []string{"gpus.example.org", "g"}},
		"https://a":                     {Unix: "/run/web.sock", Hosts: []string{"a"}},
		"https://b":                     {Address: netip.MustParseAddrPort("0.0.0.0:443"), Hosts: []string{"b"}},
		"https://gpus.example.org:8443": {Address: netip.MustParseAddrPort("0.0.0.0:8443"), Hosts: []string{"gpus.example.org"}},
	} {
		require.Equal(t, want, w.Page())
	}
	require.Empty(t, (&listeners.Web{Hosts: []string{"no page"}}).Page())
}

// TestWebWithTLS: a page and events, with a password. HTTP/2, which make build leaves out, is not offered.
func TestWebWithTLS(t *testing.T) {
	dir := accessFiles(t)
	l := open(t, "--web", "127.0.0.1:0", "--web-config", dir+"/both", "--web-names", "self")
	require.Regexp(t, `^https://127\.0\.0\.1:\d+/$`, l.Addresses[0])
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(proctest.ReadFile(t, dir+"/cert")))
	// It asks for HTTP/2 also where the test was built without it.
	offer := &tls.Config{RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}}
	transport := &http.Transport{TLSClientConfig: offer, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	// ask passes an answer on, and closes it.
	ask := func(path, user string, look func(*http.Response)) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		request := proctest.Try(http.NewRequestWithContext(ctx, http.MethodGet, l.Addresses[0]+path, http.NoBody)).OK(t)
		if user != "" {
			request.SetBasicAuth(user, "password")
		}
		response, err := (&http.Client{Transport: transport}).Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		look(response)
	}
	refused := func(r *http.Response) { require.Equal(t, http.StatusUnauthorized, r.StatusCode) }
	ask("", "", refused)
	ask("events", "eve", refused)
	ask("", "alice", func(page *http.Response) {
		require.Equal(t, http.StatusOK, page.StatusCode)
		require.Equal(t, "http/1.1", page.TLS.NegotiatedProtocol)
		require.Contains(t, string(proctest.Try(io.ReadAll(page.Body)).OK(t)), "alice")
	})
	ask("events", "alice", func(events *http.Response) {
		require.Equal(t, "text/event-stream", events.Header.Get("Content-Type"))
		require.Equal(t, "event: fleet\n", proctest.Try(bufio.NewReader(events.Body).ReadString('\n')).OK(t))
	})
}

// TestWebOnASocket: the proxy says who the user is, and the control socket hides nothing.
func TestWebOnASocket(t *testing.T) {
	dir := t.TempDir()
	l := open(t, "--web", "unix:"+dir+"/web", "--web-names", "self", "--web-host", "gpus.example.org")
	require.Equal(t, []string{"unix:" + dir + "/web"}, l.Addresses)
	info := proctest.Try(os.Stat(dir + "/web")).OK(t)
	require.Zero(t, info.Mode().Perm()&0o007, "others can't connect, who could name any user")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", dir+"/web")
	}}
	ask := func(host, user string) (int, string) {
		return get(t, transport, "http://"+host+"/", func(r *http.Request) { r.Header.Set("X-Forwarded-User", user) })
	}
	status, body := ask("gpus.example.org", "alice")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "/u/alice")
	_, body = ask("localhost", "bob")
	require.NotContains(t, body, "alice")
	status, _ = ask("evil.example", "alice")
	require.Equal(t, http.StatusMisdirectedRequest, status)
}

func TestWebThatCannotBeServed(t *testing.T) {
	dir := accessFiles(t)
	require.NoError(t, os.WriteFile(dir+"/plain", []byte("basic_auth_users: {alice: $apr1$x}\n"), 0o600))
	for flags, want := range map[string]string{
		"--web 127.0.0.1:0 --web-config DIR/none":                     "--web-config: open",
		"--web 127.0.0.1:0 --web-config DIR/plain":                    "htpasswd -nB",
		"--metrics 127.0.0.1:0 --web-config DIR/cert":                 "--web-config: ",
		"--web 192.0.2.77:443 --web-config DIR/both --web-host x":     "not an address of this machine",
		"--web 192.0.2.77:443 --web-config DIR/clients --web-host x":  "not an address of this machine",
		"--web 192.0.2.77:443 --web-config DIR/users --web-host x":    "passwords would cross the network in clear: add tls_server_config",
		"--web 192.0.2.77:443 --web-config DIR/tls --web-host x":      "/tls who may look",
		"--web 127.0.0.1:0 --web-config DIR/clients --web-names self": "only with basic_auth_users",
		"--metrics 192.0.2.77:443 --web-config DIR/tls":               "--metrics: 192.0.2.77 is not an address of this machine",
	} {
		config := proctest.Try(read(false, strings.Fields(strings.ReplaceAll(flags, "DIR", dir))...)).OK(t, flags)
		require.ErrorContains(t, proctest.Try(listeners.Open(t.Context(), config, listeners.Content{Feed: seen()}, zerolog.Nop())).Err, want, flags)
	}
}

// TestMetricsWithTLS: Prometheus needs what the file demands, as a real client shows it.
func TestMetricsWithTLS(t *testing.T) {
	dir := accessFiles(t)
	both := proctest.ReadFile(t, dir+"/clients")
	users := proctest.ReadFile(t, dir+"/users")
	require.NoError(t, os.WriteFile(dir+"/all", append(both, users...), 0o600))
	for file, needs := range map[string][]string{
		"users": {"--user", "alice:password"}, "tls": {"--cacert", dir + "/cert"},
		"clients": {"--cacert", dir + "/cert", "--cert", dir + "/cert", "--key", dir + "/key"},
		"all":     {"--user", "bob:password", "--cacert", dir + "/cert", "--cert", dir + "/cert", "--key", dir + "/key"},
	} {
		l := openWith(t, withMetrics(seen()), zerolog.Nop(), "--metrics", "127.0.0.1:0", "--web-config", dir+"/"+file)
		address := l.Addresses[0]
		require.Equal(t, file != "users", strings.HasPrefix(address, "https://"), file)
		curl := func(args ...string) string {
			out, _ := exec.CommandContext(t.Context(), "curl", append(args, "--silent", "--show-error", "--max-time", "20", "--write-out", "\n%{http_code}", address)...).CombinedOutput() // it may be refused
			return string(out)
		}
		answer := curl(needs...)
		require.Contains(t, answer, "genv_build_info", file)
		require.True(t, strings.HasSuffix(answer, "\n200"), file)
		for i := 0; i < len(needs); i += 2 {
			if needs[i] == "--key" {
				continue
			}
			less := slices.Delete(slices.Clone(needs), i, i+2)
			if needs[i] == "--cert" {
				less = slices.Delete(less, i, i+2)
			}
			answer := curl(less...)
			require.NotContains(t, answer, "genv_", "%s without %s", file, needs[i])
			require.Regexp(t, "(?s)(401|000)$", answer)
		}
		l.Close()
	}
}

// TestAFileThatBreaks: connections go on as before, and the log says why.
func TestAFileThatBreaks(t *testing.T) {
	dir := accessFiles(t)
	var log bytes.Buffer
	l := openWith(t, listeners.Content{Feed: seen()}, zerolog.New(zerolog.SyncWriter(&log)), "--web", "127.0.0.1:0", "--web-config", dir+"/users")
	status := func(user string) int {
		code, _ := get(t, new(http.Transport), l.Addresses[0], func(r *http.Request) { r.SetBasicAuth(user, "password") })
		return code
	}
	require.Equal(t, http.StatusOK, status("alice"))
	require.NoError(t, os.WriteFile(dir+"/users", []byte("basic_auth_usres: {}\n"), 0o600))
	time.Sleep(1100 * time.Millisecond) // it is looked at once a second
	require.Equal(t, http.StatusOK, status("bob"))
	l.Close()
	require.Contains(t, log.String(), "users:1:1: unknown key")
	require.Contains(t, log.String(), "a change of --web-config can't be used")
}

// TestGuessing: 64 connections with wrong passwords keep no one at another address from logging in.
func TestGuessing(t *testing.T) {
	dir := t.TempDir()
	file := "basic_auth_users:\n"
	for i := range 8 {
		hash := proctest.Try(bcrypt.GenerateFromPassword([]byte("password"), bcrypt.DefaultCost)).OK(t)
		file += fmt.Sprintf("  user%d: %s\n", i, hash)
	}
	require.NoError(t, os.WriteFile(dir+"/web.yml", []byte(file), 0o600))
	l := open(t, "--web", "127.0.0.1:0", "--web-config", dir+"/web.yml")
	ask := func(from, user, password string) int {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.Addresses[0]+"static/style.css", http.NoBody)
		if err != nil {
			return 0
		}
		request.SetBasicAuth(user, password)
		response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
		if err != nil {
			return 0
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	var guessing sync.WaitGroup
	var over atomic.Bool
	var busy atomic.Int64
	for range 64 {
		guessing.Go(func() {
			for !over.Load() {
				if ask("127.0.0.1", "user0", "wrong") == http.StatusServiceUnavailable {
					busy.Add(1)
				}
			}
		})
	}
	require.Eventually(t, func() bool { return busy.Load() > 0 }, time.Minute, time.Millisecond)
	for i := range 8 {
		require.Equal(t, http.StatusOK, ask("127.0.0.2", fmt.Sprint("user", i), "password"))
	}
	over.Store(true)
	guessing.Wait()
}

// TestExampleOfWebConfig: Prometheus accepts our example, and so does genv.
func TestExampleOfWebConfig(t *testing.T) {
	dir := accessFiles(t)
	example := proctest.ReadFile(t, "../../../docs/monitoring/web-config.yml")
	text := strings.NewReplacer("# client_", "client_").Replace(string(example)) // with what it only suggests
	for _, name := range regexp.MustCompile(`[\w.-]+\.(pem|key)`).FindAllString(text, -1) {
		from := "cert"
		if strings.HasSuffix(name, ".key") {
			from = "key"
		}
		require.NoError(t, os.Link(filepath.Join(dir, from), filepath.Join(dir, name)))
	}
	for _, content := range []string{string(example), text} {
		path := filepath.Join(dir, "web-config.yml")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		open(t, "--web", "127.0.0.1:0", "--web-config", path)
		proctest.NeedPrograms(t, "promtool")
		proctest.Output(t, exec.CommandContext(t.Context(), "promtool", "check", "web-config", path))
	}
}
