package shards

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// A member of etcd that hangs may answer KeepAlive without the others. Nothing follows from that: the
// controller's key may have expired for all others, and another run of it may have one.
func TestAKeepAliveAloneSaysNothing(t *testing.T) {
	cluster := &fake{entries: make(map[string]etcd.Entry)}
	updates := 0
	m := NewMembers(MembersOptions{
		Cluster: cluster, Key: "/genv/lab", Self: Member{ID: "a", Name: "a", Count: 2}, Update: func(Seen) { updates++ },
	})
	require.NoError(t, m.step(t.Context()))
	require.Equal(t, 1, updates)

	cluster.unread = errors.New("no answer")
	require.ErrorIs(t, m.step(t.Context()), cluster.unread)
	require.Equal(t, 1, updates)
	cluster.unread = nil
	require.NoError(t, m.step(t.Context()))
	require.Equal(t, 2, updates)

	key := m.ownKey()
	other := cluster.entries[key]
	other.Created, other.Lease = 1000, 1000
	cluster.entries[key] = other
	for range 3 {
		require.ErrorIs(t, m.step(t.Context()), ErrTaken)
	}
	require.Equal(t, 2, updates, "the key is another run's")
	require.Equal(t, other, cluster.entries[key], "it is left to that run")

	delete(cluster.entries, key)
	require.NoError(t, m.step(t.Context()))
	require.Equal(t, 3, updates)
}
