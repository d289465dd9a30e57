package disk_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

func TestWhere(t *testing.T) {
	env := map[string]string{}
	get := func(name string) string { return env[name] }
	path := func() string { return filepath.Join(disk.RunDir(get), disk.RootFile(get, "asked")) }
	require.Equal(t, "/run/genv/asked.json", path())
	env["GENV_TMPDIR"] = "/var/tmp/genv/"
	require.Equal(t, "/run/genv/asked.json", path(), "it is the default state folder")
	env["GENV_TMPDIR"], env["GENV_ROOT_DIR"] = "/tmp/x", "/tmp/root"
	require.Regexp(t, `^/tmp/root/run/asked\.[0-9a-f]{16}\.json$`, path())
}

func TestOpenDir(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a/b")
	dir, err := folder.MakeTrusted(path)
	require.NoError(t, err)
	dir.Close()
	require.NoError(t, os.Chmod(path, 0o777))
	_, err = folder.MakeTrusted(path)
	require.ErrorIs(t, err, folder.ErrUnsafe)
}
