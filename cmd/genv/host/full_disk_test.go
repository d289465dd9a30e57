package host_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fill writes until there is no room.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer file.Close()
	for err == nil {
		_, err = file.WriteString("full")
	}
	require.ErrorIs(t, err, unix.ENOSPC)
}

// While the disk with root's state is full, changes are refused and say why, all that was
// answered stays, also if the service is killed; and with room again it goes on.
func TestTheServiceOnAFullDisk(t *testing.T) {
	h := newOwnHost(t)
	t.Parallel()
	disk := filepath.Join(h.dir, "root/host")
	require.NoError(t, os.Mkdir(disk, 0o755))
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64k,mode=0755"); errors.Is(err, unix.EPERM) && os.Getenv("CI") != "true" {
		t.Skip("no file system can be mounted here: ", err)
	} else {
		require.NoError(t, err) // in the tests' own mount namespace
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	const alice = 4001
	job := exec.Command("sleep", "1000")
	job.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: alice, Gid: alice}, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, job.Start())
	t.Cleanup(func() { _ = job.Process.Kill(); _ = job.Wait() })
	pid := strconv.Itoa(job.Process.Pid)
	service := h.serve()
	text, ok := h.does(alice, "envs", "activate", "--eid", "job", "--pid", pid)
	require.True(t, ok, text)
	text, ok = h.does(alice, "envs", "config", "--eid", "job", "name", "--name", "before")
	require.True(t, ok, text)
	state, err := os.ReadFile(filepath.Join(disk, "envs.json"))
	require.NoError(t, err)

	filler := filepath.Join(disk, "filler")
	for range 2 {
		fill(t, filler)
		for _, change := range [][]string{
			{"envs", "config", "--eid", "job", "name", "--name", "meanwhile"},
			{"envs", "activate", "--eid", "other", "--kernel-id", "k"},
			{"envs", "deactivate", "--pid", pid},
		} {
			text, ok = h.does(alice, change...)
			require.False(t, ok, text)
			require.Contains(t, text, disk)
			require.Contains(t, text, "no space left on device")
		}
		text, ok = h.does(alice, "envs")
		require.True(t, ok, text)
		require.Contains(t, text, "before")
		now, err := os.ReadFile(filepath.Join(disk, "envs.json"))
		require.NoError(t, err)
		require.Equal(t, string(state), string(now))
		require.NoError(t, service.Process.Kill())
		_ = service.Wait()
		service = h.serve()
	}
	require.NoError(t, os.Remove(filler))
	text, ok = h.does(alice, "envs", "config", "--eid", "job", "name", "--name", "afterwards")
	require.True(t, ok, text)
	text, _ = h.does(alice, "envs")
	require.Contains(t, text, "afterwards")
}
