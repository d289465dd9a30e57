package agent_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// TestAllowance: hosts hear of it with each snapshot, from a controller that may act there, until it says nothing
// any more.
func TestAllowance(t *testing.T) {
	two, three := 2, 3
	var heard []service.Allowance
	host := func() *agent.Pool {
		n := &scripted{
			capabilities: agent.NewGreeting("v", agent.CapabilityFence).Capabilities,
			fence:        &fence.File{Path: filepath.Join(t.TempDir(), "note.json"), Now: time.Now},
			allow:        func(a *service.Allowance) { heard = append(heard, *a) },
		}
		return n.pool()
	}
	look := func(p *agent.Pool) (told []service.Allowance) {
		heard = nil
		_, err := p.Snapshot(t.Context(), remote.Host{Name: "a"})
		require.NoError(t, err)
		return heard
	}
	p := host()
	t.Cleanup(p.Close)
	require.Empty(t, look(p), "it says nothing")
	p.Allow(&service.Allowance{GPUs: &two, ForMS: 60000})
	for range 3 { // also where nothing else is new
		require.Equal(t, []service.Allowance{{GPUs: &two, ForMS: 60000}}, look(p))
	}
	p.Allow(&service.Allowance{GPUs: &three, ForMS: 60000})
	require.Equal(t, []service.Allowance{{GPUs: &three, ForMS: 60000}}, look(p))
	p.Allow(nil)
	require.Empty(t, look(p))

	p.Lease(leader(1))
	p.Allow(&service.Allowance{GPUs: &two})
	require.Len(t, look(p), 1, "it leads")
	p.Lease(nil)
	require.Empty(t, look(p), "it only looks since")
	p.Allow(&service.Allowance{GPUs: &two})
	require.Empty(t, look(p), "a leader is noted, and it doesn't say that it is that")
}
