package proc_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestBootID(t *testing.T) {
	fs := mount(t)
	dir := filepath.Join(fs.Root, "sys/kernel/random")
	require.ErrorIs(t, proctest.Try(fs.BootID()).Err, os.ErrNotExist)

	require.NoError(t, os.MkdirAll(dir, 0o755))
	write := func(content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "boot_id"), []byte(content), 0o644))
	}
	write("6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2b11\n")
	id := proctest.Try(fs.BootID()).OK(t)
	require.Equal(t, "6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2b11", id)
	for _, bad := range []string{"", "rubbish\n", "6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2bzz", "6f1f5d0b08f7c04d8309d0e03a4f1c0c2b11", "6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2b11 more"} {
		write(bad)
		require.Error(t, proctest.Try(fs.BootID()).Err, bad)
	}

	id = proctest.Try(proc.FS{}.BootID()).OK(t)
	require.NotEmpty(t, id)
	write("6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2b12\n")
	id = proctest.Try(fs.BootID()).OK(t)
	require.Equal(t, "6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2b12", id, "another /proc, as it is now")
}

// TestStartTimeNow: a process that starts between two looks has a start time between theirs.
func TestStartTimeNow(t *testing.T) {
	before := proc.StartTimeNow()
	pid := running(t, exec.Command("sleep", "60"))
	after := proc.StartTimeNow()
	stat := proctest.Try(proc.FS{}.Stat(pid)).OK(t)
	require.GreaterOrEqual(t, stat.Start, before)
	require.LessOrEqual(t, stat.Start, after)
	require.Greater(t, proctest.Try(proc.SinceBoot()).OK(t), time.Duration(after-1)*10*time.Millisecond)
}

func TestCheckNamespace(t *testing.T) {
	require.NoError(t, proc.FS{}.CheckNamespace())

	fs := mount(t)
	require.ErrorIs(t, fs.CheckNamespace(), os.ErrNotExist)
	self := filepath.Join(fs.Root, "self")
	require.NoError(t, os.Symlink(strconv.Itoa(os.Getpid()+1), self))
	require.ErrorContains(t, fs.CheckNamespace(), fs.Root+" is of another PID namespace")
	require.NoError(t, os.Remove(self))
	require.NoError(t, os.Symlink(strconv.Itoa(os.Getpid()), self))
	require.NoError(t, fs.CheckNamespace())
}

func TestNamespace(t *testing.T) {
	name := proctest.Try(proc.FS{}.Namespace(snapshot.PID(os.Getpid()))).OK(t)
	require.Regexp(t, `^pid:\[\d+\]$`, name)
	require.ErrorIs(t, proctest.Try(mount(t).Namespace(5)).Err, os.ErrNotExist)
}

func TestHasEnded(t *testing.T) {
	cmd := exec.Command("/bin/sleep", "1000000")
	require.NoError(t, cmd.Start())
	pidfd := proctest.Try(unix.PidfdOpen(cmd.Process.Pid, 0)).OK(t)
	ended := proctest.Try(proc.HasEnded(pidfd)).OK(t)
	require.False(t, ended)

	require.NoError(t, cmd.Process.Kill())
	require.Eventually(t, func() bool {
		ended, err := proc.HasEnded(pidfd)
		return ended && err == nil
	}, 10*time.Second, time.Millisecond, "also before it is waited for")
	require.Error(t, cmd.Wait())
	ended = proctest.Try(proc.HasEnded(pidfd)).OK(t)
	require.True(t, ended)

	require.NoError(t, unix.Close(pidfd))
	closed := proctest.Try(os.Open("/dev/null")).OK(t)
	number := int(closed.Fd())
	require.NoError(t, closed.Close())
	require.Error(t, proctest.Try(proc.HasEnded(number)).Err, "it is no descriptor any more")
}

// asNobody calls do on a thread of the user nobody.
func asNobody(t *testing.T, do func()) {
	t.Helper()
	const nobody = 65534
	var errno syscall.Errno
	onItsOwnThread(func() {
		if _, _, errno = syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, 0); errno == 0 {
			defer func() { _, _, errno = syscall.RawSyscall(syscall.SYS_SETRESUID, 0, 0, 0) }() // also if do fails
			do()
		}
	})
	require.Zero(t, errno)
}

// onItsOwnThread calls do on a thread that nothing else uses. /proc shows the owner of the first thread as that of the
// process, so it is passed over. A thread that ended would end the children that it has started for other tests.
func onItsOwnThread(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if syscall.Gettid() != syscall.Getpid() {
			do()
			return
		}
		onItsOwnThread(do) // on another one, since this one is held
	}()
	<-done
}

// statLine is a line of /proc/PID/stat as Linux 6 writes it (constructed).
func statLine(pid int, name, state string, ppid, flags, threads, start int) string {
	return fmt.Sprintf("%d (%s) %s %d %d %d 0 -1 %d 1 0 0 0 5 6 0 0 20 0 %d 0 %d 1000 100 18446744073709551615 "+
		"1 1 0 0 0 0 0 16781312 17642 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 140722 140793 0\n",
		pid, name, state, ppid, pid, pid, flags, threads, start)
}

// statusText is the part of /proc/PID/status that matters (constructed).
func statusText(name string, uid int) string {
	return fmt.Sprintf("Name:\t%s\nUmask:\t0022\nState:\tS (sleeping)\nUid:\t%d\t0\t0\t0\nGid:\t0\t0\t0\t0\n", name, uid)
}

// mount builds a /proc in a folder: PID 1 and whatever is added to it.
func mount(t *testing.T) proc.FS {
	t.Helper()
	fs := proc.FS{Root: t.TempDir()}
	add(t, fs, 1, map[string]string{"stat": statLine(1, "init", "S", 0, 0, 1, 2)})
	return fs
}

// add adds a process with the given files.
func add(t *testing.T, fs proc.FS, pid snapshot.PID, files map[string]string) {
	t.Helper()
	dir := filepath.Join(fs.Root, strconv.Itoa(int(pid)))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, content := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
}

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
		require.Equal(t, tt.want, proc.FindHolder(tt.locks, device, 131), tt.name)
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
