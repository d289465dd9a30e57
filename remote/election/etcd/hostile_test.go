package etcd_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// What answers with empty documents, such as a proxy, is not an etcd that has no keys and no leases: the
// next member is asked.
func TestAnEmptyAnswerIsNotAnEmptyEtcd(t *testing.T) {
	for _, answer := range []string{`{}`, `null`, `{"header":{}}`, `{"result":{}}`, `{"kvs":[]}`, `{"succeeded":true}`} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
		defer proxy.Close()
		c := open(t, etcd.Config{Endpoints: []string{proxy.URL}})
		_, err := c.Get(t.Context(), "/k")
		require.ErrorContains(t, err, "not an answer of etcd", answer)
		_, err = c.Keys(t.Context(), "/k")
		require.ErrorContains(t, err, "not an answer of etcd", answer)
		_, err = c.KeepAlive(t.Context(), 7)
		require.ErrorContains(t, err, "not an answer of etcd", answer)
		_, err = c.Grant(t.Context(), time.Second)
		require.ErrorContains(t, err, "not an answer of etcd", answer)
		err = c.WriteAfter(t.Context(), "/k", 1, "/k", 1)
		require.ErrorContains(t, err, "not an answer of etcd", answer)
		require.ErrorContains(t, c.Revoke(t.Context(), 7), "not an answer of etcd", answer)

		member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"header":{"cluster_id":"1"},"kvs":[{"key":"L2s=","create_revision":"7"}]}`)
		}))
		defer member.Close()
		entry, err := open(t, etcd.Config{Endpoints: []string{proxy.URL, member.URL}}).Get(t.Context(), "/k")
		require.NoError(t, err)
		require.EqualValues(t, 7, entry.Created)
	}
}
