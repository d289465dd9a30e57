package guard

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// TestOpensAreReported: those that were not denied, for those who wait for a reason to look.
func TestOpensAreReported(t *testing.T) {
	h := newHost(t)
	h.write(map[snapshot.UID][]snapshot.DeviceIndex{alice: {0}})
	require.NoError(t, os.MkdirAll(h.run, 0o755))
	r := watch.NewOpenLogReader(h.run)
	h.give(Enforce, time.Minute)
	h.keep(h.keeper())
	h.soon("bob may not open device 0", h.mayNot(bob, 0))
	h.pins.mu.Lock()
	require.Equal(t, h.guarded, h.watched)
	h.pins.mu.Unlock()
	h.events <- Event{Kind: Denied, UID: bob, PID: 41, Minor: 3}
	h.events <- Event{Kind: Opened, UID: 0, PID: 0, Minor: 3} // of a look's nvidia-smi, perhaps
	for _, e := range []Event{
		{Kind: Opened, UID: alice, PID: 42, Minor: 3},
		{Kind: Opened, UID: 0, PID: 43, Minor: 3},
		{Kind: WouldDeny, UID: bob, PID: 44, Minor: 3},
		{Kind: Opened, UID: alice, PID: 0, Minor: 3},
	} {
		h.events <- e
	}
	var pids []snapshot.PID
	h.soon("the opens are in the file", func() bool {
		more, err := r.Next()
		require.NoError(t, err)
		pids = append(pids, more...)
		return len(pids) >= 4
	})
	require.Equal(t, []snapshot.PID{42, 43, 44, 0}, pids)
}
