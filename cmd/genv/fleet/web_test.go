package fleet_test

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
)

// TestWebPage: a controller's hosts in a browser, with the documents and metrics.
func TestWebPage(t *testing.T) {
	f, _ := monitoredFleet(t)
	run := genvtest.Begin(t, "remote", "watch", "-F", f.SSHConfig(), "-H", "ours,old,bare,nosudo,down", "--interval", "200ms", "--socket", "off", "--web", "127.0.0.1:0")
	var site string
	genvtest.Eventually(t, "it says where the page is", func() bool {
		site = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(run.Err.String())
		return site != ""
	})
	client := &http.Client{Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	ask := func(method, path, host string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), method, site+path, http.NoBody)
		require.NoError(t, err)
		request.Host = host
		response, err := client.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	genvtest.Eventually(t, "the first cycle", func() bool {
		status, _ := ask(http.MethodGet, "/-/ready", "")
		return status == http.StatusOK
	})
	_, page := ask(http.MethodGet, "/", "")
	for _, text := range []string{`href="/h/ours"`, `href="/h/down"`, "unreachable", "check that the host is up", "this controller only watches"} {
		require.True(t, strings.Contains(page, text), "%s is missing", text)
	}
	for path, text := range map[string]string{"/h/ours": "63 °C", "/h/down": "Next step", "/api/v1/gpus": "genv.remote.gpus/1", "/metrics": `genv_host_up{host="down"} 0`, "/sd": "ours", "/-/healthy": "healthy"} {
		status, body := ask(http.MethodGet, path, "localhost:1")
		require.Equal(t, http.StatusOK, status, path)
		require.True(t, strings.Contains(body, text), "%s: %s is missing", path, text)
		status, _ = ask(http.MethodGet, path, "evil.example")
		require.Equal(t, http.StatusMisdirectedRequest, status, path)
		status, _ = ask(http.MethodPost, path, "")
		require.Equal(t, http.StatusMethodNotAllowed, status, path)
	}
	status, _ := ask(http.MethodPost, "/api/v1/actions", "")
	require.Equal(t, http.StatusMethodNotAllowed, status)
	require.Equal(t, command.ExitSomeFailed, run.End())
}
