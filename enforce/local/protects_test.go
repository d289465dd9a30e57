package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/snapshot"
)

// A snapshot names a daemon by the same judgement by which it is refused.
func TestProtectedName(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start processes of others")
	}
	folder, err := os.MkdirTemp("", "protects-") // where every user may come
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	require.NoError(t, os.Chmod(folder, 0o755))
	sleep, err := os.ReadFile("/bin/sleep")
	require.NoError(t, err)
	start := func(name string, uid uint32) *snapshot.Process {
		program := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(program+".new", sleep, 0o755))
		require.NoError(t, os.Rename(program+".new", program))
		cmd := exec.Command(program, "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		owner := snapshot.UID(uid)
		return &snapshot.Process{PID: snapshot.PID(cmd.Process.Pid), UID: &owner, Name: name[:min(len(name), 15)]}
	}
	x := local.New(nil, nil, local.ExecutorOptions{})
	require.Equal(t, "nvidia-persistenced", x.ProtectedName(start("nvidia-persistenced", 0)))
	require.Empty(t, x.ProtectedName(start("nvidia-persistenced", 60771)), "users can choose any name")
	require.Empty(t, x.ProtectedName(start("python", 0)))
	root := snapshot.UID(0)
	require.Empty(t, x.ProtectedName(&snapshot.Process{PID: 1 << 30, UID: &root}), "it has ended")
	require.Empty(t, x.ProtectedName(&snapshot.Process{PID: 1}), "its owner is not known")
	named := local.New(nil, nil, local.ExecutorOptions{Unprotected: []string{"nvidia-persistenced"}})
	require.Empty(t, named.ProtectedName(start("nvidia-persistenced", 0)))
}
