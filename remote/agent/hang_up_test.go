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

// endedWith is a session that ends with an error of its own.
type endedWith struct {
	*scriptedSession
	err error
}

func (s endedWith) Wait() error {
	<-s.ended
	return s.err
}

// TestAHostThatHungUp: a host whose genv has ended in order is waited for longer than one
// whose connection was cut off, which may be dead.
func TestAHostThatHungUp(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ended error
		login time.Duration
		good  bool
	}{
		{"in order, back soon", nil, 4 * time.Second, true},
		{"in order, back late", nil, 6 * time.Second, false},
		{"cut off, back soon", remote.Errorf(remote.OutcomeUnknown, "cut off"), 900 * time.Millisecond, true},
		{"cut off, back late", remote.Errorf(remote.OutcomeUnknown, "cut off"), 4 * time.Second, false},
		{"failed, back soon", remote.Errorf(remote.CommandFailed, "exit status 1"), 4 * time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host, network := remote.Host{Name: "a"}, &scripted{}
				pool := network.pool()
				var sessions []*scriptedSession
				pool.Start = func(ctx context.Context, h remote.Host, c remote.Command) (agent.Session, error) {
					time.Sleep(tt.login)
					s, err := network.start(ctx, h, c)
					session := s.(*scriptedSession)
					sessions = append(sessions, session)
					return endedWith{session, tt.ended}, err
				}
				_, err := pool.Snapshot(t.Context(), host)
				require.NoError(t, err)
				time.Sleep(time.Minute)
				sessions[0].close()
				synctest.Wait()
				_, err = pool.Snapshot(t.Context(), host)
				require.Equal(t, tt.good, err == nil, "%v", err)
				pool.Close()
			})
		})
	}
}
