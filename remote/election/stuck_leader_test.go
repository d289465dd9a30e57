package election_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election"
)

// The loop of a controller may hang while its election goes on: another one leads then, and this one
// not again before the loop works.
func TestALeaderThatDoesNotWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{slow: time.Millisecond}
		var hangs atomic.Bool
		e, stop := runWith(c, func() bool { return !hangs.Load() })
		defer stop()
		<-e.Changed()
		time.Sleep(time.Hour)
		require.True(t, e.Leads())
		epoch := e.Status().Epoch

		hangs.Store(true)
		time.Sleep(election.TTL - 2*time.Second)
		require.True(t, e.Leads(), "until its lease has ended")
		time.Sleep(4 * time.Second)
		require.False(t, e.Leads())
		require.Nil(t, c.key)
		time.Sleep(time.Hour)
		require.False(t, e.Leads(), "it doesn't campaign")
		require.Equal(t, election.Standby, e.Status().Role)
		c.taken()
		time.Sleep(time.Second)
		require.Equal(t, "b", e.Status().Leader.ID)
		c.set(func() { c.key = nil })

		hangs.Store(false)
		time.Sleep(time.Second)
		require.True(t, e.Leads())
		require.Greater(t, e.Status().Epoch, epoch)
	})
}

// A loop that hangs for less than a lease lasts keeps it.
func TestALeaderThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{slow: time.Millisecond}
		var hangs atomic.Bool
		e, stop := runWith(c, func() bool { return !hangs.Load() })
		defer stop()
		<-e.Changed()
		epoch := e.Status().Epoch
		for range 10 {
			hangs.Store(true)
			time.Sleep(election.TTL - 2*time.Second)
			hangs.Store(false)
			time.Sleep(2 * time.Second)
			require.True(t, e.LeadsWith(epoch))
		}
	})
}
