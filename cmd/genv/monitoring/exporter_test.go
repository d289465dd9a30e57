package monitoring

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatIsServed(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	e := &exporter{now: func() time.Time { return now }, maxAge: 40 * time.Second}
	ask := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
		return w
	}
	require.Empty(t, ask("GET", "/metrics").Body.String(), "nothing was collected yet")
	require.Equal(t, http.StatusOK, ask("GET", "/metrics").Code)

	e.publish([]byte("genv_is_installed 1\n"), now)
	for _, path := range []string{"/metrics", "/", "/metrics?x=1"} {
		got := ask("GET", path)
		require.Equal(t, "genv_is_installed 1\n", got.Body.String(), path)
		require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", got.Header().Get("Content-Type"))
		got = ask("HEAD", path)
		require.Empty(t, got.Body.String())
		require.Equal(t, "20", got.Header().Get("Content-Length"))
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT"} {
		got := ask(method, "/metrics")
		require.Equal(t, http.StatusMethodNotAllowed, got.Code, method)
		require.Equal(t, "GET, HEAD", got.Header().Get("Allow"))
	}
	for _, path := range []string{"/metrics/", "/debug/pprof/", "/../etc/passwd", "/x"} {
		require.Equal(t, http.StatusNotFound, ask("GET", path).Code, path)
	}

	now = now.Add(40 * time.Second)
	require.NotEmpty(t, ask("GET", "/metrics").Body.String())
	now = now.Add(time.Second)
	require.Empty(t, ask("GET", "/metrics").Body.String(), "they are too old")
	e.publish([]byte("genv_is_installed 0\n"), now)
	require.NotEmpty(t, ask("GET", "/metrics").Body.String())
}
