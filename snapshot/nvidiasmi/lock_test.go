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
)

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
		func() error {
			_, err := nvidiasmi.New(again, 3*time.Second).Apps(t.Context(), 0)
			return err
		},
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
	usage, err := works.Apps(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, usage.Apps, 1)
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
	_, err = nvidiasmi.New(nvidiasmi.Exec{Path: script(t, "exit 0"), Lock: lock}, time.Hour).Apps(t.Context(), 0)
	require.ErrorIs(t, err, nvidiasmi.ErrHung)
	require.ErrorContains(t, err, "since "+since.Format(time.RFC3339)+" as process 4711")
	require.Less(t, time.Since(began), time.Minute)
}

// hold takes a lock file as another process would.
func hold(t *testing.T, path string) *os.File {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	require.NoError(t, syscall.Flock(int(file.Fd()), syscall.LOCK_EX))
	return file
}

func TestLockFileContents(t *testing.T) {
	for _, text := range []string{"", "rubbish", "-1", "4711", strings.Repeat("9", 5000)} {
		lock := lockFile(t)
		file := hold(t, lock)
		_, err := file.WriteString(text)
		require.NoError(t, err)
		require.ErrorIs(t, runWithin(t, 50*time.Millisecond, nvidiasmi.Exec{Path: script(t, "exit 0"), Lock: lock}), nvidiasmi.ErrHung)
	}
}

func TestAReleasedLockIsTaken(t *testing.T) {
	lock := lockFile(t)
	file := hold(t, lock)
	result := make(chan error, 1)
	go func() {
		_, err := nvidiasmi.New(nvidiasmi.Exec{Path: script(t, "exit 0"), Lock: lock}, time.Minute).Apps(t.Context(), 0)
		result <- err
	}()
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
	_, err := nvidiasmi.Exec{Path: script(t, "exit 0"), Lock: lock}.Run(ctx)
	require.ErrorIs(t, err, stopped)
}

// Many at once, each in a Querier of its own as in processes of their own: one
// runs at a time, and all have their turn.
func TestCallsAreOneAtATimeOnTheMachine(t *testing.T) {
	lock, dir := lockFile(t), t.TempDir()
	path := script(t, `mkdir `+dir+`/running || exit 7; rmdir `+dir+`/running`)
	var group sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		group.Go(func() {
			for range 5 {
				_, err := nvidiasmi.New(nvidiasmi.Exec{Path: path, Lock: lock}, time.Minute).Apps(t.Context(), 0)
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
	info, err := os.Stat(filepath.Dir(lock))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
}

// A program that leaves something running in the background does not hang.
func TestARemainingChildDoesNotKeepTheLock(t *testing.T) {
	lock := lockFile(t)
	pidFile := filepath.Join(t.TempDir(), "pid")
	run := nvidiasmi.Exec{Path: script(t, `sleep 1000 >/dev/null 2>&1 & echo $! >`+pidFile), Lock: lock}
	_, err := run.Run(t.Context())
	require.NoError(t, err)
	defer func() { _ = syscall.Kill(waitForPID(t, pidFile), syscall.SIGKILL) }()
	_, err = nvidiasmi.New(nvidiasmi.Exec{Path: script(t, "exit 0"), Lock: lock}, time.Minute).Apps(t.Context(), 0)
	require.NoError(t, err)
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
		_, err := nvidiasmi.New(nvidiasmi.Exec{Path: script(t, "exit 0"), Lock: lock}, time.Minute).Apps(t.Context(), 0)
		require.NoError(t, err, name)
	}
}
