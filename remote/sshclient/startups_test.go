package sshclient_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// TestManyHostsAtOneServer has sshd's own limit on logins under way, in its
// strictest form: beyond ten, every connection is dropped. What was dropped is
// known as such, so that it can be tried again.
func TestManyHostsAtOneServer(t *testing.T) {
	s := startSSHD(t, "MaxStartups 10:100:10")
	c := newClient(t, sshclient.Options{ConfigFile: s.config(t), ConnectTimeout: time.Minute})
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			host := remote.Host{Name: fmt.Sprintf("gpu-%d", i)}
			_, err := c.Run(t.Context(), host, sh("true"))
			for errors.Is(err, remote.ErrBusy) {
				time.Sleep(10 * time.Millisecond)
				_, err = c.Run(t.Context(), host, sh("true"))
			}
			require.NoError(t, err)
		})
	}
	all.Wait()
	require.Equal(t, 60, logins(t, s))
}
