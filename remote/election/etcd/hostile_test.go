package etcd_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// etcd never redirects: what asks for it is something else, and doesn't get the password sent
// to wherever it likes, or speak for etcd.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var leaked atomic.Bool
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		leaked.Store(leaked.Load() || strings.Contains(string(body), "s3cret"))
	}))
	defer thief.Close()
	member := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	defer member.Close()
	_, err := open(t, etcd.Config{Endpoints: []string{member.URL}, User: "genv", Password: "s3cret"}).Get(t.Context(), "/k")
	require.Error(t, err)
	require.False(t, leaked.Load(), "the password was sent to another server")
}
