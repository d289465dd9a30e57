package fleet_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/install/onhost"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// installed reads the document of `genv remote install --format json`.
func installed(t *testing.T, r genvtest.Result) fleet.InstallDocument {
	t.Helper()
	document := genvtest.Decode[fleet.InstallDocument](t, r)
	require.Equal(t, "genv.remote.install/1", document.Schema)
	return document
}

// TestInstall: it is installed so that a controller can use it, upgraded, and uninstalled without a trace.
func TestInstall(t *testing.T) {
	t.Parallel()
	sshd.Require(t)
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02"), Installable: true})
	old, current := genvtest.ProgramWith(t, "1"), genvtest.ProgramWith(t, "2")
	flags := []string{"remote", "install", "-F", f.SSHConfig(), "-H", "gpu-01"}
	with := func(program string, more ...string) genvtest.Result {
		return genvtest.Exec(t, exec.Command(program, append(append([]string{}, flags...), more...)...))
	}
	place := filepath.Join(f.Local(), "bin/genv")
	rules := filepath.Join(f.SudoersFolder(), remote.SudoersFile)

	r := with(old, "--check", "-H", "gpu-02").Exits(t, command.ExitWork)
	require.Contains(t, r.Out, "would be installed")
	require.NoFileExists(t, place)
	require.NoFileExists(t, rules)
	require.Regexp(t, `(?m)^gpu-\[01-02\]: +also: man pages`, r.Out)
	require.Equal(t, 1, strings.Count(r.Out, "also: man pages"), "hosts with the same notes share a line")

	r = with(old).OK(t)
	require.Regexp(t, `gpu-01 +amd64|arm64 +/usr/local/bin/genv +- +devel +operator +installed`, r.Out)
	requireFile(t, place, old, 0o755)
	require.Equal(t, onhost.Sudoers("/usr/local/bin/genv", filepath.Join(f.Dir, "bin")+":"+filepath.Join(f.Dir, "driver"), "operator"), genvtest.Read(t, rules))
	for _, shim := range []string{"docker", "nvidia-smi"} {
		there := proctest.Try(filepath.EvalSymlinks(filepath.Join(f.Local(), "lib/genv/shims", shim))).OK(t)
		require.Equal(t, place, there)
	}

	r = with(old, "--format", "json").OK(t)
	require.Equal(t, onhost.Unchanged, installed(t, r).Hosts[0].Result)
	with(old, "--check").OK(t)
	r = with(current, "--check")
	require.Equal(t, command.ExitSomeFailed, r.Code, "it answered, and needs --upgrade")
	require.Contains(t, r.Err, "replace it with --upgrade")

	r = with(current).Exits(t, command.ExitSomeFailed, "next: replace it with --upgrade")
	requireFile(t, place, old, 0o755)
	r = with(current, "--upgrade").OK(t)
	require.Contains(t, r.Out, "upgraded")
	requireFile(t, place, current, 0o755)

	r = with(current, "--uninstall").OK(t)
	require.Contains(t, r.Out, "uninstalled")
	requireTree(t, f, "bin", "lib", "share", "share/man")
	require.Zero(t, with(current, "--uninstall").Code, "there is nothing left to do")
}

func requireFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	want := proctest.ReadFile(t, content)
	require.True(t, bytes.Equal(want, proctest.ReadFile(t, path)), "%s is not %s", path, content)
	require.Equal(t, mode, proctest.Try(os.Lstat(path)).OK(t).Mode())
}

// requireTree requires that /usr/local has these files and folders only, and /etc/sudoers.d no temporary files.
func requireTree(t *testing.T, f *sshd.Fleet, want ...string) {
	t.Helper()
	var found []string
	err := filepath.WalkDir(f.Local(), func(path string, _ os.DirEntry, err error) error {
		if path != f.Local() {
			found = append(found, strings.TrimPrefix(path, f.Local()+"/"))
		}
		return err
	})
	require.NoError(t, err)
	require.ElementsMatch(t, want, found)
	require.Empty(t, proctest.Try(filepath.Glob(filepath.Join(f.SudoersFolder(), ".*"))).OK(t))
}

// TestInstallAsksForThePassword: on a terminal, once, and shows nothing of it. Without one it asks no host.
func TestInstallAsksForThePassword(t *testing.T) {
	t.Parallel()
	sshd.Require(t)
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "a", Rights: sshd.NeedsPassword}, {Name: "b", Rights: sshd.NeedsPassword}}, Installable: true})
	flags := []string{"remote", "install", "-F", f.SSHConfig(), "-H", "a,b", "--ask-sudo-password"}
	genvtest.Exec(t, exec.Command(genvtest.Program(t), flags...)).Exits(t, command.ExitFailed, "--ask-sudo-password needs a terminal")
	r := genvtest.Exec(t, exec.Command(genvtest.Program(t), append(flags, "--insecure-ignore-host-keys")...)).Exits(t, command.ExitFailed)
	require.Contains(t, r.Err, "exclude each other", "any machine could get it")
	require.NotContains(t, r.Err+r.Out, "failed")
	r = genvtest.Exec(t, exec.Command(genvtest.Program(t), append(flags[:len(flags)-1:len(flags)-1], "--check")...))
	require.Equal(t, 1, strings.Count(r.Err, "next:"), r.Err)

	ask := func(password, until string) string {
		s := startPane(t, 160, 40, nil, "sh", "-c", genvtest.Program(t)+" "+strings.Join(flags, " ")+"; echo status $?; sleep 100")
		s.shows("Password for sudo on the hosts:")
		s.press("-l", password)
		s.press("Enter")
		text := s.shows(until)
		require.NotContains(t, text, password)
		return text
	}
	text := ask("wrong password", "status 3")
	require.Contains(t, text, "sudo refused the password")
	require.Regexp(t, "not tried: [ab] refused the password", text)
	text = ask(sshd.Password, "status 0")
	require.Regexp(t, `b +\w+ +/usr/local/bin/genv`, text)
	requireFile(t, filepath.Join(f.Local(), "bin/genv"), genvtest.Program(t), 0o755)
}
