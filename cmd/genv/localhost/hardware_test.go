package localhost

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestHardware(t *testing.T) {
	root := t.TempDir()
	environ := map[string]string{"GENV_ROOT_DIR": root}
	getenv := func(key string) string { return environ[key] }
	source := Hardware(getenv)
	require.Equal(t, filepath.Join(root, "run"), source.Run)
	require.Equal(t, "/proc", source.Proc, "only the notes of root are elsewhere")
	require.Equal(t, "/dev", source.Dev)
	require.Equal(t, os.Geteuid() == 0, source.Root)
	environ["GENV_DEV_DIR"] = "/sim/dev"
	require.Equal(t, filepath.Join(root, "proc"), Hardware(getenv).Proc, "a simulated host has its own or none")
	if source.Root {
		require.Equal(t, "/sim/dev", Hardware(getenv).Dev)
	}
	delete(environ, "GENV_DEV_DIR")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/driver/nvidia/gpus"), 0o755))
	require.Equal(t, filepath.Join(root, "proc"), Hardware(getenv).Proc)

	here := Hardware(func(string) string { return "" })
	require.Equal(t, "/run/genv", here.Run)
	require.Equal(t, "/proc", here.Proc)
}

func TestTheLockOfNvidiaSMI(t *testing.T) {
	dir := t.TempDir()
	program, link := filepath.Join(dir, "nvidia-smi"), filepath.Join(dir, "link")
	require.NoError(t, proctest.WriteProgram(program, nil))
	require.NoError(t, os.Symlink(program, link))
	lockOf := func(uid int, path string, environ map[string]string) string {
		return smiLock(func(key string) string { return environ[key] }, uid, path)
	}
	root := lockOf(0, program, nil)
	require.Regexp(t, `^/run/genv/nvidia-smi\.[0-9a-f]{16}\.lock$`, root)
	require.Equal(t, root, lockOf(0, link, nil), "one program")
	require.Equal(t, root, lockOf(0, program, map[string]string{"XDG_RUNTIME_DIR": "/run/user/1001"}), "root's is root's")
	require.Equal(t, root, lockOf(0, program, map[string]string{"GENV_TMPDIR": "/var/tmp/genv/"}), "one state folder")
	require.NotEqual(t, root, lockOf(0, filepath.Join(dir, "other"), nil))
	require.NotEqual(t, root, lockOf(0, program, map[string]string{"GENV_TMPDIR": "/tmp/a"}), "a simulated host")
	require.Equal(t, "/tmp/r/run", filepath.Dir(lockOf(0, program, map[string]string{"GENV_ROOT_DIR": "/tmp/r"})))
	require.Equal(t, "/run/user/1001/genv", filepath.Dir(lockOf(1001, program, map[string]string{"XDG_RUNTIME_DIR": "/run/user/1001"})))
	require.Empty(t, lockOf(1001, program, nil))
	require.Empty(t, lockOf(1001, program, map[string]string{"XDG_RUNTIME_DIR": "here", "GENV_ROOT_DIR": "/tmp/r"}))
}
