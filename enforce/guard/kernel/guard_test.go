package kernel_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard/kernel"
	"github.com/seed-3119e985/genv/enforce/guard/mode"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestAUserOpensWhatIsAllowed(t *testing.T) {
	s := newSite(t)
	g := s.open()
	u := s.user(1001)
	require.Equal(t, "allowed", u.open(s.node(0)))
	require.NoError(t, g.SetMinors(kernel.MinorsOf(0, 1), kernel.MinorsOf(1)))
	require.NoError(t, g.SetAllowed(map[snapshot.UID]kernel.Minors{1001: kernel.MinorsOf(1)}))
	require.NoError(t, g.SetControl(kernel.Control{Mode: mode.Enforce, Lease: time.Minute}))
	require.Equal(t, "denied", u.open(s.node(0)))
	require.Equal(t, "allowed", u.open(s.node(1)))
	state, err := g.State()
	require.NoError(t, err)
	require.Equal(t, mode.Enforce, state.Mode)
	require.InDelta(t, time.Minute, state.Lease, float64(5*time.Second))
	require.Equal(t, kernel.MinorsOf(0, 1), state.Guarded)
	require.Equal(t, map[snapshot.UID]kernel.Minors{1001: kernel.MinorsOf(1)}, state.Allowed)
	require.False(t, state.CgroupRoot)
}
