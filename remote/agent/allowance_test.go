package agent_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// TestAllowance: hosts hear of it with each snapshot, from a controller that may act there, until it says nothing
// any more.
func TestAllowance(t *testing.T) {
	var heard []service.Allowance
	host := func() *agent.Pool {
		n := &scripted{
			capabilities: agent.NewGreeting("v", agent.CapabilityFence).Capabilities,
			fence:        &fence.LeaseFile{Path: filepath.Join(t.TempDir(), "note.json"), Now: time.Now},
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
	one := func(by string) map[snapshot.Hostname]*service.Allowance {
		return map[snapshot.Hostname]*service.Allowance{"a": {By: by, ForMS: 60000}, "b": {By: "another"}}
	}
	p.Allow(one("x"))
	for range 3 { // also where nothing else is new
		require.Equal(t, []service.Allowance{{By: "x", ForMS: 60000}}, look(p))
	}
	p.Allow(one("y"))
	require.Equal(t, []service.Allowance{{By: "y", ForMS: 60000}}, look(p))
	p.Allow(map[snapshot.Hostname]*service.Allowance{"b": {By: "another"}})
	require.Empty(t, look(p), "it is about another host")
	p.Allow(nil)
	require.Empty(t, look(p))

	p.Lease(leader(1))
	p.Allow(one("x"))
	require.Len(t, look(p), 1, "it leads")
	p.Lease(nil)
	require.Empty(t, look(p), "it only looks since")
	p.Allow(one("x"))
	require.Empty(t, look(p), "a leader is noted, and it doesn't say that it is that")
}
