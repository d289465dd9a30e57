package proc_test

import (
	"os"
	"os/exec"
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
	return proc.FS{Reader: &proc.Reader{Command: []string{"/proc/self/exe", "read"}}}
}

// sleeper is a process of an ordinary user.
func sleeper(t *testing.T, env ...string) snapshot.PID {
	t.Helper()
	_, _, attr := proctest.OrdinaryUser(t)
	cmd := exec.Command("/bin/sleep", "60")
	cmd.Env, cmd.SysProcAttr = env, attr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
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
	h, err := fs.Open(pid)
	require.NoError(t, err)
	defer h.Close()
	require.Equal(t, "/bin/sleep 60", h.CommandLine())
	search := proc.NodeSearch{Major: memMajor}
	has, err := search.Finds(fs, pid)
	require.NoError(t, err)
	require.True(t, has, "/dev/null")
	require.NoError(t, syscall.Kill(int(pid), syscall.SIGKILL))
	require.Eventually(t, func() bool {
		_, _, err := fs.Environ(pid, "A")
		return err != nil
	}, 5*time.Second, 10*time.Millisecond)
	_, _, err = fs.Environ(pid, "A")
	require.ErrorIs(t, err, proc.ErrGone)
}

// TestStalledMemory: whoever reads the memory of the process waits for the FUSE server of its user.
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
			search := proc.NodeSearch{Major: memMajor}
			_, err = search.Finds(fs, pid)
			require.Error(t, err, "it is not spared")
			h, err := fs.Open(pid)
			require.NoError(t, err)
			defer h.Close()
			require.Empty(t, h.CommandLine())
			owner, err := h.Owner()
			require.NoError(t, err)
			require.Equal(t, uid, owner)
			value, _, err := fs.Environ(honest, "A")
			require.NoError(t, err)
			require.Equal(t, "1", value, "others are read")
			require.Less(t, time.Since(began), 3*time.Second)
		})
	}
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
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	h, err := proc.FS{}.Open(snapshot.PID(cmd.Process.Pid)) //nolint:gosec // a PID fits
	require.NoError(t, err)
	defer h.Close()
	credentials, err := h.Credentials()
	require.NoError(t, err)
	require.Equal(t, proc.Credentials{UID: uid, InnerNamespace: true}, credentials)
}

// TestManyLargeEnvironments: those below the bound are read within the budget of their account, a part in each look.
func TestManyLargeEnvironments(t *testing.T) {
	proctest.NeedRoot(t)
	fs := withReader()
	large := sleeper(t, "A=1", "B="+strings.Repeat("x", 100<<10), "C="+strings.Repeat("x", 100<<10))
	h, err := fs.Open(large)
	require.NoError(t, err)
	defer h.Close()
	h.Budget = &proc.Budget{}
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
	h.Budget = &proc.Budget{}
	_, _, err = h.Environ("A")
	require.NoError(t, err, "the next look goes on")
}

func TestEnvironmentOverTheBound(t *testing.T) {
	limit := syscall.Rlimit{}
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_STACK, &limit))
	cmd := exec.Command("/bin/bash", "-c", "ulimit -s 65536 && exec /bin/bash -c 'for i in {1..30}; do export V$i=$(printf %0100000d 0); done; exec sleep 60'")
	cmd.Env = []string{"A=1"}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	pid := snapshot.PID(cmd.Process.Pid) //nolint:gosec // a PID fits
	sleeps := func() bool { stat, err := proc.FS{}.Stat(pid); return err == nil && stat.Name == "sleep" }
	require.Eventually(t, sleeps, 10*time.Second, 10*time.Millisecond)
	for _, fs := range []proc.FS{{}, withReader()} {
		_, _, err := fs.Environ(pid, "A")
		require.ErrorIs(t, err, proc.ErrTooLarge)
		require.ErrorIs(t, err, proc.ErrUnreadable)
	}
	_, _, err := proc.FS{}.Environ(snapshot.PID(os.Getpid()), "A")
	require.NoError(t, err)
}
