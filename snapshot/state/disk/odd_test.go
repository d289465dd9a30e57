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

// TestAnOddAttachmentIsNotNone: what one wrong character of devices.json hides comes back from root's copy.
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
			files, err := store.Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, indices{0}, files.AttachedTo("1102"))
			require.Len(t, files.Restorations, 1)
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

func FuzzBackup(f *testing.F) {
	f.Add([]byte("{\"boot_id\":\"b\",\"envs_bytes\":2,\"devices_bytes\":-1}\n{}"))
	f.Add([]byte("{\"envs_bytes\":9223372036854775807,\"devices_bytes\":9223372036854775807}\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		envs, devices, err := disk.ParseBackup(data)
		require.True(t, err == nil || (envs == nil && devices == nil))
		require.LessOrEqual(t, len(envs)+len(devices), len(data))
	})
}

// TestAMountThatComesAndGoes: root doesn't open what is mounted over a file since it looked for mounts, but goes by its
// copy.
func TestAMountThatComesAndGoes(t *testing.T) {
	proctest.NeedRoot(t)
	for _, file := range []string{"envs.json", "devices.json", "genv.lock"} {
		t.Run(file, func(t *testing.T) {
			store, _, dir, _ := kept(t)
			want, err := store.Read(t.Context())
			require.NoError(t, err)
			path := filepath.Join(dir, file)
			if err := unix.Mount("/dev/null", path, "", unix.MS_BIND, ""); err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { require.NoError(t, unix.Unmount(path, unix.MNT_DETACH)) })
			require.ErrorIs(t, store.Update(t.Context(), enter(7)), disk.ErrTampered)
			got, err := store.Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, want.Environments, got.Environments)
			require.Contains(t, strings.Join(got.Warnings, ""), "tampering: a file system is mounted at "+path)
		})
	}
}
