package disk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const owner = 64999 // a uid without an account

// Root repairs what a user did to the folder, and says so.
func TestRootRepairsTheFolder(t *testing.T) {
	needsRoot(t)
	tests := map[string]func(t *testing.T, dir string){
		"envs.json had mode 0000":         func(t *testing.T, dir string) { shut(t, filepath.Join(dir, "envs.json")) },
		"devices.json had mode 0000":      func(t *testing.T, dir string) { shut(t, filepath.Join(dir, "devices.json")) },
		"genv.lock":                       func(t *testing.T, dir string) { shut(t, filepath.Join(dir, "genv.lock")) },
		"genv of uid 64999 had mode 0000": func(t *testing.T, dir string) { shut(t, dir) },
		"genv.lock ": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "genv.lock")))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "genv.lock"), 0o700))
		},
		" genv.lock": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "genv.lock")))
			require.NoError(t, os.Symlink("/etc/shadow", filepath.Join(dir, "genv.lock")))
		},
		"genv was not a folder: uid 64999": func(t *testing.T, dir string) {
			require.NoError(t, os.Rename(dir, dir+".mine"))
			require.NoError(t, os.Symlink("/etc", dir))
			require.NoError(t, os.Lchown(dir, owner, owner))
		},
		"genv was not a folder: uid 64999 ": func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.WriteFile(dir, nil, 0o600))
			require.NoError(t, os.Chown(dir, owner, owner))
		},
	}
	for says, harm := range tests {
		t.Run(says, func(t *testing.T) {
			store, _, dir, _ := kept(t)
			harm(t, dir)
			files, err := store.Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, indices{0}, files.AttachedTo("1102"))
			require.NotEmpty(t, files.Warnings)
			require.Contains(t, strings.ReplaceAll(files.Warnings[len(files.Warnings)-1]+files.Warnings[0], "of uid 64999 (", "("), strings.TrimSpace(strings.SplitN(says, " had", 2)[0]))
			for name, mode := range map[string]os.FileMode{"": 0o777 | os.ModeDir, "envs.json": 0o666, "devices.json": 0o666, "genv.lock": 0o666} {
				info, err := os.Lstat(filepath.Join(dir, name))
				require.NoError(t, err)
				require.Equal(t, mode, info.Mode(), name)
			}
			files, err = store.Read(t.Context())
			require.NoError(t, err)
			require.Empty(t, files.Warnings, "said once")
		})
	}
}

// shut takes a file from all others.
func shut(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.Chown(path, owner, owner))
	require.NoError(t, os.Chmod(path, 0))
}

// What root itself made narrower stays so, and so does a user's own file that
// is in the place of a lock.
func TestRootDoesNotRepairItsOwnFiles(t *testing.T) {
	needsRoot(t)
	store, _, dir, _ := kept(t)
	require.NoError(t, os.Chmod(filepath.Join(dir, "envs.json"), 0o644))
	files, err := store.Read(t.Context())
	require.NoError(t, err)
	require.Empty(t, files.Warnings)
	info, err := os.Stat(filepath.Join(dir, "envs.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode())

	secret := filepath.Join(dir, "genv.lock")
	require.NoError(t, os.Remove(secret))
	require.NoError(t, os.WriteFile(secret, []byte("a user's own"), 0o600))
	require.NoError(t, os.Chown(secret, 64999, 64999))
	_, err = store.Read(t.Context())
	require.NoError(t, err)
	aside, err := filepath.Glob(secret + ".corrupt-*")
	require.NoError(t, err)
	require.Len(t, aside, 1)
	info, err = os.Stat(aside[0])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode(), "its content did not become public")
}
