package proc_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// withReader is /proc with a helper.
func withReader() proc.FS {
	return proc.FS{Reader: &proc.ReaderProcess{Command: []string{"/proc/self/exe", "read"}}}
}

// sleeper is a process of an ordinary user.
func sleeper(t *testing.T, env ...string) snapshot.PID {
	t.Helper()
	_, _, attr := proctest.OrdinaryUser(t)
	cmd := exec.Command("/bin/sleep", "60")
	cmd.Env, cmd.SysProcAttr = env, attr
	return running(t, cmd)
}

// running starts a program, which is killed at the end of the test.
func running(t *testing.T, cmd *exec.Cmd) snapshot.PID {
	t.Helper()
	proctest.Start(t, cmd)
	return snapshot.PID(cmd.Process.Pid) //nolint:gosec // a PID fits
}

func TestReader(t *testing.T) {
	proctest.NeedRoot(t)
	fs, pid := withReader(), sleeper(t, "A=1", "RAW=\xff\n", "EMPTY=")
	for key, want := range map[string]struct {
		value string
		found bool
	}{"A": {"1", true}, "RAW": {"\xff\n", true}, "EMPTY": {"", true}, "B": {}} {
		value, found, err := fs.Environ(pid, key)
		require.NoError(t, err)
		require.Equal(t, want.value, value)
		require.Equal(t, want.found, found)
	}
	h := proctest.Try(fs.Open(pid)).OK(t)
	defer h.Close()
	require.Equal(t, "/bin/sleep 60", h.CommandLine())
	has := proctest.Try((&proc.Quota{}).HasNode(fs, pid, memMajor)).OK(t)
	require.True(t, has, "/dev/null")
	require.NoError(t, syscall.Kill(int(pid), syscall.SIGKILL))
	require.Eventually(t, func() bool {
		_, _, err := fs.Environ(pid, "A")
		return errors.Is(err, proc.ErrGone) // before that it has no memory
	}, 30*time.Second, 10*time.Millisecond)
}

// TestStalledMemory: a reader of the memory of the process waits for the FUSE server of its user.
func TestStalledMemory(t *testing.T) {
	for name, inExec := range map[string]bool{"munmap": false, "execve": true} {
		t.Run(name, func(t *testing.T) {
			pid, uid := proctest.Stall(t, inExec)
			fs, honest := withReader(), sleeper(t, "A=1")
			began := time.Now()
			_, _, err := fs.Environ(pid, "A")
			require.ErrorIs(t, err, proc.ErrStalled)
			require.ErrorIs(t, err, proc.ErrUnreadable)
			require.NotErrorIs(t, err, proc.ErrGone)
			asked := time.Now()
			for range 100 {
				_, _, err := fs.Environ(pid, "A")
				require.ErrorIs(t, err, proc.ErrStalled)
			}
			require.Less(t, time.Since(asked), time.Second, "it isn't waited for again")
			require.Error(t, proctest.Try((&proc.Quota{}).HasNode(fs, pid, memMajor)).Err, "it is not spared")
			h := proctest.Try(fs.Open(pid)).OK(t)
			defer h.Close()
			require.Empty(t, h.CommandLine())
			require.Equal(t, uid, proctest.Try(h.Owner()).OK(t))
			if !inExec { // while it is in execve(2), the kernel doesn't say
				require.Equal(t, proc.Stall{FUSE: true, Mounter: &uid}, h.Stall(uid, true))
				require.True(t, fs.WaitsForFUSE(pid))
				require.Nil(t, h.Stall(uid, false).Mounter, "a file system of whoever made that namespace")
			}
			require.False(t, fs.WaitsForFUSE(honest))
			value, _, err := fs.Environ(honest, "A")
			require.NoError(t, err)
			require.Equal(t, "1", value, "others are read")
			require.Less(t, time.Since(began), 3*time.Second)
		})
	}
}

// TestAHelperThatDoesNotEnd: one that survives SIGKILL is not waited for, and as long as it lives, no other one reads
// that process. Since Linux 4.17 no file can hold it: what is mapped over an environment is not read.
func TestAHelperThatDoesNotEnd(t *testing.T) {
	pid, _ := proctest.Stall(t, false)
	honest, children := sleeper(t, "A=1"), filepath.Join(t.TempDir(), "children")
	fs := proc.FS{Reader: &proc.ReaderProcess{Command: []string{ // its child has its stdout
		"/bin/sh", "-c", `/bin/sleep 60 & echo $! >>"$0"; exec "$1" read`, children, os.Args[0],
	}}}
	t.Cleanup(fs.Reader.Close)
	helpers := func() (pids []string) {
		data := proctest.ReadFile(t, children)
		return strings.Fields(string(data))
	}
	end := func(pid string) {
		require.NoError(t, syscall.Kill(proctest.Try(strconv.Atoi(pid)).OK(t), syscall.SIGKILL))
	}
	t.Cleanup(func() {
		for _, pid := range helpers()[1:] {
			end(pid)
		}
	})
	for range 2 {
		_, _, err := fs.Environ(pid, "A")
		require.ErrorIs(t, err, proc.ErrStalled)
		value, _, err := fs.Environ(honest, "A")
		require.NoError(t, err)
		require.Equal(t, "1", value)
	}
	fs.Reader.Later(2 * time.Minute)
	began := time.Now()
	for range 100 {
		_, _, err := fs.Environ(pid, "A")
		require.ErrorIs(t, err, proc.ErrStalled)
	}
	require.Less(t, time.Since(began), time.Second)
	require.Len(t, helpers(), 2)
	end(helpers()[0])
	require.Eventually(t, func() bool { // the living one tries
		_, _, err := fs.Environ(pid, "A")
		require.ErrorIs(t, err, proc.ErrStalled)
		_, _, err = fs.Environ(honest, "A")
		require.NoError(t, err)
		return len(helpers()) == 3
	}, 10*time.Second, 10*time.Millisecond)
}

// TestManyGroups: they make /proc/PID/status as long as the owner wants.
func TestManyGroups(t *testing.T) {
	proctest.NeedRoot(t)
	uid, _, attr := proctest.OrdinaryUser(t)
	for i := range uint32(20_000) {
		attr.Credential.Groups = append(attr.Credential.Groups, 1_000_000+i)
	}
	attr.Cloneflags = syscall.CLONE_NEWPID
	cmd := exec.Command("/bin/sleep", "60")
	cmd.SysProcAttr = attr
	h := proctest.Try(proc.FS{}.Open(running(t, cmd))).OK(t)
	defer h.Close()
	require.Equal(t, uid, proctest.Try(h.RealUID()).OK(t))
	require.True(t, h.InInnerNamespace())
}

// TestManyLargeEnvironments: those below the bound are read within the quota of their account, a part in each look.
func TestManyLargeEnvironments(t *testing.T) {
	proctest.NeedRoot(t)
	fs := withReader()
	large := sleeper(t, "A=1", "B="+strings.Repeat("x", 100<<10), "C="+strings.Repeat("x", 100<<10))
	h, err := fs.Open(large)
	require.NoError(t, err)
	defer h.Close()
	h.Quota = &proc.Quota{}
	read, began := 0, time.Now()
	for range 100_000 {
		if _, _, err = h.Environ("A"); err != nil {
			break
		}
		read++
	}
	require.ErrorIs(t, err, proc.ErrNotRead)
	require.ErrorIs(t, err, proc.ErrUnreadable)
	require.NotErrorIs(t, err, proc.ErrStalled, "it has many, no slow ones")
	require.Positive(t, read)
	require.Less(t, time.Since(began), 2*time.Second)
	require.Eventually(t, func() bool {
		h.Quota = &proc.Quota{}
		_, _, err := h.Environ("A")
		require.NotErrorIs(t, err, proc.ErrStalled)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond, "the next look goes on")
}

func TestEnvironmentOverTheBound(t *testing.T) {
	limit := syscall.Rlimit{}
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_STACK, &limit))
	cmd := exec.Command("/bin/bash", "-c", "ulimit -s 65536 && exec /bin/bash -c 'for i in {1..30}; do export V$i=$(printf %0100000d 0); done; exec sleep 60'")
	cmd.Env = []string{"A=1"}
	pid := running(t, cmd)
	large := func() bool { // sleep has its name before its environment
		_, _, err := proc.FS{}.Environ(pid, "A")
		return errors.Is(err, proc.ErrTooLarge)
	}
	require.Eventually(t, large, 10*time.Second, 10*time.Millisecond)
	for _, fs := range []proc.FS{{}, withReader()} {
		_, _, err := fs.Environ(pid, "A")
		require.ErrorIs(t, err, proc.ErrTooLarge)
		require.ErrorIs(t, err, proc.ErrUnreadable)
	}
	_, _, err := proc.FS{}.Environ(snapshot.PID(os.Getpid()), "A")
	require.NoError(t, err)
}

func TestStall(t *testing.T) {
	const (
		munmap = "[<0>] folio_wait_bit+0x1\n[<0>] fuse_vma_close+0x22/0x90\n[<0>] __mmap_region+0x42a/0xfd0\n"
		reads  = "[<0>] request_wait_answer+0x1\n[<0>] fuse_file_read_iter+0x1\n[<0>] vfs_read+0x1\n"
		nfs    = "[<0>] rpc_wait_bit_killable+0x1\n[<0>] nfs_file_fsync+0x1\n[<0>] __mmap_region+0x1\n"
		root   = "30 1 0:30 / /data rw - fuse.glusterfs gluster rw,user_id=0,group_id=0\n"
		alices = "31 1 0:31 / /home/alice/remote rw - fuse.sshfs sshfs rw,user_id=1001,group_id=1001\n"
		bobs   = "32 1 0:32 / /home/bob/remote rw - fuse.sshfs sshfs rw,user_id=1002,group_id=1002\n"
		inside = "33 1 0:33 / /mnt rw shared:1 - fuse test rw,user_id=0,group_id=0\n"
		disk   = "20 1 8:1 / / rw - ext4 /dev/sda1 rw,user_id=1001\n"
	)
	alice := snapshot.UID(1001)
	for name, tt := range map[string]struct {
		stack, theirs, ours string
		rootless            bool
		want                proc.Stall
	}{
		"in a namespace of its own":     {munmap, disk + inside, disk, true, proc.Stall{FUSE: true, Mounter: &alice}},
		"by fusermount":                 {munmap, disk + alices, disk + alices, false, proc.Stall{FUSE: true, Mounter: &alice}},
		"both":                          {munmap, disk + alices + inside, disk + alices, true, proc.Stall{FUSE: true, Mounter: &alice}},
		"of root":                       {munmap, disk + root, disk + root, false, proc.Stall{FUSE: true}},
		"of root, perhaps":              {munmap, disk + root + alices, disk + root + alices, false, proc.Stall{FUSE: true}},
		"of another user":               {munmap, disk + bobs, disk + bobs, false, proc.Stall{FUSE: true}},
		"in a namespace of root's":      {munmap, disk + inside, disk, false, proc.Stall{FUSE: true}},
		"not mounted any more":          {munmap, disk, disk, true, proc.Stall{FUSE: true}},
		"a reader of FUSE":              {reads, disk + alices, disk + alices, false, proc.Stall{}},
		"NFS":                           {nfs, disk + alices, disk + alices, false, proc.Stall{Network: true}},
		"NFS, and a reader of FUSE":     {nfs + reads, disk + inside, disk, true, proc.Stall{FUSE: true, Network: true, Mounter: &alice}},
		"nothing that the kernel shows": {"", disk + inside, disk, true, proc.Stall{}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"7/task/7/stack": tt.stack, "7/mountinfo": tt.theirs, "self/mountinfo": tt.ours} {
				path := filepath.Join(dir, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755)) //nolint:gosec // as in /proc
				require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			}
			h := proctest.Try(proc.FS{Root: dir}.Open(7)).OK(t)
			defer h.Close()
			require.Equal(t, tt.want, h.Stall(alice, tt.rootless))
		})
	}
}

// sudo with log_subcmds compares the path by which a program is started with that of its file, and refuses /proc/self/exe.
func TestTheHelperIsStartedByItsPath(t *testing.T) {
	fs := withReader()
	t.Cleanup(fs.Reader.Close)
	_, _, err := fs.Environ(sleeper(t, "A=1"), "A")
	require.NoError(t, err)
	path := proctest.Try(os.Executable()).OK(t)
	pids := proctest.Try(fs.PIDs()).OK(t)
	require.True(t, slices.ContainsFunc(pids, func(pid snapshot.PID) bool {
		stat, err := fs.Stat(pid)
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err == nil && int(stat.PPID) == os.Getpid() && string(command) == path+"\x00read\x00"
	}))
}
