package election_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/etcdcluster"
)

// etcd refuses to write when its space is used up: who leads goes on, and can resign, but no
// other one can take its place until there is space, and it says why.
func TestTheSpaceOfEtcdIsUsedUp(t *testing.T) {
	t.Parallel()
	c := etcdcluster.Start(t, 1, "--quota-backend-bytes", "4194304")
	client := etcd.New(etcd.Config{Endpoints: c.Endpoints()})
	t.Cleanup(client.Close)
	a := stand(t, c, "a")
	a.becomesLeader(t)
	epoch := a.Status().Epoch
	require.Eventually(t, func() bool {
		err := client.Write(t.Context(), election.LeaderKey("/genv/lab"), epoch, etcd.Entry{Key: "/genv/lab/part", Value: bytes.Repeat([]byte("x"), 1<<20)})
		return etcd.Refused(err)
	}, patience, time.Millisecond)
	leader, err := client.Get(t.Context(), election.LeaderKey("/genv/lab"))
	require.NoError(t, err)
	ttl, err := client.KeepAlive(t.Context(), leader.Lease)
	require.NoError(t, err, "who leads can renew its lease")
	require.Equal(t, election.TTL, ttl)
	require.Equal(t, epoch, a.Status().Epoch)

	a.resign()
	b := stand(t, c, "b")
	require.Eventually(t, func() bool { return etcd.Refused(b.Status().Err) }, patience, time.Millisecond)
	require.False(t, b.Leads())
	status := b.Status()
	require.Equal(t, "standby; etcd refuses what this controller asks, so it can't lead", status.Shown().String())
	part, err := client.Get(t.Context(), "/genv/lab/part")
	require.NoError(t, err)
	c.FreeSpace(part.Modified)
	b.becomesLeader(t)
	require.Greater(t, b.Status().Epoch, epoch)
	require.NoError(t, b.Status().Err)
}

// An etcd that asks clients for certificates elects those that have one.
func TestCertificates(t *testing.T) {
	t.Parallel()
	c, files := etcdcluster.StartTLS(t, 3)
	for _, row := range []struct {
		name   string
		config etcd.Config
		err    string
	}{
		{"with a certificate", etcd.Config{Endpoints: c.Endpoints(), TLS: files.Config(t)}, ""},
		{"without one", etcd.Config{Endpoints: c.Endpoints(), TLS: files.Anonymous(t)}, "remote error: tls: "},
		{"of an authority that isn't known", etcd.Config{Endpoints: c.Endpoints()}, "certificate signed by unknown authority"},
	} {
		client := etcd.New(row.config)
		begun := time.Now()
		e := election.New(election.Options{
			Cluster: client, Key: "/genv/lab", Self: election.Candidate{ID: row.name},
			Clock: func() time.Duration { return time.Since(begun) }, Now: time.Now,
		})
		campaign(t, client, e)
		if row.err == "" {
			(&candidate{Elector: e}).becomesLeader(t)
			continue
		}
		require.Eventually(t, func() bool { return e.Status().Err != nil }, patience, time.Millisecond, row.name)
		require.ErrorContains(t, e.Status().Err, row.err, row.name)
		require.False(t, e.Leads(), row.name)
	}
}
