package agent_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
)

func ofFolder(name string) *fence.LeaseRequest {
	return &fence.LeaseRequest{Who: fence.Folder(name), Epoch: 1, Controller: name}
}

// A host that is removed from the list of a controller may be acted on by another one, and by
// the same one if it is added again.
func TestRemovedHostsAreReleased(t *testing.T) {
	f := &fenced{file: &fence.LeaseFile{Path: filepath.Join(t.TempDir(), "note.json"), Now: time.Now}}
	h := remote.Host{Name: "a"}
	acts := func(p *agent.Pool) error {
		if _, err := p.Snapshot(t.Context(), h); err != nil {
			return err
		}
		_, err := p.Execute(t.Context(), h, oneProcess)
		return err
	}
	first, second := f.controller(t, ofFolder("first")), f.controller(t, ofFolder("second"))
	require.NoError(t, acts(first))
	first.Keep([]remote.Host{h})
	require.Error(t, acts(second), "it stays")
	moved := h
	moved.Port++
	first.Keep([]remote.Host{moved})
	require.Error(t, acts(second), "it stays, at another port")
	first.Keep([]remote.Host{h})
	require.NoError(t, acts(first))

	first.Keep(nil)
	require.NoError(t, acts(first), "it is back")
	require.Error(t, acts(second))
	first.Keep(nil)
	require.NoError(t, acts(second))
	require.Equal(t, remote.Replaced, remote.ClassOf(acts(first)))
	second.Keep(nil)
	require.NoError(t, acts(first))
}

// A controller that only looks releases nothing.
func TestWhoOnlyLooksReleasesNothing(t *testing.T) {
	f := &fenced{file: &fence.LeaseFile{Path: filepath.Join(t.TempDir(), "note.json"), Now: time.Now}}
	h := remote.Host{Name: "a"}
	_, err := f.controller(t, ofFolder("first")).Snapshot(t.Context(), h)
	require.NoError(t, err)
	looks := (&scripted{capabilities: agent.NewGreeting("v", agent.CapabilityFence).Capabilities, fence: f.file}).pool()
	t.Cleanup(looks.Close)
	_, err = looks.Snapshot(t.Context(), h)
	require.NoError(t, err)
	looks.Keep(nil)
	looks.GiveBack(t.Context())
	_, err = f.controller(t, ofFolder("second")).Snapshot(t.Context(), h)
	require.Equal(t, remote.Replaced, remote.ClassOf(err))
}

// A host that hangs, when it is to note that a controller has ended, doesn't keep the
// controller from ending, nor the other hosts from noting it.
func TestAHostHangsAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(*agent.Pool){
		"the controller ends":   func(p *agent.Pool) { p.GiveBack(context.Background()) },
		"the hosts are removed": func(p *agent.Pool) { p.Keep(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "note.json")
			synctest.Test(t, func(t *testing.T) {
				note := &fence.LeaseFile{Path: path, Now: time.Now}
				capabilities := agent.NewGreeting("v", agent.CapabilityFence).Capabilities
				sane := &scripted{capabilities: capabilities, fence: note}
				hung := &scripted{capabilities: capabilities, unread: agent.RequestGiveBack}
				pool := sane.pool()
				pool.Start = func(ctx context.Context, h remote.Host, c remote.Command) (agent.Session, error) {
					if h.Name == "hung" {
						return hung.start(ctx, h, c)
					}
					return sane.start(ctx, h, c)
				}
				pool.Lease(ofFolder("first"))
				for _, host := range []string{"hung", "sane"} {
					_, err := pool.Snapshot(t.Context(), remote.Host{Name: host})
					require.NoError(t, err)
				}
				begun := time.Now()
				end(pool)
				require.LessOrEqual(t, time.Since(begun), time.Second)
				require.NoError(t, note.Admit(ofFolder("second")), "the other host noted it")
				pool.Close()
				require.LessOrEqual(t, time.Since(begun), 3*time.Second)
			})
		})
	}
}

// cutOff is a host that loses the connection once, right after it has admitted a claim.
type cutOff struct {
	*fence.LeaseFile
	cut func()
}

func (c *cutOff) Admit(claim *fence.LeaseRequest) error {
	err := c.LeaseFile.Admit(claim)
	if c.cut != nil {
		c.cut()
		c.cut = nil
	}
	return err
}

// A take-over is sent again if its answer was lost, and is refused then if another controller
// took the host over meanwhile.
func TestTheAnswerToATakeOverIsLost(t *testing.T) {
	for name, meanwhile := range map[string]bool{"nothing happened meanwhile": false, "another one took over meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			note := &fence.LeaseFile{Path: filepath.Join(t.TempDir(), "note.json"), Now: time.Now}
			require.NoError(t, note.Admit(ofFolder("zeroth")))
			other := ofFolder("other")
			other.TakeOver = true
			var last agent.Session
			host := &scripted{capabilities: agent.NewGreeting("v", agent.CapabilityFence).Capabilities}
			host.fence = &cutOff{note, func() {
				last.Close()
				if meanwhile {
					require.NoError(t, note.Admit(other))
				}
			}}
			pool := host.pool()
			t.Cleanup(pool.Close)
			pool.Start = func(ctx context.Context, h remote.Host, c remote.Command) (s agent.Session, err error) {
				last, err = host.start(ctx, h, c)
				return last, err
			}
			claim := ofFolder("first")
			claim.TakeOver = true
			pool.Lease(claim)
			var err error
			require.Eventually(t, func() bool {
				_, err = pool.Snapshot(t.Context(), remote.Host{Name: "a"})
				return err == nil || remote.ClassOf(err) == remote.Replaced
			}, 10*time.Second, 10*time.Millisecond)
			if meanwhile {
				require.Equal(t, remote.Replaced, remote.ClassOf(err))
				require.NoError(t, note.Admit(ofFolder("other")), "it still acts there")
				return
			}
			require.NoError(t, err)
			require.Error(t, note.Admit(ofFolder("zeroth")))
		})
	}
}
