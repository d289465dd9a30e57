package proc_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// memMajor is the major number of /dev/null and /dev/zero.
const memMajor = 1

func hasNode(t *testing.T, pid int, major uint32) bool {
	t.Helper()
	has := proctest.Try((&proc.Quota{}).HasNode(proc.FS{}, snapshot.PID(pid), major)).OK(t)
	return has
}

func TestNodeSearch(t *testing.T) {
	proctest.NeedRoot(t)
	for name, tt := range map[string]struct {
		script string
		want   bool
	}{
		"none":   {"exec 0<&- 2>&-; echo; exec sleep 60", false},
		"open":   {"exec 2>/dev/null 0<&-; echo; exec sleep 60", true},
		"closed": {"exec 2>/dev/null 0<&-; exec 2>&-; echo; exec sleep 60", false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/bin/bash", "-c", "for fd in {3..255}; do eval \"exec $fd<&-\"; done; "+tt.script)
			_, _ = firstLine(t, cmd)
			require.Equal(t, tt.want, hasNode(t, cmd.Process.Pid, memMajor))
			require.False(t, hasNode(t, cmd.Process.Pid, 195))
		})
	}
}

// TestNodeSearchThatIsMapped: a device of which only the mapping is left.
func TestNodeSearchThatIsMapped(t *testing.T) {
	proctest.NeedRoot(t)
	const mem = "/dev/mem"
	file, err := os.Open(mem)
	if err != nil {
		t.Skip(err)
	}
	data, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	_ = file.Close()
	if err != nil {
		t.Skip(err)
	}
	defer func() { require.NoError(t, unix.Munmap(data)) }()
	require.True(t, hasNode(t, os.Getpid(), memMajor))
}

const firstThreadEnds = "the first thread ends"

// init has a device mapped, and ends the first thread. It is that thread which runs it.
func init() {
	if os.Getenv(titleVariable) != firstThreadEnds {
		return
	}
	_ = unix.CloseRange(3, 1<<16, 0) // what the test has open
	zero, err := os.Open("/dev/zero")
	if err == nil {
		_, err = unix.Mmap(int(zero.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
		_ = zero.Close()
	}
	fmt.Println(err)
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// TestNodeSearchWithoutAFirstThread: the maps of the process itself are empty then.
func TestNodeSearchWithoutAFirstThread(t *testing.T) {
	proctest.NeedRoot(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{titleVariable + "=" + firstThreadEnds}
	in := proctest.Try(cmd.StdinPipe()).OK(t)
	defer in.Close()
	out := proctest.Try(cmd.StdoutPipe()).OK(t)
	cmd.Stderr = cmd.Stdout // and not /dev/null
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	line := proctest.Try(bufio.NewReader(out).ReadString('\n')).OK(t)
	require.Equal(t, "<nil>\n", line)
	pid := snapshot.PID(cmd.Process.Pid)
	require.Eventually(t, func() bool { stat, err := proc.FS{}.Stat(pid); return err == nil && stat.State == 'Z' }, 10*time.Second, time.Millisecond)
	require.False(t, proctest.Try((&proc.Quota{}).HasOpen(proc.FS{}, pid, memMajor)).OK(t))
	require.True(t, hasNode(t, cmd.Process.Pid, memMajor))
	require.False(t, hasNode(t, cmd.Process.Pid, 195))
}

// TestNodeSearchWithoutMaps: what can't be read isn't missing.
func TestNodeSearchWithoutMaps(t *testing.T) {
	fs := mount(t)
	add(t, fs, 10, map[string]string{"maps": "", "fd/none": "", "task/10/fd/none": ""})
	require.ErrorIs(t, proctest.Try((&proc.Quota{}).HasNode(fs, 10, memMajor)).Err, proc.ErrUnreadable)
}

func TestHasFile(t *testing.T) {
	dir, me := t.TempDir(), snapshot.UID(os.Geteuid())
	file, link, odd := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "\xff")
	for _, path := range []string{file, odd} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	require.NoError(t, os.Symlink(file, link))
	reader := withReader()
	t.Cleanup(reader.Reader.Close)
	for _, fs := range []proc.FS{{}, reader} {
		for _, row := range []struct {
			path string
			uid  snapshot.UID
			want bool
		}{{file, me, true}, {file, me + 1, false}, {link, me, false}, {dir, me, false}, {file + "/in", me, false}, {dir + "/none", me, false}} {
			require.Equal(t, row.want, proctest.Try(fs.HasFile(row.path, row.uid)).OK(t), row.path)
		}
		has, err := fs.HasFile(odd, me)
		require.True(t, has || err != nil, "it isn't missing")
	}
}

// TestHasFileWithoutAnAnswer: it is given up, and for a while not tried again for that user.
func TestHasFileWithoutAnAnswer(t *testing.T) {
	fs := proc.FS{Reader: &proc.ReaderProcess{Command: []string{"sh", "-c", "echo {}; exec sleep 60"}}}
	t.Cleanup(fs.Reader.Close)
	began := time.Now()
	for range 20 {
		require.ErrorIs(t, proctest.Try(fs.HasFile("/etc/passwd", 1000)).Err, proc.ErrUnreadable)
	}
	require.Less(t, time.Since(began), 8*time.Second)
}
