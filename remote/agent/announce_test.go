package agent_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/controllers"
	"github.com/seed-3119e985/genv/remote/agent/fence"
)

// contacts are what a host was told.
type contacts struct {
	told   []controllers.Controller
	fenced []bool
	others []controllers.Seen
	err    error
}

func (c *contacts) Contact(self controllers.Controller, fenced bool) ([]controllers.Seen, error) {
	c.told, c.fenced = append(c.told, self), append(c.fenced, fenced)
	return c.others, c.err
}

var (
	announced = controllers.Controller{ID: "me", Hostname: "jump", Account: "genv", Policy: "p1"}
	another   = controllers.Seen{Controller: controllers.Controller{ID: "b", Hostname: "jump-2", Account: "genv", Policy: "p2"}}
	able      = agent.NewGreeting("v", agent.CapabilityControllers).Capabilities
)

func TestAHostKnowsItsController(t *testing.T) {
	list := &contacts{others: []controllers.Seen{another}}
	pool := (&scripted{capabilities: able, contacts: list}).pool()
	defer pool.Close()
	h := remote.Host{Name: "a"}
	ask := func() controllers.Answer {
		_, err := pool.Snapshot(t.Context(), h)
		require.NoError(t, err)
		return pool.About(h).Controllers
	}
	require.Empty(t, ask(), "one that only looks says nothing, and asks nothing")
	require.Empty(t, list.told)
	pool.Announce(announced, nil)
	require.Equal(t, list.others, ask().Others)
	list.others = nil
	require.Empty(t, ask())
	changed := announced
	changed.Policy = "p3"
	pool.Announce(changed, nil)
	list.err = errors.New("no space left")
	require.Equal(t, "no space left", ask().Unknown)
	require.Equal(t, []controllers.Controller{announced, announced, changed}, list.told, "each request is a contact")
}

// A host that lets one controller act at a time knows that of those with a claim only the last
// one does.
func TestWhichControllersAreFenced(t *testing.T) {
	list := new(contacts)
	file := &fence.File{Path: filepath.Join(t.TempDir(), "note.json"), Now: time.Now}
	run := &fence.Claim{Source: fence.RunSource("r"), Epoch: 1, Controller: "c", Name: "genv on jump"}
	for _, row := range []struct {
		fence agent.Fence
		claim *fence.Claim
		want  bool
	}{{nil, leader(1), false}, {file, nil, false}, {file, run, false}, {file, leader(1), true}} {
		pool := (&scripted{capabilities: agent.NewGreeting("v", agent.CapabilityControllers, agent.CapabilityFence).Capabilities, contacts: list, fence: row.fence}).pool()
		pool.Announce(announced, row.claim)
		for range 2 { // the second request has no claim of its own
			_, err := pool.Snapshot(t.Context(), remote.Host{Name: "a"})
			require.NoError(t, err)
			require.Equal(t, row.want, list.fenced[len(list.fenced)-1])
		}
		pool.Close()
	}
}

func TestAnOlderHostIsToldNothing(t *testing.T) {
	list := &contacts{others: []controllers.Seen{another}}
	pool := (&scripted{contacts: list}).pool()
	defer pool.Close()
	pool.Announce(announced, nil)
	h := remote.Host{Name: "a"}
	for range 2 {
		_, err := pool.Snapshot(t.Context(), h)
		require.NoError(t, err)
	}
	require.Empty(t, list.told)
	require.Empty(t, pool.About(h).Controllers)
}

func TestAHostThatSaysTooMuch(t *testing.T) {
	list := &contacts{}
	for range 1000 {
		list.others = append(list.others, another, controllers.Seen{})
	}
	pool := (&scripted{capabilities: able, contacts: list}).pool()
	defer pool.Close()
	pool.Announce(announced, nil)
	h := remote.Host{Name: "a"}
	_, err := pool.Snapshot(t.Context(), h)
	require.NoError(t, err)
	require.LessOrEqual(t, len(pool.About(h).Controllers.Others), controllers.MaxOthers)
}

// A leader that is elected again doesn't take hosts back from one that took them over since.
func TestAHostIsTakenOverOnce(t *testing.T) {
	file := &fence.File{Path: filepath.Join(t.TempDir(), "note.json"), Now: time.Now}
	pool := (&scripted{capabilities: agent.NewGreeting("v", agent.CapabilityFence).Capabilities, fence: file}).pool()
	defer pool.Close()
	ask := func(epoch uint64) error {
		claim := leader(epoch)
		claim.TakeOver = true
		pool.Announce(announced, claim)
		_, err := pool.Snapshot(t.Context(), remote.Host{Name: "a"})
		return err
	}
	require.NoError(t, ask(1))
	require.NoError(t, file.Admit(&fence.Claim{Source: fence.FolderSource("f"), Epoch: 1, Controller: "f", TakeOver: true}))
	pool.Withdraw()
	require.Equal(t, remote.Replaced, remote.ClassOf(ask(2)))
}
