package shards

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// etcd may be far away: what is asked of it each second doesn't grow with the number of shards.
func TestManyShardsAndASlowEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := election.LeaderKey(Key("/genv/lab", 63))
		cluster := &fake{latency: 200 * time.Millisecond, entries: map[string]etcd.Entry{leader: {Key: leader}}}
		var seen []Seen
		m := NewMembers(MembersOptions{
			Cluster: cluster, Key: "/genv/lab", Self: Member{ID: "a", Name: "a", Count: MaxCount},
			Update: func(s Seen) { seen = append(seen, s) }, Failed: func(err error) { require.NoError(t, err) },
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, m.Run(ctx))
		require.Greater(t, len(seen), 8)
		for _, s := range seen {
			require.Len(t, s.Members, 1)
			require.Equal(t, []int{63}, s.Led)
		}
	})
}
