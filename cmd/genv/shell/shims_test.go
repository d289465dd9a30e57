package shell_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
)

func TestShimByName(t *testing.T) {
	for argv0, want := range map[string]string{"nvidia-smi": "nvidia-smi", "/x/shims/docker": "docker"} {
		program, ok := shell.Shim(argv0)
		require.True(t, ok)
		require.Equal(t, want, program)
	}
	for _, argv0 := range []string{"genv", "/usr/bin/genv", "", "nvidia-smi2", "docker-compose", "/docker/genv"} {
		_, ok := shell.Shim(argv0)
		require.False(t, ok, argv0)
	}
}

// program makes an executable file with the folders above it.
func program(t *testing.T, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755))
	return path
}

func TestShimsOfAUser(t *testing.T) {
	home := t.TempDir()
	exe := program(t, t.TempDir(), "bin", "genv")
	dir, err := shell.ShimsDir(exe, func(name string) string { return map[string]string{"HOME": home}[name] })
	require.NoError(t, err)
	require.Equal(t, home+"/.cache/genv/shims", dir)
	require.NoError(t, shell.EnsureShims(dir, exe))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	for _, shim := range []string{"docker", "nvidia-smi"} {
		target, err := os.Readlink(filepath.Join(dir, shim))
		require.NoError(t, err)
		require.Equal(t, exe, target)
	}
	newer := program(t, t.TempDir(), "genv")
	require.NoError(t, shell.EnsureShims(dir, newer), "links to an old genv are replaced")
	target, err := os.Readlink(filepath.Join(dir, "docker"))
	require.NoError(t, err)
	require.Equal(t, newer, target)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
}

func TestInstalledShimsComeFirst(t *testing.T) {
	prefix := t.TempDir()
	exe := program(t, prefix, "bin", "genv")
	dir := filepath.Join(prefix, "lib/genv/shims")
	require.NoError(t, shell.EnsureShims(dir, exe))
	got, err := shell.ShimsDir(exe, func(string) string { return "" })
	require.NoError(t, err)
	require.Equal(t, dir, got)
}

func TestUnsafeShims(t *testing.T) {
	exe := program(t, t.TempDir(), "genv")
	rows := map[string]func(t *testing.T, dir string){
		"others may write": func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.Chmod(dir, 0o770))
		},
		"a link": func(t *testing.T, dir string) { require.NoError(t, os.Symlink(t.TempDir(), dir)) },
		"a file": func(t *testing.T, dir string) { require.NoError(t, os.WriteFile(dir, nil, 0o600)) },
	}
	for name, prepare := range rows {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "shims")
			prepare(t, dir)
			require.ErrorIs(t, shell.EnsureShims(dir, exe), shell.ErrUnsafeShims)
		})
	}
	_, err := shell.ShimsDir(exe, func(string) string { return "" })
	require.ErrorContains(t, err, "HOME")
}

func TestSomebodyElsesHome(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	home := t.TempDir()
	require.NoError(t, os.Chown(home, 12345, 12345))
	err := shell.EnsureShims(filepath.Join(home, ".cache/genv/shims"), program(t, t.TempDir(), "genv"))
	require.ErrorIs(t, err, shell.ErrUnsafeShims)
	require.NoDirExists(t, filepath.Join(home, ".cache"))
}

func TestFindReal(t *testing.T) {
	root := t.TempDir()
	self := program(t, root, "mine", "genv")
	other := program(t, root, "theirs", "genv")
	ours, foreign, third := filepath.Join(root, "a"), filepath.Join(root, "b"), filepath.Join(root, "genv", "shims")
	for dir, target := range map[string]string{ours: self, foreign: other} {
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, os.Symlink(target, filepath.Join(dir, "docker")))
	}
	program(t, third, "docker") // 1.4.3's, say
	plain := filepath.Join(root, "plain")
	require.NoError(t, os.MkdirAll(filepath.Join(plain, "docker"), 0o755), "a folder of that name")
	want := program(t, root, "real", "docker")
	path := func(dirs ...string) (joined string) {
		for _, dir := range dirs {
			joined += dir + ":"
		}
		return joined
	}
	got, err := shell.FindReal("docker", path(".", "", ours, foreign, third, plain, "/nonexistent", filepath.Dir(want)), self)
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = shell.FindReal("docker", path(ours, foreign, third, plain), self)
	require.ErrorIs(t, err, exec.ErrNotFound)
}
