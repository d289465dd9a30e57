package listeners_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
	"golang.org/x/crypto/bcrypt"

	"github.com/seed-3119e985/genv/cmd/genv/listeners"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
)

// read reads flags as a command does.
func read(once bool, flags ...string) (config listeners.Config, err error) {
	app := cli.NewApp()
	app.Flags, app.Writer, app.ErrWriter = listeners.Flags(), io.Discard, io.Discard
	app.ExitErrHandler = func(*cli.Context, error) {}
	app.Action = func(c *cli.Context) (err error) {
		config, err = listeners.ReadConfig(c, func(string) string { return "off" }, once)
		return err
	}
	return config, app.Run(append([]string{"genv"}, flags...))
}

func TestWebFlags(t *testing.T) {
	for flags, want := range map[string]string{
		"--web 127.0.0.1:8080": "", "--web localhost:8080": "", "--web [::1]:8080": "", "--web 127.3.4.5:0 --web-names none": "",
		"--web unix:/x/y": "", "--web unix:/x/y --web-names self": "", "--web 127.0.0.1:1 --web-names self --web-auth f": "",
		"--web :443 --web-auth f --web-tls-cert c --web-tls-key k --web-host gpus.example.org": "",
		"--web 10.0.0.5:443 --web-auth f --web-tls-cert c --web-tls-key k --web-host 10.0.0.5": "",

		"--web 8080":                "write an address and a port",
		"--web 127.0.0.1":           "write an address and a port",
		"--web 127.0.0.1:http":      "write an address and a port",
		"--web 127.0.0.1:70000":     "write an address and a port",
		"--web unix:":               "write an address and a port",
		"--web gpus.example.org:80": "in numbers",
		"--web :8080":               "can be reached from other machines: say with --web-auth",
		"--web 0.0.0.0:8080":        "can be reached from other machines",
		"--web [::]:8080 --web-tls-cert c --web-tls-key k":         "can be reached from other machines",
		"--web 192.168.1.1:8080 --web-auth f":                      "passwords would cross the network in clear",
		"--web :443 --web-auth f --web-tls-cert c --web-tls-key k": "say with --web-host",
		"--web 127.0.0.1:1 --web-tls-cert c":                       "belong together",
		"--web 127.0.0.1:1 --web-tls-key c":                        "belong together",
		"--web unix:/x --web-tls-key k --web-tls-cert c":           "a unix socket has no TLS",
		"--web 127.0.0.1:1 --web-names self":                       "the page knows who looks only with",
		"--web 127.0.0.1:1 --web-names some":                       "write all, self or none",
		"--web 127.0.0.1:1 --web-host https://x":                   "without https://",
		"--web 127.0.0.1:1 --web-host x:80":                        "without a port",
		"--web 127.0.0.1:1 --web-host *":                           "write a name",
		"--web-names none":                                         "--web-names needs --web",
		"--web-auth f":                                             "--web-auth needs --web",
		"--web-host x":                                             "--web-host needs --web",
	} {
		config, err := read(false, strings.Fields(flags)...)
		if want == "" {
			require.NoError(t, err, flags)
			require.True(t, config.Any(), flags)
			continue
		}
		require.ErrorContains(t, err, want, flags)
	}
	_, err := read(true, "--web", "127.0.0.1:1")
	require.ErrorContains(t, err, "--web needs a loop")
	config, err := read(false)
	require.NoError(t, err)
	require.False(t, config.Any())
}

// seen is a feed with a host.
func seen() *live.Feed {
	feed := live.NewFeed(live.Options{Now: time.Now})
	feed.Show(&controller.Cycle{Number: 1, Start: time.Now(), Cluster: snapshot.Cluster{Hosts: []snapshot.Host{{
		Name: "gpu-1", Snapshot: &snapshot.Snapshot{
			Devices:      []snapshot.Device{{Name: "H100", Attachments: []snapshot.Attachment{{EID: "1"}}}},
			Environments: []snapshot.Environment{{EID: "1", Username: "alice"}},
		},
	}}}})
	return feed
}

func open(t *testing.T, flags ...string) *listeners.Listeners {
	config, err := read(false, flags...)
	require.NoError(t, err)
	l, err := listeners.Open(t.Context(), config, listeners.Shown{Feed: seen()}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(l.Close)
	require.Len(t, l.Addresses, 1)
	return l
}

func writeFiles(t *testing.T, serial int64) (dir string) {
	dir = t.TempDir()
	hash, err := bcrypt.GenerateFromPassword([]byte("password"), bcrypt.MinCost)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "htpasswd"), append([]byte("alice:"), hash...), 0o600))
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	require.NoError(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cert"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	return dir
}

// TestWebWithTLS: a page and events, with a password. HTTP/2, which make build leaves out, is not
// offered to those who would prefer it.
func TestWebWithTLS(t *testing.T) {
	dir := writeFiles(t, 1)
	l := open(t, "--web", "127.0.0.1:0", "--web-auth", dir+"/htpasswd", "--web-tls-cert", dir+"/cert", "--web-tls-key", dir+"/key", "--web-names", "self")
	require.Regexp(t, `^https://127\.0\.0\.1:\d+/$`, l.Addresses[0])
	roots := x509.NewCertPool()
	pemText, err := os.ReadFile(dir + "/cert")
	require.NoError(t, err)
	require.True(t, roots.AppendCertsFromPEM(pemText))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	// ask passes an answer on, and closes it.
	ask := func(path, user string, look func(*http.Response)) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.Addresses[0]+path, http.NoBody)
		require.NoError(t, err)
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
		body, err := io.ReadAll(page.Body)
		require.NoError(t, err)
		require.Contains(t, string(body), "alice")
	})
	ask("events", "alice", func(events *http.Response) {
		require.Equal(t, "text/event-stream", events.Header.Get("Content-Type"))
		line, err := bufio.NewReader(events.Body).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "event: fleet\n", line)
	})
}

// TestWebOnASocket: the proxy says who the user is, and the control socket hides nothing.
func TestWebOnASocket(t *testing.T) {
	dir := t.TempDir()
	l := open(t, "--web", "unix:"+dir+"/web", "--web-names", "self", "--web-host", "gpus.example.org")
	require.Equal(t, []string{"unix:" + dir + "/web"}, l.Addresses)
	info, err := os.Stat(dir + "/web")
	require.NoError(t, err)
	require.Zero(t, info.Mode().Perm()&0o007, "others can't connect, who could name any user")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", dir+"/web")
	}}
	defer transport.CloseIdleConnections()
	ask := func(host, user string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/", http.NoBody)
		require.NoError(t, err)
		request.Header.Set("X-Forwarded-User", user)
		response, err := (&http.Client{Transport: transport}).Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
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
	dir := writeFiles(t, 1)
	require.NoError(t, os.WriteFile(dir+"/plain", []byte("alice:$apr1$x\n"), 0o600))
	for flags, want := range map[string]string{
		"--web 127.0.0.1:0 --web-auth " + dir + "/none":                                                                                   "no such file",
		"--web 127.0.0.1:0 --web-auth " + dir + "/plain":                                                                                  "htpasswd -B",
		"--web 127.0.0.1:0 --web-tls-cert " + dir + "/cert --web-tls-key " + dir + "/htpasswd":                                            "--web",
		"--web 192.0.2.77:443 --web-auth " + dir + "/htpasswd --web-tls-cert " + dir + "/cert --web-tls-key " + dir + "/key --web-host x": "not an address of this machine",
	} {
		config, err := read(false, strings.Fields(flags)...)
		require.NoError(t, err, flags)
		_, err = listeners.Open(t.Context(), config, listeners.Shown{Feed: seen()}, zerolog.Nop())
		require.ErrorContains(t, err, want, flags)
	}
}
