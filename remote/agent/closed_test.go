package agent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
)

// neverReached is a network in which nothing is ever reached.
type neverReached struct{}

func (neverReached) Run(ctx context.Context, _ remote.Host, _ remote.Command) (remote.Output, error) {
	<-ctx.Done()
	return remote.Output{}, remote.Errorf(remote.Cancelled, "stopped")
}
func (neverReached) Peer(remote.Host) (remote.Peer, bool)     { return remote.Peer{}, false }
func (neverReached) Probe(context.Context, remote.Host) error { return remote.ErrNoProbe }
func (neverReached) Disconnect(remote.Host)                   {}

// A host that leaves the fleet while it is dialled for the first time has an error.
func TestLeavingTheFleetWhileDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := &agent.Pool{Network: neverReached{}, Timeout: 5 * time.Second, Start: func(ctx context.Context, _ remote.Host, _ remote.Command) (agent.Session, error) {
			<-ctx.Done()
			return nil, remote.Errorf(remote.Cancelled, "stopped")
		}}
		defer pool.Close()
		time.AfterFunc(time.Second, func() { pool.Keep(nil) })
		s, err := pool.Snapshot(t.Context(), remote.Host{Name: "a"})
		require.Nil(t, s)
		require.Equal(t, remote.Cancelled, remote.ClassOf(err))
		require.ErrorContains(t, err, "not in the fleet any more")
	})
}
