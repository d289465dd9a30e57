package shards

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/etcdcluster"
)

// A key that was deleted by hand, while its lease lives, is written again as soon as it is missed,
// with all that the member says.
func TestADeletedMemberIsRegisteredAgain(t *testing.T) {
	client := etcd.New(etcd.Config{Endpoints: etcdcluster.Start(t, 1).Endpoints()})
	defer client.Close()
	var seen Seen
	m := NewMembers(MembersOptions{
		Cluster: client, Key: "/genv/lab", Self: Member{ID: "a", Name: "a", Count: 2}, Update: func(s Seen) { seen = s },
	})
	require.NoError(t, m.step(t.Context()))
	require.Len(t, seen.Members, 1)
	first, joined := m.lease, m.joined

	other, err := client.Grant(t.Context(), time.Minute)
	require.NoError(t, err)
	key := m.ownKey()
	require.NoError(t, client.Put(t.Context(), key, []byte("{}"), other.ID))
	require.NoError(t, client.Revoke(t.Context(), other.ID), "deletes the key, not the lease of the member")
	require.NoError(t, m.step(t.Context()))
	entry, err := client.Get(t.Context(), key)
	require.NoError(t, err)
	require.NotNil(t, entry, "it is written again")
	require.Equal(t, m.lease, entry.Lease)
	require.Greater(t, m.joined, joined)
	left, err := client.KeepAlive(t.Context(), first)
	require.NoError(t, err)
	require.Zero(t, left, "the lease of before is not left behind")
	says := Member{ID: "a", Name: "a", Count: 2, Ready: []int{0}, Left: []int{1}, Blind: []int{2}, Seeing: []int{3}, Joined: m.joined}
	m.Set(&says)
	require.NoError(t, m.step(t.Context()))
	require.Equal(t, []Member{says}, seen.Members)
	m.leave(t.Context())
}
