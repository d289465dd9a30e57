package enforcement

import (
	"net"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// A slow cycle, or a long wait, isn't a loop that hangs. After a cycle was judged it only has to be shown.
func TestALoopThatHangs(t *testing.T) {
	const limit = 10 * time.Minute
	for _, c := range []struct {
		name  string
		step  func(*service)
		hangs time.Duration // after which the loop counts as stuck
	}{
		{"it starts", func(*service) {}, stepSlack},
		{"a cycle", func(s *service) { s.step(0) }, limit + stepSlack},
		{"the end of a cycle", func(s *service) { s.step(0); s.status(&controller.Round{}) }, stepSlack},
		{"a wait", func(s *service) { s.status(&controller.Round{}); s.step(time.Hour) }, time.Hour + stepSlack},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("NOTIFY_SOCKET", "")
			synctest.Test(t, func(t *testing.T) {
				_, s := startService(t.Context(), zerolog.Nop(), false)
				defer s.close()
				s.limit.Store(int64(limit))
				c.step(s)
				time.Sleep(c.hangs - time.Second)
				require.True(t, s.works())
				time.Sleep(2 * time.Second)
				require.False(t, s.works())
			})
		})
	}
}

// What a cycle left is collected after it, unless that is little.
func TestGarbageIsCollectedAfterACycle(t *testing.T) {
	t.Setenv("GOGC", "")
	_, s := startService(t.Context(), zerolog.Nop(), false)
	defer s.close()
	collected := func(garbage int) uint32 {
		debug.SetGCPercent(-1) // until collect or close sets it: it would collect by itself
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		runtime.KeepAlive(make([]byte, garbage))
		s.collect()
		s.collecting.Lock() // until it is over
		defer s.collecting.Unlock()
		runtime.ReadMemStats(&after)
		return after.NumForcedGC - before.NumForcedGC
	}
	require.Zero(t, collected(leastGarbage/2))
	require.EqualValues(t, 1, collected(2*leastGarbage))
}

// A receiver that is stopped reads nothing: what it can't queue is dropped. It gets what is sent when it goes on.
func TestAReceiverThatIsStopped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	t.Setenv("NOTIFY_SOCKET", path)
	receiver := proctest.Try(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})).OK(t)
	defer receiver.Close()
	sent := 0
	for send("STATUS=early") == nil {
		sent++
		require.Less(t, sent, 10000, "everything is queued")
	}
	begun := time.Now()
	NotifySystemd(zerolog.Nop(), "STATUS=dropped")
	require.Less(t, time.Since(begun), 10*time.Second)
	buffer := make([]byte, 100)
	read := func() string {
		require.NoError(t, receiver.SetReadDeadline(time.Now().Add(10*time.Second)))
		n := proctest.Try(receiver.Read(buffer)).OK(t)
		return string(buffer[:n])
	}
	for range sent {
		require.Equal(t, "STATUS=early", read())
	}
	NotifySystemd(zerolog.Nop(), "STATUS=late")
	require.Equal(t, "STATUS=late", read())
}

func TestWithoutAReceiver(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	require.NoError(t, send("READY=1"))
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "missing"))
	require.Error(t, send("READY=1"))
	NotifySystemd(zerolog.Nop(), "READY=1")
	_, s := startService(t.Context(), zerolog.Nop(), false)
	defer s.close()
	s.status(&controller.Round{Hold: &operator.OnHold{Reason: "repair"}})
	require.Regexp(t, "^enforcement is on hold since .*: repair; cycle 0", s.round)
}
