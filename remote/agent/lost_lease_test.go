package agent_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
)

// TestReportsThatWaitWhileAnotherControllerTakesOver: whatever a report waited for, it isn't sent
// after the controller has lost its lease, and the host is not lost for that.
func TestReportsThatWaitWhileAnotherControllerTakesOver(t *testing.T) {
	const takes = 3 * time.Second
	begun := 0
	carryOut := func() { begun++; time.Sleep(takes) }
	for name, row := range map[string]struct {
		network *scripted
		second  remote.Host // the first report is for host a
	}{
		"for a place among commands": {second: remote.Host{Name: "b"}, network: &scripted{fanout: 1, command: func(context.Context, remote.Host) (remote.Output, error) {
			carryOut()
			return remote.Output{}, nil
		}}},
		"for its turn on a connection": {second: remote.Host{Name: "a"}, network: &scripted{
			capabilities: []string{agent.RequestSnapshot, agent.RequestExecute},
			execute: func(context.Context) (agent.Execution, error) {
				carryOut()
				return agent.Execution{Outcomes: []enforce.Outcome{{PID: 7, Status: enforce.StatusTerminated}}}, nil
			},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun = 0
				pool := row.network.pool()
				defer pool.Close()
				first := remote.Host{Name: "a"}
				for _, h := range []remote.Host{first, row.second} {
					_, err := pool.Snapshot(t.Context(), h)
					require.NoError(t, err)
				}
				var replaced atomic.Bool
				errReplaced := remote.Errorf(remote.Cancelled, "replaced")
				ctx := remote.While(t.Context(), func() error {
					if replaced.Load() {
						return errReplaced
					}
					return nil
				})
				ended := make(chan error)
				go func() {
					_, err := pool.Execute(ctx, first, oneProcess)
					ended <- err
				}()
				synctest.Wait()
				time.AfterFunc(takes/2, func() { replaced.Store(true) })
				_, err := pool.Execute(ctx, row.second, oneProcess)
				require.ErrorIs(t, err, agent.ErrNotSent)
				require.ErrorIs(t, err, errReplaced)
				require.Equal(t, remote.Cancelled, remote.ClassOf(err))
				require.NoError(t, <-ended, "what was sent before is waited for")
				require.Equal(t, 1, begun)

				replaced.Store(false)
				connected := time.Now()
				_, err = pool.Execute(ctx, row.second, oneProcess)
				require.NoError(t, err, "the connection is good")
				require.Equal(t, takes, time.Since(connected))
			})
		})
	}
}

// TestACommandThatWasNotBegun: the lease ended while the command logged in. The host isn't lost for that.
func TestACommandThatWasNotBegun(t *testing.T) {
	replaced, errReplaced := true, remote.Errorf(remote.Cancelled, "replaced")
	asked := 0
	ctx := remote.While(t.Context(), func() error {
		if asked++; replaced && asked > 1 {
			return errReplaced
		}
		return nil
	})
	n := &scripted{command: func(ctx context.Context, _ remote.Host) (remote.Output, error) {
		return remote.Output{}, remote.MayBegin(ctx) // as the SSH client does after the login
	}}
	pool, host := n.pool(), remote.Host{Name: "a"}
	defer pool.Close()
	_, err := pool.Snapshot(t.Context(), host)
	require.NoError(t, err)
	_, err = pool.Execute(ctx, host, oneProcess)
	require.ErrorIs(t, err, errReplaced)
	replaced = false
	_, err = pool.Execute(ctx, host, oneProcess)
	require.NoError(t, err)
}
