package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/app"
	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/delegate"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	testprograms "github.com/seed-3119e985/genv/remote/testfleet/programs"
)

// TestGenvStaysSmall: what only a controller needs is not part of genv, which every command of
// a user and every shim starts.
func TestGenvStaysSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	const module = "github.com/seed-3119e985/genv/"
	deps := strings.Fields(string(out))
	require.Contains(t, deps, module+"cmd/genv/host", "the list is one of packages")
	for _, dep := range deps {
		for _, heavy := range []string{
			module + "cmd/genv/fleet", module + "remote/top", module + "remote/web", module + "remote/install", module + "cmd/genv/listeners",
			"golang.org/x/crypto", "html/template", "charm.land/bubbletea", "github.com/charmbracelet/bubbletea", "github.com/kevinburke/ssh_config",
		} {
			require.False(t, dep == heavy || strings.HasPrefix(dep, heavy+"/"), "genv links %s", dep)
		}
		require.NotEqual(t, module+"remote/sshclient", dep)
	}
}

// TestBothProgramsListTheSameCommands: genv has the names and the descriptions of the commands
// of genv-remote, in the same order.
func TestBothProgramsListTheSameCommands(t *testing.T) {
	list := func(commands []*cli.Command) (lines []string) {
		for _, cmd := range commands {
			lines = append(lines, cmd.Name+": "+cmd.Usage)
		}
		return lines
	}
	p := command.Program{Getenv: os.Getenv}
	require.Equal(t, list(fleet.Commands(p)), list(delegate.Commands()))
	require.Equal(t, list(app.New(p, everyCommand).Commands), list(app.New(p, commands).Commands))
	whole := exec.Command(genvProgram(t)+"-remote", "--help")
	whole.Env = []string{"GENV_REMOTE_FOR=devel"}
	require.Equal(t, finished(t, whole), finished(t, exec.Command(genvProgram(t), "--help")))
}

// withRemote is a copy of genv, in a folder of its own, with a genv-remote that is a script.
func withRemote(t *testing.T, place, script string) (genv string) {
	t.Helper()
	dir := t.TempDir()
	genv = filepath.Join(dir, "bin", "genv")
	remote := filepath.Join(dir, place, "genv-remote")
	require.NoError(t, os.MkdirAll(filepath.Dir(genv), 0o755))
	require.NoError(t, testprograms.Copy(genvProgram(t), genv))
	if script != "" {
		require.NoError(t, os.MkdirAll(filepath.Dir(remote), 0o755))
		require.NoError(t, os.WriteFile(remote, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	return genv
}

// TestDelegate: genv becomes genv-remote, which gets the same arguments, environment and
// streams in the same process, wherever the link to genv is.
func TestDelegate(t *testing.T) {
	for _, place := range []string{"bin", "libexec/genv"} {
		genv := withRemote(t, place, `printf '%s|' "$$" "$X" "$@"; cat; echo err >&2; exit 7`)
		link := filepath.Join(t.TempDir(), "genv")
		require.NoError(t, os.Symlink(genv, link))
		for _, line := range []string{
			"remote", "remote --help", "remote enforce -H a,b", "policy check x", "help remote", "help policy check", "man DIR",
			"__complete bash genv remote", "__complete zsh genv policy",
		} {
			cmd := exec.Command(link, strings.Fields(line)...)
			cmd.Env = []string{"X=a b"}
			var out, errs strings.Builder
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("input"), &out, &errs
			require.Error(t, cmd.Run())
			require.Equal(t, 7, cmd.ProcessState.ExitCode())
			require.Equal(t, fmt.Sprintf("%d|a b|%s|input", cmd.Process.Pid, strings.ReplaceAll(line, " ", "|")), out.String())
			require.Equal(t, "err\n", errs.String())
		}
	}
}

// TestWhatIsNotHandedOver: all else is genv's own, also a shim with such an argument.
func TestWhatIsNotHandedOver(t *testing.T) {
	genv := withRemote(t, "bin", "echo handed over; exit 7")
	for _, line := range []string{
		"", "--help", "version", "help", "help version", "help help remote", "gpus --help", "enforce --help", "monitor --help", "usage --help",
		"completion bash", "__complete bash genv|", "lock echo remote", "-- remote", "--version remote", "run --help remote",
	} {
		out, _ := exec.Command(genv, strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '|' })...).CombinedOutput()
		require.NotContains(t, string(out), "handed over", line)
	}
	shim := filepath.Join(t.TempDir(), "nvidia-smi")
	require.NoError(t, os.Symlink(genv, shim))
	cmd := exec.Command(shim, "remote")
	cmd.Env = []string{"PATH=/nonexistent"}
	out, _ := cmd.CombinedOutput()
	require.Contains(t, string(out), "genv: ")
	require.NotContains(t, string(out), "handed over")
}

// TestWithoutGenvRemote: as on a GPU host. One line says what to do; what is found in PATH or
// in the current folder is not run, and completion of the other commands works.
func TestWithoutGenvRemote(t *testing.T) {
	genv := withRemote(t, "elsewhere", "echo not to be run")
	elsewhere := filepath.Join(filepath.Dir(filepath.Dir(genv)), "elsewhere")
	run := func(args ...string) result {
		cmd := exec.Command(genv, args...)
		cmd.Dir, cmd.Env = elsewhere, []string{"PATH=" + elsewhere + ":/usr/bin:/bin", "GENV_CONFIG_DIR=off"}
		return finished(t, cmd)
	}
	for _, line := range []string{"remote gpus -H a", "policy check x", "help remote enforce", "man " + t.TempDir()} {
		r := run(strings.Fields(line)...)
		require.Equal(t, command.ExitFailed, r.code)
		require.Empty(t, r.out)
		require.Regexp(t, "^genv: `genv "+strings.Fields(line)[0]+"` needs genv-remote: genv-remote is neither in .*/bin nor in .*/libexec/genv; run it on the controller, or install .*\n$", r.err)
	}
	require.Equal(t, result{out: "words\nremote\n"}, run("__complete", "bash", "genv remot", " "))
	require.Equal(t, result{out: "words\nremote\n"}, run("__complete", "bash", "genv remote", " "))
	require.Equal(t, result{out: "words\n--format\n"}, run("__complete", "bash", "genv version --fo", " "))
	require.Contains(t, run("--help").out, "work on many hosts over SSH")
}

// TestForeignGenvRemote: in a folder such as /tmp, one of another user is not run.
func TestForeignGenvRemote(t *testing.T) {
	needsRoot(t)
	genv := withRemote(t, "bin", "echo run")
	for uid, runs := range map[int]bool{0: true, 1001: true, 1002: false} {
		require.NoError(t, os.Chown(genv, 1001, 1001))
		require.NoError(t, os.Chown(genv+"-remote", uid, uid))
		r := finished(t, exec.Command(genv, "remote"))
		require.Equal(t, runs, r.out == "run\n", "uid %d: %s", uid, r.err)
		require.Equal(t, !runs, strings.Contains(r.err, "belongs to uid 1002, neither to root nor to the owner of "+genv), r.err)
	}
}

// TestVersionsOfBothPrograms: genv-remote refuses another genv than its own, to be started
// without one, and to install another one on hosts.
func TestVersionsOfBothPrograms(t *testing.T) {
	dir := t.TempDir()
	remote := filepath.Join(dir, "genv-remote")
	require.NoError(t, testprograms.Copy(genvProgram(t)+"-remote", remote))
	start := func(by ...string) result {
		cmd := exec.Command(remote, "remote", "install", "-H", "a.invalid", "--check")
		cmd.Args[0], cmd.Env = "genv", append([]string{"GENV_CONFIG_DIR=off", "HOME=" + dir}, by...)
		return finished(t, cmd)
	}
	for want, by := range map[string][]string{
		"genv-remote is started by genv: write `genv remote …`":                                  nil,
		"this is genv v1, but " + remote + " is of version devel; install both from one package": {"GENV_REMOTE_FOR=v1"},
	} {
		require.Equal(t, result{err: "genv: " + want + "\n", code: command.ExitFailed}, start(by...))
	}
	own := []string{"GENV_REMOTE_FOR=devel"}
	require.Contains(t, start(own...).err, "find the genv to install: genv is neither in "+dir+" nor in ")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "genv"), []byte("#!/bin/sh\necho v2\n"), 0o755))
	require.Contains(t, start(own...).err, "/genv is of version v2, but genv-remote of devel; install both from one package")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "genv"), []byte("#!/bin/sh\necho devel\n"), 0o755))
	require.Contains(t, start(own...).err, "it is not a program for 64-bit Linux")
	require.NoError(t, os.Remove(filepath.Join(dir, "genv")))
	require.NoError(t, testprograms.Copy(remote, filepath.Join(dir, "genv")))
	require.NotZero(t, start(own...).code, "genv-remote itself is not for hosts")
}

// TestSignalsReachTheController: those that end a program, or that it was started to ignore,
// do so after the change from genv to genv-remote as well.
func TestSignalsReachTheController(t *testing.T) {
	genv := withRemote(t, "bin", `kill -INT $$; echo survived`)
	plain := finished(t, exec.Command(genv, "remote"))
	require.Equal(t, result{code: -1}, plain)
	ignoring := exec.Command("/bin/sh", "-c", `trap '' INT; "$0" remote`, genv)
	require.Equal(t, result{out: "survived\n"}, finished(t, ignoring))
	cmd := exec.Command(genv, "remote")
	_ = cmd.Run()
	require.Equal(t, syscall.SIGINT, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}
