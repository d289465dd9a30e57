package listeners_test

import (
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/listeners"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/remote/web"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:9400": "127.0.0.1:9400", "localhost:0": "127.0.0.1:0", ":9400": "0.0.0.0:9400", "[::1]:9400": "[::1]:9400",
		"192.0.2.1:80": "192.0.2.1:80", "": "", "9400": "", "127.0.0.1": "", "127.0.0.1:": "", "127.0.0.1:65536": "", "127.0.0.1:-1": "",
		"gpu-01:9400": "", "http://127.0.0.1:9400": "", "::1:9400": "",
	} {
		flags := new(listeners.Flags)
		app := &cli.App{Flags: flags.Flags(), Writer: io.Discard, ErrWriter: io.Discard, Action: func(c *cli.Context) error {
			config, err := flags.Read(c, func(string) string { return "" }, false)
			if want == "" {
				require.ErrorContains(t, err, "--metrics", text)
				return nil
			}
			require.NoError(t, err, text)
			require.Equal(t, want, config.Metrics.String(), text)
			require.True(t, config.Asked())
			require.ErrorContains(t, proctest.Try(flags.Read(c, func(string) string { return "" }, true)).Err, "--metrics needs a loop")
			return nil
		}}
		require.NoError(t, app.Run([]string{"genv", "--metrics", text}))
	}
}

// get asks for a URL over a connection of its own, and returns the status and the content.
func get(t *testing.T, transport *http.Transport, url string, change func(*http.Request)) (int, string) {
	t.Helper()
	request := proctest.Try(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)).OK(t)
	change(request)
	transport.DisableKeepAlives = true
	answer, err := transport.RoundTrip(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	body := proctest.Try(io.ReadAll(answer.Body)).OK(t)
	return answer.StatusCode, string(body)
}

// withMetrics is a feed and its metrics.
func withMetrics(feed *live.Feed) listeners.Content {
	counters := metrics.NewCounters(time.Now(), time.Second)
	return listeners.Content{Feed: feed, Metrics: &metrics.Exporter{Feed: feed, Counters: counters, Now: time.Now, Version: "v7"}}
}

func TestMetrics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	shown := withMetrics(live.NewFeed(live.Options{Now: time.Now}))
	config := listeners.Endpoints{Socket: listeners.Socket{Path: path}, Metrics: netip.MustParseAddrPort("127.0.0.1:0")}
	open := proctest.Try(listeners.Open(t.Context(), config, shown, zerolog.Nop())).OK(t)
	defer open.Close()
	require.Len(t, open.Addresses, 2)
	url := open.Addresses[1]
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/metrics$`, url)
	ask := func(host, path string) (int, string) {
		return get(t, new(http.Transport), strings.TrimSuffix(url, "/metrics")+path, func(r *http.Request) { r.Host = host })
	}
	for host, want := range map[string]int{
		"localhost:9400": http.StatusOK, "LOCALHOST.": http.StatusOK, "127.0.0.1": http.StatusOK, "127.9.9.9:80": http.StatusOK, "[::1]:9400": http.StatusOK,
		"evil.example": http.StatusMisdirectedRequest, "127.0.0.1.evil.example:9400": http.StatusMisdirectedRequest,
		"localhost.evil.example": http.StatusMisdirectedRequest, "192.0.2.1:9400": http.StatusMisdirectedRequest,
	} {
		code, body := ask(host, "/metrics")
		require.Equal(t, want, code, host)
		require.Equal(t, want == http.StatusOK, strings.Contains(body, `genv_build_info{version="v7"`), host)
	}
	for path, want := range map[string]int{"/-/healthy": 200, "/-/ready": 503, "/sd": 200, "/api/v1/fleet": 404, "/events": 404, "/": 404} {
		code, _ := ask("localhost", path)
		require.Equal(t, want, code, path)
	}

	config.Socket.Path = ""
	config.Metrics = netip.MustParseAddrPort("192.0.2.77:0")
	_, err := listeners.Open(t.Context(), config, shown, zerolog.Nop())
	require.ErrorContains(t, err, "--metrics: 192.0.2.77 is not an address of this machine")
}

// TestMetricsOnEveryAddress: Prometheus comes by whichever name.
func TestMetricsOnEveryAddress(t *testing.T) {
	shown := withMetrics(live.NewFeed(live.Options{Now: time.Now}))
	open := proctest.Try(listeners.Open(t.Context(), listeners.Endpoints{Metrics: netip.MustParseAddrPort("0.0.0.0:0")}, shown, zerolog.Nop())).OK(t)
	defer open.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(open.Addresses[0], "http://["), "]:")
	code, _ := get(t, new(http.Transport), "http://127.0.0.1:"+port, func(r *http.Request) { r.Host = "jump.lab:9400" })
	require.Equal(t, http.StatusOK, code)
}

// TestMetricsOfTheWebPage: without users where it hides their names.
func TestMetricsOfTheWebPage(t *testing.T) {
	feed, counters := live.NewFeed(live.Options{Now: time.Now}), metrics.NewCounters(time.Now(), time.Second)
	round := &controller.Round{Number: 1, Start: time.Now(), Cluster: snapshot.Cluster{Hosts: []snapshot.Host{{Name: "gpu-1", Snapshot: &snapshot.Snapshot{
		Environments: []snapshot.Environment{{EID: "7", Username: "alice"}}, Devices: []snapshot.Device{{Attachments: []snapshot.Attachment{{EID: "7"}}}},
	}}}}}
	counters.Consume(round.AtEnd(), nil)
	feed.Consume(round.AtEnd(), nil)
	shown := listeners.Content{Feed: feed, Metrics: &metrics.Exporter{Feed: feed, Counters: counters, Now: time.Now}}
	for names, want := range map[web.Names]bool{web.AllNames: true, web.NoNames: false} {
		open, err := listeners.Open(t.Context(), listeners.Endpoints{Web: listeners.Web{Address: netip.MustParseAddrPort("127.0.0.1:0"), Names: names}}, shown, zerolog.Nop())
		require.NoError(t, err)
		_, text := get(t, new(http.Transport), open.Addresses[0]+"metrics", func(*http.Request) {})
		require.Equal(t, want, strings.Contains(text, "alice"), names)
		require.Contains(t, text, `genv_host_up{host="gpu-1"} 1`)
		open.Close()
	}
}
