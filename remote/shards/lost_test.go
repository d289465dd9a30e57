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

// A controller is registered while it runs, and not any more when it has ended in order. One that can't
// join, since another one has its id, leaves that one's registration alone. What was known of an earlier
// run on the same host is that of this one.
func TestMembersAreRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &fake{latency: time.Millisecond, entries: make(map[string]etcd.Entry)}
		run := func(ctx context.Context, id string) error {
			return NewMembers(MembersOptions{
				Cluster: cluster, Key: "/genv/lab", Self: Member{ID: id, Name: "genv on " + id, Count: 2},
				Registered: election.Registration{Candidate: election.Candidate{ID: "folder " + id, Name: "genv on " + id}, Host: "jump-1", Shards: 2},
				Update:     func(Seen) {}, Failed: func(error) {},
			}).Run(ctx)
		}
		known := func() (names []string) {
			list, err := election.Registered(t.Context(), cluster, "/genv/lab")
			require.NoError(t, err)
			for i := range list {
				require.False(t, list[i].Lost)
				names = append(names, list[i].Name)
			}
			return names
		}
		killed := etcd.Entry{Key: "/genv/lab/known/folder a@jump-1", Value: []byte(`{"schema":"genv.election.controller/1","id":"folder a","host":"jump-1"}`)}
		cluster.entries[killed.Key] = killed // it ran without shards
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, "a") }()
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"genv on a"}, known())
		require.ErrorIs(t, run(t.Context(), "a"), ErrSame)
		require.Equal(t, []string{"genv on a"}, known())
		cancel()
		require.NoError(t, <-ended)
		require.Empty(t, known())
	})
}
