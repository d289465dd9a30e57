package service

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

func TestAdmission(t *testing.T) {
	now := time.Now()
	a := admission{bounds: Bounds{Connections: 5, PerUser: 2, Rate: 10, Burst: 4}.withDefaults(), now: func() time.Time { return now }}
	admit := func(uid snapshot.UID) func() {
		release, ok := a.admit(uid)
		require.Equal(t, ok, release != nil)
		return release
	}
	one, two := admit(1), admit(1)
	require.NotNil(t, one)
	require.Nil(t, admit(1), "two connections are the most")
	one()
	one()
	require.Equal(t, 1, a.connections())
	two()
	for range 2 {
		admit(1)()
	}
	require.Nil(t, admit(1), "four requests at once are the most")
	now = now.Add(100 * time.Millisecond)
	require.NotNil(t, admit(1))
	require.Nil(t, admit(1))
	require.NotNil(t, admit(2))
	require.NotNil(t, admit(2))
	require.NotNil(t, admit(3))
	require.NotNil(t, admit(3))
	require.Nil(t, admit(4), "five in all are the most")
	for uid := range snapshot.UID(3 * maxIdle) {
		if release, ok := a.admit(1000 + uid); ok {
			release()
		}
		now = now.Add(time.Second)
	}
	require.LessOrEqual(t, len(a.users), maxIdle+1)
}

// Without SO_PEERPIDFD the PID is looked up after the connection: a process that is younger
// than that has only got its PID.
func TestAPIDThatIsReused(t *testing.T) {
	self := snapshot.PID(os.Getpid())
	pidfd, err := unix.PidfdOpen(int(self), 0)
	require.NoError(t, err)
	defer unix.Close(pidfd)
	examined := func(pid snapshot.PID, pidfd int, byPID bool, begun snapshot.StartTime) error {
		p := callerProcess{pid: pid}
		p.examine(proc.FS{}, pidfd, byPID, begun)
		return p.unknown
	}
	require.NoError(t, examined(self, pidfd, false, 0))
	require.NoError(t, examined(self, pidfd, true, proc.StartTimeNow()))
	require.ErrorIs(t, examined(self, pidfd, true, 1), errPeerGone)
	require.NoError(t, examined(self, -1, true, proc.StartTimeNow()), "a kernel without pidfds")
	require.ErrorIs(t, examined(self, -1, true, 1), errPeerGone)
	require.ErrorIs(t, examined(self, -1, false, proc.StartTimeNow()), errPeerGone)
	require.ErrorIs(t, examined(1<<22+7, pidfd, false, 0), errPeerGone)
	require.ErrorIs(t, examined(0, -1, false, 0), errForeign)
}
