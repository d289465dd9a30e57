package guard

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// listing is an nvidia-smi that shows the four GPUs of a site, which nothing uses.
const listing = `#!/bin/sh
case "$1" in
--query-gpu=*) for i in 0 1 2 3; do echo "$i, GPU-$i, 81920, 3, 0, 31, 70.12, NVIDIA H100"; done ;;
esac
`

// snapshot is what a controller asks of a host in each cycle.
func (c *stream) snapshot() *snapshot.Snapshot {
	c.Helper()
	var answer agent.SnapshotAnswer
	c.ask(agent.RequestSnapshot, agent.SnapshotRequest{}, &answer)
	s, err := snapshot.DecodeNative(answer.Snapshot)
	require.NoError(c, err)
	return s
}

// TestASnapshotSaysWhatTheGuardDoes: a real `genv usage serve` reports the guard of the kernel
// below it, and who owns the state.
func TestASnapshotSaysWhatTheGuardDoes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "nvidia-smi"), []byte(listing), 0o755))
	b, c := s.person(bob), s.serve()
	says := func(want snapshot.GuardMode, reason string) {
		t.Helper()
		var seen *snapshot.Snapshot
		require.Eventually(t, func() bool {
			seen = c.snapshot()
			return seen.Guard != nil && seen.Guard.Mode == want
		}, 10*time.Second, 50*time.Millisecond, "%s", want)
		require.Contains(t, seen.Guard.Reason, reason)
		require.Len(t, seen.Devices, 4)
	}
	before := c.snapshot()
	require.Equal(t, snapshot.GuardOff, before.Guard.Mode, "nothing has ordered it")
	require.False(t, *before.Service, "every user may write the state")

	c.order(asked(guard.Watch, time.Minute))
	says(snapshot.GuardWatch, "")
	require.True(t, b.opens(0))
	c.order(asked(guard.Enforce, time.Minute))
	b.until("denied", 0)
	says(snapshot.GuardEnforce, "")
	s.must("guard", "off")
	b.until("allowed", 0)
	says(snapshot.GuardOff, "turned off by root")

	s.start("host", "serve")
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(s.root, "run", "host.sock"))
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.True(t, *c.snapshot().Service, "the same stream sees that root owns the state now")
}
