package disk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// TestAnOddAttachmentIsNotNone: what one wrong character of devices.json hides is unknown.
func TestAnOddAttachmentIsNotNone(t *testing.T) {
	for name, change := range map[string][2]string{
		"an id that is a number":   {`"eid": "1102"`, `"eid": 1102`},
		"an id under another key":  {`"eid": "1102"`, `"id": "1102"`},
		"an index that is a text":  {`"index": 0`, `"index": "0"`},
		"an id that can't be read": {`"eid": "1102"`, `"eid": ""`},
	} {
		t.Run(name, func(t *testing.T) {
			store, _, dir, _ := kept(t)
			data, err := os.ReadFile(filepath.Join(dir, "devices.json"))
			require.NoError(t, err)
			changed := strings.Replace(string(data), change[0], change[1], 1)
			require.NotEqual(t, string(data), changed, "the row changes nothing")
			put(t, dir, "devices.json", changed)
			_, err = store.Read(t.Context())
			require.ErrorIs(t, err, disk.ErrCorrupt)
			require.Equal(t, changed, readFile(t, filepath.Join(dir, "devices.json")))
		})
	}
}

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

// TestAMountThatComesAndGoes: root doesn't open what is mounted over a file since it looked for mounts.
func TestAMountThatComesAndGoes(t *testing.T) {
	proctest.NeedRoot(t)
	for _, file := range []string{"envs.json", "devices.json", "genv.lock"} {
		t.Run(file, func(t *testing.T) {
			store, _, dir, _ := kept(t)
			path := filepath.Join(dir, file)
			if err := unix.Mount("/dev/null", path, "", unix.MS_BIND, ""); err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { require.NoError(t, unix.Unmount(path, unix.MNT_DETACH)) })
			require.ErrorIs(t, store.Update(t.Context(), enter(7)), disk.ErrTampered)
			_, err := store.Read(t.Context())
			require.ErrorContains(t, err, "tampering: a file system is mounted at "+path)
		})
	}
}
