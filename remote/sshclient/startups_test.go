package sshclient_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// TestManyHostsAtOneServer has sshd's own limit on logins under way, in its
// strictest form: beyond ten, every connection is dropped.
func TestManyHostsAtOneServer(t *testing.T) {
	s := startSSHD(t, "MaxStartups 10:100:10")
	c := newClient(t, sshclient.Options{ConfigFile: s.config(t), ConnectTimeout: time.Minute})
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			_, err := c.Run(t.Context(), remote.Host{Name: fmt.Sprintf("gpu-%d", i)}, sh("true"))
			require.NoError(t, err)
		})
	}
	all.Wait()
	require.Equal(t, 60, logins(t, s))
}
