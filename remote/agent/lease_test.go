package agent_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func ofFolder(name string) *fence.LeaseRequest {
	return &fence.LeaseRequest{Who: fence.Folder(name), Epoch: 1, Controller: name}
}

// A host that is removed from the list of a controller may be acted on by another one, and by
// the same one if it is added again.
func TestRemovedHostsAreReleased(t *testing.T) {
	f := newFenced(t)
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

func TestWhoOnlyLooksReleasesNothing(t *testing.T) {
	f := newFenced(t)
	h := remote.Host{Name: "a"}
	snapshotOf(t, f.controller(t, ofFolder("first")), h)
	looks := (&scripted{capabilities: fencing, fence: f.file}).pool(t)
	snapshotOf(t, looks, h)
	looks.Keep(nil)
	looks.GiveBack(t.Context())
	_, err := f.controller(t, ofFolder("second")).Snapshot(t.Context(), h)
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
				sane := &scripted{capabilities: fencing, fence: note}
				hung := &scripted{capabilities: fencing, unread: agent.RequestGiveBack}
				pool := sane.pool(t)
				pool.Start = func(ctx context.Context, h remote.Host, c remote.Command) (agent.Session, error) {
					if h.Name == "hung" {
						return hung.start(ctx, h, c)
					}
					return sane.start(ctx, h, c)
				}
				pool.Lease(ofFolder("first"))
				for _, host := range []string{"hung", "sane"} {
					snapshotOf(t, pool, remote.Host{Name: host})
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
			note := newFenced(t).file
			require.NoError(t, note.Admit(ofFolder("zeroth")))
			other := ofFolder("other")
			other.TakeOver = true
			var last agent.Session
			host := &scripted{capabilities: fencing}
			host.fence = &cutOff{note, func() {
				last.Close()
				if meanwhile {
					require.NoError(t, note.Admit(other))
				}
			}}
			pool := host.pool(t)
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

// fenced is a host that refuses controllers that were replaced, and how often it acted.
type fenced struct {
	file     *fence.LeaseFile
	orders   int
	messages int
}

func newFenced(t *testing.T) *fenced {
	return &fenced{file: &fence.LeaseFile{Path: filepath.Join(t.TempDir(), "note.json"), Now: time.Now}}
}

// fencing are the capabilities of such a host.
var fencing = agent.NewGreeting("v", agent.CapabilityFence).Capabilities

// controller connects a controller, which claims nothing if the claim is nil.
func (f *fenced) controller(t *testing.T, claim *fence.LeaseRequest) *agent.Pool {
	pool := (&scripted{
		capabilities: fencing, fence: f.file,
		execute: func(context.Context) (agent.Execution, error) {
			f.orders++
			return terminated("")
		},
		notify: func() { f.messages++ },
	}).pool(t)
	pool.Lease(claim)
	return pool
}

func leader(epoch uint64) *fence.LeaseRequest {
	return &fence.LeaseRequest{Who: fence.Election(1, "/k"), Epoch: epoch, Controller: "c", Name: "genv on jump"}
}

func TestAReplacedControllerIsRefused(t *testing.T) {
	f := newFenced(t)
	h := remote.Host{Name: "a"}
	old := f.controller(t, leader(1))
	snapshotOf(t, old, h)
	proctest.Try(old.Execute(t.Context(), h, oneProcess)).OK(t)
	require.Equal(t, 1, f.orders)

	next := f.controller(t, leader(2))
	proctest.Try(next.Snapshot(t.Context(), h)).OK(t) // its first look is enough
	_, err := old.Execute(t.Context(), h, oneProcess)
	require.Equal(t, remote.Replaced, remote.ClassOf(err))
	require.ErrorContains(t, err, "refused: replaced by \"genv on jump\" at ")
	require.ErrorIs(t, err, agent.ErrRefused, "the host did nothing")
	_, err = old.Notify(t.Context(), h, []agent.Message{{UID: 1, Text: "x"}})
	require.Equal(t, remote.Replaced, remote.ClassOf(err))
	require.Equal(t, remote.Replaced, remote.ClassOf(proctest.Try(old.Snapshot(t.Context(), h)).Err))
	require.Equal(t, 1, f.orders)
	require.Zero(t, f.messages)

	once := f.controller(t, nil)
	proctest.Try(once.Snapshot(t.Context(), h)).OK(t, "everybody may look")
	_, err = once.Execute(t.Context(), h, oneProcess)
	require.Equal(t, remote.Replaced, remote.ClassOf(err), "a leader acts here")
	proctest.Try(next.Execute(t.Context(), h, oneProcess)).OK(t)
	require.Equal(t, 2, f.orders)
}

// A host that was taken over once is not taken over again by the same run: another controller may have done so since.
func TestTakingOverHappensOnce(t *testing.T) {
	f := newFenced(t)
	h := remote.Host{Name: "a"}
	from := func(folder string) *agent.Pool {
		claim := ofFolder(folder)
		claim.TakeOver = true
		return f.controller(t, claim)
	}
	first, second := from("first"), from("second")
	for _, p := range []*agent.Pool{first, second} {
		snapshotOf(t, p, h)
	}
	require.Equal(t, remote.Replaced, remote.ClassOf(proctest.Try(first.Snapshot(t.Context(), h)).Err))
	first.GiveBack(t.Context()) // it isn't the one that is noted
	snapshotOf(t, second, h)
	second.GiveBack(t.Context())
	third := f.controller(t, ofFolder("third"))
	snapshotOf(t, third, h)
}

// A host that couldn't note a claim yet wasn't taken over: after an upgrade of its genv it is.
func TestTakingOverAfterAnUpgrade(t *testing.T) {
	note := newFenced(t).file
	require.NoError(t, note.Admit(ofFolder("other")))
	h := remote.Host{Name: "a"}
	host := &scripted{capabilities: agent.NewGreeting("v").Capabilities}
	pool := host.pool(t)
	var last agent.Session
	pool.Start = func(ctx context.Context, h remote.Host, c remote.Command) (s agent.Session, err error) {
		s, err = host.start(ctx, h, c)
		last = s
		return s, err
	}
	pool.Lease(&fence.LeaseRequest{Who: fence.Folder("first"), Epoch: 1, Controller: "first", TakeOver: true})
	snapshotOf(t, pool, h)

	host.capabilities, host.fence = append(host.capabilities, agent.CapabilityFence), note
	last.Close()
	var err error
	require.Eventually(t, func() bool {
		_, err = pool.Snapshot(t.Context(), h)
		return err == nil || remote.ClassOf(err) == remote.Replaced
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, err)
}

// Where --take-over can't help, another step is named.
func TestTheNextStepOfARefusal(t *testing.T) {
	f := newFenced(t)
	from := func(folder string, epoch uint64) *fence.LeaseRequest {
		return &fence.LeaseRequest{Who: fence.Folder(folder), Epoch: epoch, Controller: folder}
	}
	require.NoError(t, f.file.Admit(from("a", 2)))
	_, err := f.controller(t, from("a", 1)).Snapshot(t.Context(), remote.Host{Name: "a"})
	require.Contains(t, remote.NextStepOf(err), "controller-id")
	require.NotContains(t, remote.NextStepOf(err), "standby")
	_, err = f.controller(t, from("b", 1)).Snapshot(t.Context(), remote.Host{Name: "a"})
	require.Contains(t, remote.NextStepOf(err), "end the other one; if")

	elected := newFenced(t)
	require.NoError(t, elected.file.Admit(leader(2)))
	_, err = elected.controller(t, leader(1)).Snapshot(t.Context(), remote.Host{Name: "a"})
	require.Contains(t, remote.NextStepOf(err), "continues as a standby")
	require.NotContains(t, remote.NextStepOf(err), "controller-id")
	once := elected.controller(t, nil)
	snapshotOf(t, once, remote.Host{Name: "a"})
	_, err = once.Execute(t.Context(), remote.Host{Name: "a"}, oneProcess)
	require.Contains(t, remote.NextStepOf(err), "end the other one; if", "it was never the one that acts")
}

// Who asks gets to know which controller a host lets act, and isn't noted; what is damaged is unknown,
// and not that there is none.
func TestWhichControllerActs(t *testing.T) {
	f := newFenced(t)
	h := remote.Host{Name: "a"}
	ask := func(more ...string) (agent.Acting, error) {
		pool := (&scripted{capabilities: agent.NewGreeting("v", more...).Capabilities, fence: f.file}).pool(t)
		return pool.Acting(t.Context(), h)
	}
	says := func() agent.Acting {
		return proctest.Try(ask(agent.CapabilityFence, agent.RequestActing)).OK(t)
	}
	require.Equal(t, agent.Acting{Refuses: true}, says())
	acting := f.controller(t, leader(2))
	snapshotOf(t, acting, h)
	for range 2 {
		noted := says().Lease
		require.NotNil(t, noted)
		require.Equal(t, leader(2).ID(), noted.ID())
		require.Equal(t, leader(2).Epoch, noted.Epoch)
		require.False(t, noted.GivenBack)
	}
	acting.GiveBack(t.Context())
	require.True(t, says().Lease.GivenBack)
	require.NoError(t, os.WriteFile(f.file.Path, []byte("{"), 0o600))
	answer := says()
	require.Nil(t, answer.Lease)
	require.Contains(t, answer.Unknown, "is damaged")

	answer = proctest.Try(ask()).OK(t)
	require.False(t, answer.Refuses, "it lets each controller act")
	_, err := ask(agent.CapabilityFence)
	require.Equal(t, remote.Version, remote.ClassOf(err), "an older genv can't say it")
}

// What install asks with one input: who greets, and what came of trying what acting needs.
func TestAskOnce(t *testing.T) {
	for name, try := range map[string]func(context.Context) *snapshot.Trial{
		"tried": func(context.Context) *snapshot.Trial { return &snapshot.Trial{Unable: "no\nhelper"} },
		"not":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			answers := &agent.Answers{Fence: newFenced(t).file, Try: try}
			s := &agent.Responder{ReadToken: true, Idle: time.Minute, Handler: answers.Handle, Greeting: agent.NewGreeting("v")}
			var out bytes.Buffer
			require.NoError(t, s.Serve(t.Context(), bytes.NewReader(agent.AskOnce("abc")), &out))
			greeting, trial, err := agent.ReadOnce(&out, "abc")
			require.NoError(t, err)
			require.Equal(t, "v", greeting.Genv)
			require.Equal(t, try == nil, trial == nil)
			if trial != nil {
				require.NotContains(t, trial.Unable, "\n")
			}
		})
	}
	_, _, err := agent.ReadOnce(strings.NewReader("no genv\n"), "abc")
	require.Error(t, err)
}

// Given is for a request that no controller here makes.
func (*onceHost) Given() (*fence.Lease, error) { return nil, nil }
