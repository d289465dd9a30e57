package etcd_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestOutOfSpace(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcd(t, 1, "--quota-backend-bytes", "4194304")
	client := open(t, etcd.Config{Endpoints: cluster.Endpoints()})
	out := func() bool {
		out := proctest.Try(client.OutOfSpace(t.Context())).OK(t)
		return out
	}
	require.False(t, out())
	value := bytes.Repeat([]byte("x"), 1<<20)
	var err error
	for range 20 {
		if err = client.Put(t.Context(), "/full", value, 0); err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "database space exceeded")
	require.True(t, out())
	full := proctest.Try(client.Get(t.Context(), "/full")).OK(t)
	cluster.FreeSpace(full.Modified)
	require.False(t, out())

	cluster.Kill(0)
	require.Error(t, proctest.Try(client.OutOfSpace(t.Context())).Err)
}

// With users, it needs no other role than keys do.
func TestOutOfSpaceWithUsers(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcd(t, 1)
	cluster.AddUser("genv", "x", "/genv/")
	out := proctest.Try(open(t, etcd.Config{Endpoints: cluster.Endpoints(), User: "genv", Password: "x"}).OutOfSpace(t.Context())).OK(t)
	require.False(t, out)
}

// A member that was etcd's leader, and has a disk that hangs, answers keep-alives by itself. The read
// after it is answered by another member, in a later term: the lease may not have been renewed.
func TestARenewalByAnEarlierLeaderOfEtcd(t *testing.T) {
	t.Parallel()
	var term atomic.Int32
	term.Store(3)
	stuck := member(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v3/lease/keepalive" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, `{"result":{"header":{"cluster_id":"1","raft_term":"2"},"ID":"7","TTL":"5"}}`)
	})
	works := member(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"header":{"cluster_id":"1","raft_term":"%d"},"kvs":[{"key":"L2s=","create_revision":"9"}]}`, term.Load())
	})
	renew := func(members ...string) error {
		ttl, entry, err := open(t, etcd.Config{Endpoints: members}).Renew(t.Context(), 7, "/k")
		if err == nil {
			require.Equal(t, 5*time.Second, ttl)
			require.EqualValues(t, 9, entry.Created)
		}
		return err
	}
	require.ErrorContains(t, renew(stuck), "etcd doesn't answer")
	require.ErrorContains(t, renew(stuck, works), "etcd elected another leader of its members meanwhile")
	term.Store(2)
	require.NoError(t, renew(stuck, works))
}

// What a member can't do now is asked of the next one. What it refuses for other reasons of the same
// code, such as a lack of space, the others refuse as well.
func TestResourcesThatAreExhausted(t *testing.T) {
	t.Parallel()
	works := member(t, answers(http.StatusOK, `{"header":{"cluster_id":"1"}}`))
	for message, row := range map[string]struct {
		refused bool
		hint    string
	}{
		"etcdserver: too many requests":                                {false, ""},
		"etcdserver: mvcc: database space exceeded":                    {true, "compact, defragment and disarm the alarm"},
		"etcdserver: request is too large":                             {true, "--max-request-bytes"},
		"grpc: received message larger than max (5242880 vs. 2097152)": {true, ""},
	} {
		busy := member(t, answers(http.StatusTooManyRequests, fmt.Sprintf(`{"error":%q,"message":%q,"code":8}`, message, message)))
		_, err := open(t, etcd.Config{Endpoints: []string{busy}}).Get(t.Context(), "/k")
		require.ErrorContains(t, err, message)
		require.ErrorContains(t, err, row.hint)
		require.Equal(t, row.refused, etcd.Refused(err), message)
		_, err = open(t, etcd.Config{Endpoints: []string{busy, works}}).Get(t.Context(), "/k")
		require.Equal(t, row.refused, err != nil, message)
	}
}

// etcd never redirects: what asks for it is something else, and doesn't get the password sent
// to wherever it likes, or speak for etcd.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var leaked atomic.Bool
	thief := member(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		leaked.Store(leaked.Load() || strings.Contains(string(body), "s3cret"))
	})
	redirects := member(t, http.RedirectHandler(thief, http.StatusTemporaryRedirect).ServeHTTP)
	require.Error(t, proctest.Try(open(t, etcd.Config{Endpoints: []string{redirects}, User: "genv", Password: "s3cret"}).Get(t.Context(), "/k")).Err)
	require.False(t, leaked.Load(), "the password was sent to another server")
}

// What answers with empty documents, such as a proxy, is not an etcd that has no keys and no leases: the
// next member is asked.
func TestAnEmptyAnswerIsNotAnEmptyEtcd(t *testing.T) {
	works := member(t, answers(http.StatusOK, `{"header":{"cluster_id":"1"},"kvs":[{"key":"L2s=","create_revision":"7"}]}`))
	for _, answer := range []string{`{}`, `null`, `{"header":{}}`, `{"result":{}}`, `{"kvs":[]}`, `{"succeeded":true}`} {
		proxy := member(t, answers(http.StatusOK, answer))
		c := open(t, etcd.Config{Endpoints: []string{proxy}})
		_, errGet := c.Get(t.Context(), "/k")
		_, errList := c.List(t.Context(), "/k")
		_, errKeep := c.KeepAlive(t.Context(), 7)
		_, _, errGrant := c.Grant(t.Context(), time.Second)
		_, errPut := c.PutAfter(t.Context(), "/k", 1, "/k", 1, nil)
		for _, err := range []error{errGet, errList, errKeep, errGrant, errPut, c.Revoke(t.Context(), 7)} {
			require.ErrorContains(t, err, "not an answer of etcd", answer)
		}
		entry := proctest.Try(open(t, etcd.Config{Endpoints: []string{proxy, works}}).Get(t.Context(), "/k")).OK(t)
		require.EqualValues(t, 7, entry.Created)
	}
}

// A member that hangs isn't asked first by the next call, also if the time of the call ended with it. A call
// that had hardly any time left says nothing about a member.
func TestAMemberThatHangs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		within time.Duration // the first call has to end
		next   []string      // are asked by the next call
	}{
		{"a call ends before the member's time", 700 * time.Millisecond, []string{"works"}},
		{"a call ends with the member's time", time.Second, []string{"works"}},
		{"a call had no time left", 50 * time.Millisecond, []string{"hangs", "works"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan string, 10) // by the second call, which writes
			note := func(r *http.Request, member string) {
				_, _ = io.Copy(io.Discard, r.Body)
				if r.URL.Path != "/v3/kv/range" {
					asked <- member
				}
			}
			hangs := member(t, func(_ http.ResponseWriter, r *http.Request) {
				note(r, "hangs")
				<-r.Context().Done()
			})
			works := member(t, func(w http.ResponseWriter, r *http.Request) {
				note(r, "works")
				_, _ = io.WriteString(w, `{"header":{"cluster_id":"1"}}`)
			})
			c := open(t, etcd.Config{Endpoints: []string{hangs, works}})
			ctx, cancel := context.WithTimeout(t.Context(), row.within)
			defer cancel()
			require.ErrorIs(t, proctest.Try(c.Get(ctx, "/k")).Err, context.DeadlineExceeded)
			require.NoError(t, c.Put(t.Context(), "/k", nil, 0))
			for _, member := range row.next {
				require.Equal(t, member, <-asked)
			}
			require.Empty(t, asked)
		})
	}
}

func TestParseURL(t *testing.T) {
	for url, want := range map[string]etcd.Address{
		"etcd://a:2379,b:2380,c/genv/lab": {Endpoints: []string{"http://a:2379", "http://b:2380", "http://c:2379"}, Key: "/genv/lab"},
		"etcds://etcd-1.lab:2379/x":       {Endpoints: []string{"https://etcd-1.lab:2379"}, Key: "/x", TLS: true},
		"etcd://[fd00::1]:2379/x":         {Endpoints: []string{"http://[fd00::1]:2379"}, Key: "/x"},
	} {
		got := proctest.Try(etcd.ParseURL(url)).OK(t, url)
		require.Equal(t, want, got)
	}
	for url, why := range map[string]string{
		"":                            "write etcd://",
		"http://a:2379/x":             "write etcd://",
		"a:2379/x":                    "write etcd://",
		"etcd://a:2379":               "a key such as",
		"etcd://a:2379/":              "a key such as",
		"etcd://a:2379/x/":            "write the key as /x",
		"etcd://a:2379//x":            "write the key as /x",
		"etcd://a:2379/x/../y":        "write the key as /y",
		"etcd://root:secret@a:2379/x": "don't belong there",
		"etcd://root:s/e@a:2379/x":    "don't belong there",
		"etcd://a:2379,/x":            `"" is not an address`,
		"etcd:///x":                   `"" is not an address`,
		"etcd://a:b/x":                "is not an address",
		"etcd://a:0/x":                "is not an address",
		"etcd://a:65536/x":            "is not an address",
		"etcd://a:+1/x":               "is not an address",
		"etcd://:2379/x":              "is not an address",
		"etcd://fd00::1/x":            "is not an address",
		"etcd://a:2379/x?y":           "none of",
		"etcd://a:2379/" + strings.Repeat("x", 300): "at most 256 bytes",
	} {
		require.ErrorContains(t, proctest.Try(etcd.ParseURL(url)).Err, why, url)
	}
}
