package etcd_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

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
			hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				note(r, "hangs")
				<-r.Context().Done()
			}))
			t.Cleanup(hangs.Close)
			works := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				note(r, "works")
				_, _ = io.WriteString(w, `{"header":{"cluster_id":"1"}}`)
			}))
			t.Cleanup(works.Close)
			c := open(t, etcd.Config{Endpoints: []string{hangs.URL, works.URL}})
			ctx, cancel := context.WithTimeout(t.Context(), row.within)
			defer cancel()
			_, err := c.Get(ctx, "/k")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NoError(t, c.Put(t.Context(), "/k", nil, 0))
			for _, member := range row.next {
				require.Equal(t, member, <-asked)
			}
			require.Empty(t, asked)
		})
	}
}
