package agent_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
)

// A leader that is elected again doesn't take hosts back from one that took them over since.
func TestAHostIsTakenOverOnce(t *testing.T) {
	file := &fence.File{Path: filepath.Join(t.TempDir(), "note.json"), Now: time.Now}
	pool := (&scripted{capabilities: agent.NewGreeting("v", agent.CapabilityFence).Capabilities, fence: file}).pool()
	defer pool.Close()
	ask := func(epoch uint64) error {
		claim := leader(epoch)
		claim.TakeOver = true
		pool.Announce(claim)
		_, err := pool.Snapshot(t.Context(), remote.Host{Name: "a"})
		return err
	}
	require.NoError(t, ask(1))
	require.NoError(t, file.Admit(&fence.Claim{Source: fence.FolderSource("f"), Epoch: 1, Controller: "f", TakeOver: true}))
	pool.Withdraw()
	require.Equal(t, remote.Replaced, remote.ClassOf(ask(2)))
}
