package proc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestTheHolderInProcLocks(t *testing.T) {
	device := unix.Mkdev(0xfe, 0)
	tests := []struct {
		name, locks string
		want        int
	}{
		{"the holder", "1: FLOCK  ADVISORY  WRITE 1234 fe:00:131 0 EOF\n", 1234},
		{"not the one who waits", "1: FLOCK  ADVISORY  WRITE 12 fe:00:131 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 34 fe:00:131 0 EOF\n", 12},
		{"not another kind of lock", "1: POSIX  ADVISORY  WRITE 1234 fe:00:131 0 EOF\n", 0},
		{"not another file", "1: FLOCK  ADVISORY  WRITE 1234 fe:00:132 0 EOF\n", 0},
		{"the same device rather than another", "1: FLOCK  ADVISORY  WRITE 5 00:2a:131 0 EOF\n2: FLOCK  ADVISORY  WRITE 6 fe:00:131 0 EOF\n3: FLOCK  ADVISORY  WRITE 7 00:2b:131 0 EOF\n", 6},
		{"another device when there is no better", "1: FLOCK  ADVISORY  WRITE 5 00:2a:131 0 EOF\n", 5},
		{"a holder outside of this PID namespace", "1: FLOCK  ADVISORY  WRITE 0 fe:00:131 0 EOF\n", 0},
		{"no locks", "", 0},
		{"garbage", "x\n1: FLOCK\n1: FLOCK ADVISORY WRITE x fe:00:131 0 EOF\n1: FLOCK ADVISORY WRITE 4 131 0 EOF\n", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, proc.FindHolder(tt.locks, device, 131))
		})
	}
}

// Users can hold millions of locks: then no holder is named, so that others don't wait.
func TestTheHolderAmongManyLocks(t *testing.T) {
	var st unix.Stat_t
	st.Ino = 131
	others := strings.Repeat("1: FLOCK  ADVISORY  WRITE 5 fe:00:7 0 EOF\n", 100_000)
	for locks, found := range map[string]bool{"2: FLOCK  ADVISORY  WRITE 6 00:00:131 0 EOF\n" + others: true, others + "2: FLOCK  ADVISORY  WRITE 6 00:00:131 0 EOF\n": false} {
		root := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(root, "locks"), []byte(locks), 0o600))
		require.Equal(t, found, proc.LockHolderOf(root, &st) != nil)
	}
}

// The stat of a holder in execve(2) may never come.
func TestAHolderThatStalls(t *testing.T) {
	pid, _ := proctest.Stall(t, true)
	var st unix.Stat_t
	st.Ino = 131
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "locks"), fmt.Appendf(nil, "1: FLOCK  ADVISORY  WRITE %d 00:00:131 0 EOF\n", pid), 0o600))
	require.NoError(t, os.Symlink(fmt.Sprint("/proc/", pid), filepath.Join(root, fmt.Sprint(pid))))
	began := time.Now()
	for range 10 {
		require.Equal(t, pid, proc.LockHolderOf(root, &st).PID)
	}
	require.Less(t, time.Since(began), 3*time.Second)
}

func TestDescribe(t *testing.T) {
	require.Equal(t, `process 7 ("a\x1b[2J") of uid 1001`, (&proc.LockHolder{PID: 7, Command: "a\x1b[2J", UID: new(snapshot.UID(1001))}).String())
	require.Equal(t, "process 7, which has ended and left the lock to a child", (&proc.LockHolder{PID: 7}).String())
}

func FuzzProcLocks(f *testing.F) {
	f.Add("1: FLOCK  ADVISORY  WRITE 1234 fe:00:131 0 EOF\n")
	f.Add("1: -> FLOCK  ADVISORY  WRITE 1234 fe:00:131 0 EOF\n")
	f.Fuzz(func(t *testing.T, locks string) {
		if pid := proc.FindHolder(locks, 1, 131); pid != 0 {
			require.Contains(t, locks, "FLOCK")
			require.Contains(t, locks, strconv.Itoa(max(pid, -pid)))
		}
	})
}
