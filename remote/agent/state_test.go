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

// TestStates walks through all states of a connection.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := remote.Host{Name: "a"}
		refused := false
		answer := make(chan struct{})
		pool := (&scripted{execute: func(context.Context) (agent.Execution, error) {
			<-answer
			return terminated("")
		}}).pool()
		start := pool.Start
		pool.Start = func(ctx context.Context, h remote.Host, c remote.Command) (agent.Session, error) {
			time.Sleep(time.Second) // the login
			if refused {
				return nil, remote.Errorf(remote.Unreachable, "connection refused")
			}
			s, err := start(ctx, h, c)
			return lateGreeting{s}, err
		}
		in := func(want agent.State) {
			synctest.Wait()
			require.Equal(t, want, pool.About(host).State)
		}
		in(agent.StateIdle)
		asked := make(chan error)
		go func() {
			_, err := pool.Snapshot(t.Context(), host)
			asked <- err
		}()
		in(agent.StateDialing)
		time.Sleep(1500 * time.Millisecond)
		in(agent.StateGreeting)
		require.NoError(t, <-asked)
		in(agent.StateReady)
		go func() {
			_, err := pool.Execute(t.Context(), host, oneProcess)
			asked <- err
		}()
		in(agent.StateAsking)
		close(answer)
		require.NoError(t, <-asked)
		in(agent.StateReady)
		pool.Keep(nil)
		in(agent.StateIdle)

		refused = true
		_, err := pool.Snapshot(t.Context(), host)
		require.Equal(t, remote.Unreachable, remote.ClassOf(err))
		in(agent.StateBackingOff)
		time.Sleep(time.Hour) // nothing is asked
		in(agent.StateLost)
		pool.Close()
	})
}

// lateGreeting is a session that says nothing for a second.
type lateGreeting struct{ agent.Session }

func (s lateGreeting) Read(p []byte) (int, error) {
	n, err := s.Session.Read(p)
	time.Sleep(time.Second)
	return n, err
}
