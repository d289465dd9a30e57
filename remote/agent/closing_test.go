package agent_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
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

// A pool can be closed while calls are under way: it waits for them, and refuses others.
func TestClosingDuringCalls(t *testing.T) {
	t.Parallel()
	for range 50 {
		f := startFleet(t, 5*time.Second, genvhost.New(busy(1)))
		begun, ended := make(chan struct{}), make(chan error)
		go func() {
			_, err := f.streams.Snapshot(t.Context(), f.hosts[0])
			close(begun)
			for err == nil {
				_, err = f.streams.Snapshot(t.Context(), f.hosts[0])
			}
			ended <- err
		}()
		<-begun
		f.streams.Close()
		require.Error(t, <-ended)
		_, err := f.streams.Snapshot(t.Context(), f.hosts[0])
		require.ErrorContains(t, err, "are closed")
	}
}
