package etcd_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// A member that was etcd's leader, and has a disk that hangs, answers keep-alives by itself. The read
// after it is answered by another member, in a later term: the lease may not have been renewed.
func TestARenewalByAnEarlierLeaderOfEtcd(t *testing.T) {
	t.Parallel()
	var term atomic.Int32
	term.Store(3)
	stuck := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v3/lease/keepalive" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, `{"result":{"header":{"cluster_id":"1","raft_term":"2"},"ID":"7","TTL":"5"}}`)
	}))
	t.Cleanup(stuck.Close)
	works := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"header":{"cluster_id":"1","raft_term":"%d"},"kvs":[{"key":"L2s=","create_revision":"9"}]}`, term.Load())
	}))
	t.Cleanup(works.Close)
	renew := func(members ...string) error {
		ttl, entry, err := open(t, etcd.Config{Endpoints: members}).Renew(t.Context(), 7, "/k")
		if err == nil {
			require.Equal(t, 5*time.Second, ttl)
			require.EqualValues(t, 9, entry.Created)
		}
		return err
	}
	require.ErrorContains(t, renew(stuck.URL), "etcd doesn't answer")
	require.ErrorContains(t, renew(stuck.URL, works.URL), "etcd elected another leader of its members meanwhile")
	term.Store(2)
	require.NoError(t, renew(stuck.URL, works.URL))
}

// What a member can't do now is asked of the next one. What it refuses for other reasons of the same
// code, such as a lack of space, the others refuse as well.
func TestResourcesThatAreExhausted(t *testing.T) {
	t.Parallel()
	member := func(status int, answer string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, answer)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	exhausted := func(message string) string {
		return member(http.StatusTooManyRequests, fmt.Sprintf(`{"error":%q,"message":%q,"code":8}`, message, message))
	}
	works := member(http.StatusOK, `{"header":{"cluster_id":"1"}}`)
	for message, row := range map[string]struct {
		refused bool
		hint    string
	}{
		"etcdserver: too many requests":                                {false, ""},
		"etcdserver: mvcc: database space exceeded":                    {true, "compact, defragment and disarm the alarm"},
		"etcdserver: request is too large":                             {true, "--max-request-bytes"},
		"grpc: received message larger than max (5242880 vs. 2097152)": {true, ""},
	} {
		busy := exhausted(message)
		_, err := open(t, etcd.Config{Endpoints: []string{busy}}).Get(t.Context(), "/k")
		require.ErrorContains(t, err, message)
		require.ErrorContains(t, err, row.hint)
		require.Equal(t, row.refused, etcd.Refused(err), message)
		_, err = open(t, etcd.Config{Endpoints: []string{busy, works}}).Get(t.Context(), "/k")
		require.Equal(t, row.refused, err != nil, message)
	}
}
