package agent_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/agent"
)

// slow takes ten seconds for an order, and no time for what else is asked.
func slow(_ context.Context, r agent.Call) ([]byte, error) {
	if r.Name == agent.RequestExecute {
		time.Sleep(10 * time.Second)
	}
	return []byte("done"), nil
}

// TestTheServerEndsWhenItsProgramIsReplaced: soon, but neither before an order is carried
// out nor because the file was away for a moment.
func TestTheServerEndsWhenItsProgramIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var replaced atomic.Bool
		server := &agent.Responder{Token: "t", Greeting: greeting, Handler: slow, Idle: time.Hour, Replaced: replaced.Load}
		in, out, ended := both(t.Context(), server)
		stream, err := agent.OpenStream(t.Context(), in, out, "t")
		require.NoError(t, err)
		running := func() {
			t.Helper()
			synctest.Wait()
			require.Empty(t, ended)
		}
		time.Sleep(time.Minute)
		running()
		replaced.Store(true)
		time.Sleep(300 * time.Millisecond)
		running()
		replaced.Store(false)
		time.Sleep(time.Minute)
		running()

		executed := make(chan error, 1)
		go func() {
			_, err := stream.Call(t.Context(), agent.RequestExecute, nil)
			executed <- err
		}()
		synctest.Wait()
		replaced.Store(true)
		time.Sleep(9 * time.Second)
		running()
		_, err = stream.Call(t.Context(), "ping", nil)
		require.NoError(t, err, "it answers meanwhile")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.NoError(t, <-executed)
		require.ErrorIs(t, <-ended, agent.ErrReplaced)
		require.NoError(t, out.Close())
		require.NoError(t, in.Close())
	})
}
