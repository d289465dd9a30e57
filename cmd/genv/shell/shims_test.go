package shell_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
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
	require.NoError(t, proctest.WriteProgram(path, []byte("#!/bin/sh\n")))
	return path
}

func TestShimsOfAUser(t *testing.T) {
	home := t.TempDir()
	exe := program(t, t.TempDir(), "bin", "genv")
	dir := proctest.Try(shell.ShimsDir(exe, func(name string) string { return map[string]string{"HOME": home}[name] })).OK(t)
	require.Equal(t, home+"/.cache/genv/shims", dir)
	require.NoError(t, shell.EnsureShims(dir, exe))
	require.Equal(t, os.FileMode(0o700), proctest.Try(os.Stat(dir)).OK(t).Mode().Perm())
	for _, shim := range []string{"docker", "nvidia-smi"} {
		target := proctest.Try(os.Readlink(filepath.Join(dir, shim))).OK(t)
		require.Equal(t, exe, target)
	}
	newer := program(t, t.TempDir(), "genv")
	require.NoError(t, shell.EnsureShims(dir, newer), "links to an old genv are replaced")
	require.Equal(t, newer, proctest.Try(os.Readlink(filepath.Join(dir, "docker"))).OK(t))
	require.Len(t, proctest.Try(os.ReadDir(dir)).OK(t), 2)
}

func TestInstalledShimsComeFirst(t *testing.T) {
	prefix := t.TempDir()
	exe := program(t, prefix, "bin", "genv")
	dir := filepath.Join(prefix, "lib/genv/shims")
	require.NoError(t, shell.EnsureShims(dir, exe))
	require.Equal(t, dir, proctest.Try(shell.ShimsDir(exe, func(string) string { return "" })).OK(t))
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
	require.ErrorContains(t, proctest.Try(shell.ShimsDir(exe, func(string) string { return "" })).Err, "HOME")
}

func TestSomebodyElsesHome(t *testing.T) {
	proctest.NeedRoot(t) // only root can give a folder away
	home := t.TempDir()
	require.NoError(t, os.Chown(home, 12345, 12345))
	require.ErrorIs(t, shell.EnsureShims(filepath.Join(home, ".cache/genv/shims"), program(t, t.TempDir(), "genv")), shell.ErrUnsafeShims)
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
	got := proctest.Try(shell.FindReal("docker", path(".", "", ours, foreign, third, plain, "/nonexistent", filepath.Dir(want)), self)).OK(t)
	require.Equal(t, want, got)
	require.ErrorIs(t, proctest.Try(shell.FindReal("docker", path(ours, foreign, third, plain), self)).Err, exec.ErrNotFound)
}

func shell143(environ map[string]string) shell.Shell143 {
	return shell.Shell143{Environ: func(name string) string { return environ[name] }, Shims: "/opt/shims"}
}

// What the user had before comes back, unless 1.4.3 has replaced it by a value of its own.
func TestWhatDeactivationGivesBackInAShellOf143(t *testing.T) {
	for name, tt := range map[string]struct{ set, backups, want string }{
		"the user's own":                {"PATH:CUDA_VISIBLE_DEVICES", "PATH:CUDA_VISIBLE_DEVICES", "export CUDA_VISIBLE_DEVICES='old'\n"},
		"none before":                   {"PATH:CUDA_VISIBLE_DEVICES", "PATH", "unset CUDA_VISIBLE_DEVICES\n"},
		"1.4.3's, after an attach":      {"PATH:CUDA_VISIBLE_DEVICES:CUDA_VISIBLE_DEVICES", "PATH:CUDA_VISIBLE_DEVICES", "unset CUDA_VISIBLE_DEVICES\n"},
		"1.4.3's, over the user's":      {"CUDA_VISIBLE_DEVICES:PATH:CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES:CUDA_VISIBLE_DEVICES", "unset CUDA_VISIBLE_DEVICES\n"},
		"no variable":                   {"CUDA_VISIBLE_DEVICES:a b:$(id):", "", "unset CUDA_VISIBLE_DEVICES\n"},
		"a list that the user has lost": {"", "", "unset CUDA_VISIBLE_DEVICES\n"},
	} {
		code, err := shell143(map[string]string{
			"GENV_ENVS": tt.set, "GENV_BACKUP_ENVS": tt.backups, "GENV_BACKUP_ENV_CUDA_VISIBLE_DEVICES": "old", "GENV_BACKUP_ENV_PATH": "/bin",
		}).Render(shell.Deactivate())
		require.NoError(t, err)
		require.Contains(t, code, tt.want, name)
		require.NotContains(t, code, "unset PATH", name)
		require.NotContains(t, code, "id", name)
		require.Equal(t, strings.Contains(tt.backups, "PATH"), strings.Contains(code, "export PATH='/bin'\n"), name)
	}
}

// A script without the function gets the variables, and no books.
func TestAScriptGetsItsVariables(t *testing.T) {
	code := proctest.Try(shell143(nil).Render(shell.Update(shell.Active{EID: "7", Devices: []snapshot.DeviceIndex{1, 3}}))).OK(t)
	require.Equal(t, `export GENV_SHELL='1'
export GENV_ENVIRONMENT_ID='7'
export CUDA_DEVICE_ORDER='PCI_BUS_ID'
export CUDA_VISIBLE_DEVICES='1,3'
unset GENV_ENVIRONMENT_NAME
unset GENV_GPU_MEMORY
unset GENV_GPUS
`, code)
}

func TestNoCallerOf143(t *testing.T) {
	for _, pid := range []string{"", "0", "1", "-5", "x", "99999999999"} {
		require.ErrorIs(t, proctest.Try(shell143(nil).Caller(pid, nil)).Err, shell.ErrNotInitialised, pid)
	}
}

var quoted = regexp.MustCompile(`'[^']*'|\\'|"\$\{PS1-\}"`)

// FuzzShell143: whatever the lists, the old values and the name hold, nothing of them is read by the shell but quoted.
func FuzzShell143(f *testing.F) {
	f.Add("GENV_SHELL:PATH:PS1", "PATH:PS1", "it's $(id)", true)
	f.Add("A:B;id:`id`:CUDA_VISIBLE_DEVICES", "A:-n x:CUDA_VISIBLE_DEVICES", "\n';id;'", false)
	f.Fuzz(func(t *testing.T, set, backups, value string, activate bool) {
		s := shell.Shell143{Shims: value, Environ: func(name string) string {
			return map[string]string{"GENV_ENVS": set, "GENV_BACKUP_ENVS": backups, "GENV_BACKUP_ENV_PATH": value, "PATH": value, "CUDA_VISIBLE_DEVICES": value, "GENV_BACKUP_ENV_PS1": value}[name]
		}}
		change := shell.Deactivate()
		if activate {
			change = shell.Activate(shell.Active{EID: "7", Config: snapshot.EnvConfig{Name: value}}, false)
		}
		code, err := s.Render(change)
		if err != nil {
			require.ErrorIs(t, err, shell.ErrUnquotable)
			return
		}
		require.Regexp(t, `^[A-Za-z0-9_= \n]*$`, quoted.ReplaceAllString(code, ""))
	})
}
