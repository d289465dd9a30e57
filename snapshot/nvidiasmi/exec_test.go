package nvidiasmi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// script is a program in a folder of its own.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	require.NoError(t, proctest.WriteProgram(path, []byte("#!/bin/sh\n"+body)))
	return path
}

func TestExec(t *testing.T) {
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	t.Setenv("KEPT", "yes")
	run := nvidiasmi.Exec{Path: script(t, `printf '%s|' "$@" "$LC_ALL" "$GENV_BYPASS" "$KEPT"; echo oops >&2; exit 9`)}
	out := proctest.Try(run.Run(t.Context(), "-L", "a b")).OK(t)
	require.Equal(t, "-L|a b|C|1|yes|", string(out.Stdout))
	require.Equal(t, "oops\n", string(out.Stderr))
	require.Equal(t, 9, out.ExitCode)
}

func TestExecOfWhatDoesNotStart(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	require.NoError(t, proctest.WriteProgram(at("nonsense"), []byte("\x7fELF nonsense")))
	require.NoError(t, os.WriteFile(at("refused"), []byte("#!/bin/sh"), 0o644)) // as sudo's `Defaults intercept` refuses it
	for name, want := range map[string]error{
		"missing":  nvidiasmi.ErrNotInstalled,
		"nonsense": nvidiasmi.ErrFailed,
		"refused":  nvidiasmi.ErrRefused,
	} {
		require.ErrorIs(t, proctest.Try(nvidiasmi.Exec{Path: at(name)}.Run(t.Context())).Err, want, name)
	}
}

func TestExecBoundsTheOutput(t *testing.T) {
	for _, stream := range []string{"", " >&2"} {
		require.ErrorIs(t, proctest.Try(nvidiasmi.Exec{Path: script(t, "exec yes"+stream)}.Run(t.Context())).Err, nvidiasmi.ErrGarbled)
	}
}

// A program that ignores what it can, with a child that holds its pipes.
func TestTheEndOfTheContextEndsTheProgramAndItsChildren(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	run := nvidiasmi.Exec{Path: script(t, `trap '' TERM INT HUP; sleep 1000 & echo $! >`+pidFile+`; wait`)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := run.Run(ctx)
		result <- err
	}()
	child := waitForPID(t, pidFile)
	cancel()
	require.ErrorIs(t, <-result, context.Canceled)
	require.Eventually(t, func() bool { return ended(child) }, 10*time.Second, time.Millisecond)
}

// ended says whether a process has ended, even if no process has waited for it.
func ended(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat") // gone by now is fine
	return !strings.Contains(string(stat), ") S") && !strings.Contains(string(stat), ") R")
}

// What it leaves in the background, in a group of its own, keeps its pipes, and is not waited for.
func TestExecWithARemainingChild(t *testing.T) {
	out := proctest.Try(nvidiasmi.Exec{Path: script(t, `echo $$; echo oops >&2; sleep 1000 & exit 3`)}.Run(t.Context())).OK(t)
	group := proctest.Try(strconv.Atoi(strings.TrimSpace(string(out.Stdout)))).OK(t)
	require.NoError(t, syscall.Kill(-group, syscall.SIGKILL))
	require.Equal(t, "oops\n", string(out.Stderr))
	require.Equal(t, 3, out.ExitCode)
}

func TestFind(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	for _, dir := range []string{"real", "shim", "chain", "hard", "notexec", "dir/nvidia-smi", "broken", "empty", "other"} {
		require.NoError(t, os.MkdirAll(at(dir), 0o755))
	}
	write := func(name string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(at(name), []byte("#!/bin/sh\n"), mode))
	}
	write("genv", 0o755)
	write("real/nvidia-smi", 0o755)
	write("other/nvidia-smi", 0o755)
	write("notexec/nvidia-smi", 0o644)
	require.NoError(t, os.Symlink(at("genv"), at("shim/nvidia-smi")))
	require.NoError(t, os.Symlink("../shim/nvidia-smi", at("chain/nvidia-smi")))
	require.NoError(t, os.Link(at("genv"), at("hard/nvidia-smi")))
	require.NoError(t, os.Symlink("nowhere", at("broken/nvidia-smi")))

	path := func(dirs ...string) string {
		for i, dir := range dirs {
			dirs[i] = at(dir)
		}
		return strings.Join(dirs, ":")
	}
	for _, row := range []struct{ what, path, self, want string }{
		{"the first one", path("real", "other"), at("genv"), "real"},
		{"not our link", path("shim", "real"), at("genv"), "real"},
		{"not a link to our link", path("chain", "real"), at("genv"), "real"},
		{"not our hard link", path("hard", "real"), at("genv"), "real"},
		{"not when we are called by the link", path("shim", "real"), at("shim/nvidia-smi"), "real"},
		{"not what cannot be run", path("notexec", "dir", "broken", "empty", "real"), at("genv"), "real"},
		{"not in the working folder", ":.:relative:" + path("real"), at("genv"), "real"},
		{"a link when nothing is ours", path("shim"), "", "shim"},
		{"a link when we cannot be found", path("shim"), at("gone"), "shim"},
	} {
		got := proctest.Try(nvidiasmi.Find(row.path, row.self)).OK(t, row.what)
		require.Equal(t, at(row.want+"/nvidia-smi"), got, row.what)
	}
	for _, nowhere := range []string{"", ".", path("shim", "hard"), path("empty", "notexec")} {
		require.ErrorIs(t, proctest.Try(nvidiasmi.Find(nowhere, at("genv"))).Err, nvidiasmi.ErrNotInstalled, nowhere)
	}
}

// hanging is a program that writes its PID to a file and then hangs. Only SIGKILL ends it,
// as it ends a real one once the driver works again.
func hanging(t *testing.T) (path, pidFile string) {
	t.Helper()
	pidFile = filepath.Join(t.TempDir(), "pid")
	return script(t, `trap '' TERM INT HUP; echo $$ >>`+pidFile+`; while :; do sleep 1000; done`), pidFile
}

func waitForPID(t *testing.T, file string) (pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(file)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil
	}, 10*time.Second, time.Millisecond)
	return pid
}

func lockFile(t *testing.T) string { return filepath.Join(t.TempDir(), "run", "genv", "smi.lock") }

// After the genv that started it was killed, it still hangs: no second one is started, and later callers get an error.
func TestAHungCallIsInProgressOnceOnTheMachine(t *testing.T) {
	path, pidFile := hanging(t)
	lock := lockFile(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), runVariable+"="+path, lockVariable+"="+lock)
	require.NoError(t, cmd.Start())
	pid := waitForPID(t, pidFile)
	defer func() { _ = syscall.Kill(-pid, syscall.SIGKILL) }()
	require.Eventually(t, func() bool { text, _ := os.ReadFile(lock); return strings.Contains(string(text), strconv.Itoa(pid)) }, 10*time.Second, time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))

	again := nvidiasmi.Exec{Path: path, Lock: lock}
	for _, ask := range []func() error{
		func() error { return runWithin(t, 100*time.Millisecond, again) },
		func() error { return apps(t, again, 3*time.Second) },
	} {
		began := time.Now()
		err := ask()
		require.ErrorIs(t, err, nvidiasmi.ErrHung)
		require.Regexp(t, fmt.Sprintf(`^nvidia-smi has been running since \d{4}-\S+ as process %d and does not return: the GPU or its driver hangs.*dmesg`, pid), err.Error())
		require.Less(t, time.Since(began), 10*time.Second)
	}
	require.Equal(t, pid, waitForPID(t, pidFile), "no second one was started")

	// The driver is back.
	require.NoError(t, syscall.Kill(-pid, syscall.SIGKILL))
	works := nvidiasmi.New(nvidiasmi.Exec{Path: script(t, `echo 'GPU-1, 711, 5'`), Lock: lock}, time.Minute)
	require.Len(t, proctest.Try(works.Apps(t.Context(), 0)).OK(t).Apps, 1)
}

// apps asks for processes by a Querier of its own, as in a process of its own.
func apps(t *testing.T, run nvidiasmi.Exec, timeout time.Duration) error {
	_, err := nvidiasmi.New(run, timeout).Apps(t.Context(), 0)
	return err
}

func runWithin(t *testing.T, timeout time.Duration, run nvidiasmi.Exec) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := run.Run(ctx)
	return err
}

// One that is overdue is not waited for until the deadline.
func TestAHungHolderIsReportedSoon(t *testing.T) {
	lock := lockFile(t)
	file := hold(t, lock)
	since := time.Now().Add(-time.Hour).Truncate(time.Second)
	_, err := fmt.Fprintf(file, "4711 %d\n", since.Unix())
	require.NoError(t, err)
	began := time.Now()
	err = apps(t, nvidiasmi.Exec{Path: script(t, "exit 0"), Lock: lock}, time.Hour)
	require.ErrorIs(t, err, nvidiasmi.ErrHung)
	require.ErrorContains(t, err, "since "+since.Format(time.RFC3339)+" as process 4711")
	require.Less(t, time.Since(began), time.Minute)
}

// hold takes a lock file as another process would.
func hold(t *testing.T, path string) *os.File {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	file := proctest.Try(os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)).OK(t)
	t.Cleanup(func() { _ = file.Close() })
	require.NoError(t, syscall.Flock(int(file.Fd()), syscall.LOCK_EX))
	return file
}

func TestLockFileContents(t *testing.T) {
	for _, text := range []string{"", "rubbish", "-1", "4711", strings.Repeat("9", 5000)} {
		lock := lockFile(t)
		file := hold(t, lock)
		proctest.Try(file.WriteString(text)).OK(t)
		require.ErrorIs(t, runWithin(t, 50*time.Millisecond, nvidiasmi.Exec{Path: script(t, "exit 0"), Lock: lock}), nvidiasmi.ErrHung)
	}
}

func TestAReleasedLockIsTaken(t *testing.T) {
	lock := lockFile(t)
	file := hold(t, lock)
	result := make(chan error, 1)
	run := nvidiasmi.Exec{Path: script(t, "exit 0"), Lock: lock}
	go func() { result <- apps(t, run, time.Minute) }()
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, file.Close())
	require.NoError(t, <-result)
}

func TestACancelledWaitForTheLockReturnsTheCause(t *testing.T) {
	lock := lockFile(t)
	hold(t, lock)
	stopped := errors.New("stopped by the user")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	require.ErrorIs(t, proctest.Try(nvidiasmi.Exec{Path: script(t, "exit 0"), Lock: lock}.Run(ctx)).Err, stopped)
}

// Of many at once, one runs at a time, and all have their turn.
func TestCallsAreOneAtATimeOnTheMachine(t *testing.T) {
	lock, dir := lockFile(t), t.TempDir()
	path := script(t, `mkdir `+dir+`/running || exit 7; rmdir `+dir+`/running`)
	var group sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		group.Go(func() {
			for range 5 {
				errs[i] = errors.Join(errs[i], apps(t, nvidiasmi.Exec{Path: path, Lock: lock}, time.Minute))
			}
		})
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, os.FileMode(0o755), proctest.Try(os.Stat(filepath.Dir(lock))).OK(t).Mode().Perm())
}

// A program that leaves something running in the background does not hang.
func TestARemainingChildDoesNotKeepTheLock(t *testing.T) {
	lock := lockFile(t)
	pidFile := filepath.Join(t.TempDir(), "pid")
	run := nvidiasmi.Exec{Path: script(t, `sleep 1000 >/dev/null 2>&1 & echo $! >`+pidFile), Lock: lock}
	proctest.Try(run.Run(t.Context())).OK(t)
	defer func() { _ = syscall.Kill(waitForPID(t, pidFile), syscall.SIGKILL) }()
	require.NoError(t, apps(t, nvidiasmi.Exec{Path: script(t, "exit 0"), Lock: lock}, time.Minute))
}

// Other lock files, and none, are not waited for; nor is one in a place that is not ours alone.
func TestOtherLocksAreNotWaitedFor(t *testing.T) {
	held := lockFile(t)
	hold(t, held)
	open := filepath.Join(t.TempDir(), "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o777))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(filepath.Dir(held), link))
	linked := lockFile(t)
	require.NoError(t, os.MkdirAll(filepath.Dir(linked), 0o700))
	require.NoError(t, os.Symlink(held, linked))
	for name, lock := range map[string]string{
		"another":                 lockFile(t),
		"none":                    "",
		"a folder for everyone":   filepath.Join(open, "smi.lock"),
		"a link to the folder":    filepath.Join(link, filepath.Base(held)),
		"a link to the lock file": linked,
		"no folder":               "/proc/self/none/smi.lock",
	} {
		require.NoError(t, apps(t, nvidiasmi.Exec{Path: script(t, "exit 0"), Lock: lock}, time.Minute), name)
	}
}
