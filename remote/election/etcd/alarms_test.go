package etcd_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/etcdcluster"
)

func TestOutOfSpace(t *testing.T) {
	t.Parallel()
	cluster := etcdcluster.Start(t, 1, "--quota-backend-bytes", "4194304")
	client := open(t, etcd.Config{Endpoints: cluster.Endpoints()})
	out := func() bool {
		out, err := client.OutOfSpace(t.Context())
		require.NoError(t, err)
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
	full, err := client.Get(t.Context(), "/full")
	require.NoError(t, err)
	cluster.FreeSpace(full.Modified)
	require.False(t, out())

	cluster.Kill(0)
	_, err = client.OutOfSpace(t.Context())
	require.Error(t, err)
}

// With users, it needs no other role than keys do.
func TestOutOfSpaceWithUsers(t *testing.T) {
	t.Parallel()
	cluster := etcdcluster.Start(t, 1)
	cluster.AddUser("genv", "x", "/genv/")
	out, err := open(t, etcd.Config{Endpoints: cluster.Endpoints(), User: "genv", Password: "x"}).OutOfSpace(t.Context())
	require.NoError(t, err)
	require.False(t, out)
}
