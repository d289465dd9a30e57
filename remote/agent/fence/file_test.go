package fence_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func newFile(t *testing.T) *fence.LeaseFile {
	return &fence.LeaseFile{Path: filepath.Join(t.TempDir(), "root", "controller.json"), Now: func() time.Time { return now }}
}

func TestFile(t *testing.T) {
	f := newFile(t)
	require.NoError(t, f.Admit(nil))
	require.NoDirExists(t, filepath.Dir(f.Path), "a run without a claim leaves nothing behind")
	require.NoError(t, f.Admit(request(election, 2, "b")))
	written := proctest.ReadFile(t, f.Path)
	require.Error(t, f.Admit(request(election, 1, "a")))
	require.Error(t, f.Admit(nil))
	require.NoError(t, f.Admit(request(election, 2, "b")))
	require.Equal(t, string(written), proctest.ReadText(t, f.Path))
	require.NoError(t, f.Admit(request(election, 3, "a")), "another one reads it from the disk")
	require.Error(t, f.Admit(request(election, 2, "b")))
	require.Error(t, f.Admit(taking(request(run, 1, "c"))), "it gets no lease, so the one before could come back")
	require.Error(t, f.Admit(request(folder, 1, "d")))
	require.NoError(t, f.GiveBack(request(election, 3, "a")))
	require.NoError(t, f.Admit(request(run, 1, "c")))
	require.Error(t, f.Admit(request(election, 2, "b")), "the epoch is still known")
	require.Error(t, f.Admit(request(folder, 1, "d")))
	require.NoError(t, f.Admit(taking(request(folder, 1, "d"))))
}

// What changes nothing needs no lock: not in a folder that became read-only, and not while another genv hangs.
func TestFileWithoutItsLock(t *testing.T) {
	f := newFile(t)
	require.NoError(t, f.Admit(request(folder, 2, "a")))
	require.NoError(t, os.Remove(f.Path+".lock"))
	require.NoError(t, os.Mkdir(f.Path+".lock", 0o700))
	require.NoError(t, f.Admit(request(folder, 2, "a")))
	var refused *fence.RefusedError
	require.ErrorAs(t, f.Admit(nil), &refused)
	require.ErrorAs(t, f.Admit(request(folder, 1, "a")), &refused)
	require.ErrorContains(t, f.Admit(request(folder, 3, "a")), "so nothing is done")
}

// While something is done for a controller, no other one is admitted.
func TestHold(t *testing.T) {
	f := newFile(t)
	for _, c := range []*fence.LeaseRequest{nil, request(run, 1, "a")} {
		release := proctest.Try(f.Hold(c)).OK(t, "nothing is noted")
		release()
	}
	_, err := f.Hold(request(folder, 1, "a"))
	require.ErrorContains(t, err, "so nothing is done", "it was never admitted")
	require.NoError(t, f.Admit(request(folder, 1, "a")))
	release := proctest.Try(f.Hold(request(folder, 1, "a"))).OK(t)
	again := proctest.Try(f.Hold(request(folder, 1, "a"))).OK(t, "orders don't wait for each other")
	admitted := make(chan error)
	go func() { admitted <- f.Admit(request(folder, 2, "a")) }()
	again()
	require.Contains(t, proctest.ReadText(t, f.Path), `"epoch":1`)
	release()
	require.NoError(t, <-admitted)
	var refused *fence.RefusedError
	_, err = f.Hold(request(folder, 1, "a"))
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, proctest.Try(f.Hold(request(folder, 3, "a"))).Err, "so nothing is done", "a later start is admitted by Admit")
	require.NoError(t, f.GiveBack(request(folder, 2, "a")))
	require.Error(t, proctest.Try(f.Hold(request(folder, 2, "a"))).Err, "it said that it ended")
	require.NoError(t, os.Remove(f.Path))
	require.Error(t, proctest.Try(f.Hold(request(folder, 2, "a"))).Err)
}

// Of many controllers with different epochs, which ask at the same time, the highest is the one that is left.
func TestFileAtTheSameTime(t *testing.T) {
	f := newFile(t)
	var group sync.WaitGroup
	for epoch := range uint64(20) {
		group.Go(func() { _ = f.Admit(request(election, epoch+1, "a")) })
	}
	group.Wait()
	require.NoError(t, f.Admit(request(election, 20, "a")))
	require.Error(t, f.Admit(request(election, 19, "a")))
}

// What can't be read or written is not known, and so nothing is admitted.
func TestFileThatCannotBeUsed(t *testing.T) {
	for name, spoil := range map[string]func(f *fence.LeaseFile) error{
		"empty":          func(f *fence.LeaseFile) error { return os.WriteFile(f.Path, nil, 0o600) },
		"cut":            func(f *fence.LeaseFile) error { return os.Truncate(f.Path, 20) },
		"another schema": func(f *fence.LeaseFile) error { return os.WriteFile(f.Path, []byte(`{"schema":"x/1"}`), 0o600) },
		"no epoch": func(f *fence.LeaseFile) error {
			return os.WriteFile(f.Path, []byte(`{"schema":"genv.host.controller/1","source":"folder:a","controller":"a"}`), 0o600)
		},
		"a folder":        func(f *fence.LeaseFile) error { return os.Mkdir(f.Path, 0o700) },
		"too large":       func(f *fence.LeaseFile) error { return os.Truncate(f.Path, 1<<20) },
		"a folder of all": func(f *fence.LeaseFile) error { return os.Chmod(filepath.Dir(f.Path), 0o777) },
		"a symbolic link": func(f *fence.LeaseFile) error { return os.Symlink("/dev/null", f.Path) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFile(t)
			require.NoError(t, f.Admit(request(folder, 1, "a")))
			if name == "a folder" || name == "a symbolic link" {
				require.NoError(t, os.Remove(f.Path))
			}
			require.NoError(t, spoil(f))
			require.ErrorContains(t, f.Admit(request(folder, 2, "a")), "so nothing is done")
			require.Error(t, f.Admit(nil))
		})
	}
}

func TestPath(t *testing.T) {
	env := map[string]string{"GENV_ROOT_DIR": "/r"}
	get := func(key string) string { return env[key] }
	require.Equal(t, "/r/controller.json", fence.Path(get))
	env["GENV_TMPDIR"] = "/other"
	require.NotEqual(t, "/r/controller.json", fence.Path(get), "each state folder has its own")
	require.Equal(t, "/r", filepath.Dir(fence.Path(get)))
}

func TestTokens(t *testing.T) {
	run, now := filepath.Join(t.TempDir(), "run"), time.Now()
	tokens := func(folder, own string) []string {
		return proctest.Try(fence.Tokens(run, folder, own, now)).OK(t)
	}
	require.Empty(t, tokens("8:1/5", "a"))
	require.Equal(t, []string{"a"}, tokens("8:1/5", "b"))
	require.Empty(t, tokens("8:1/6", "c"), "another state folder")
	info := proctest.Try(os.Stat(filepath.Join(run, "tokens"))).OK(t)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "no other account sees them")
	now = now.Add(6 * time.Minute)
	require.Equal(t, []string{"a"}, tokens("8:1/5", "b"), "a conversation that has ended proves for some time what it showed")
	now = now.Add(6 * time.Minute)
	require.Equal(t, []string{"b"}, tokens("8:1/5", "d"))
	require.Equal(t, []string{"b", "d"}, tokens("8:1/5", "a"), "one that is quiet for long")
	require.NoError(t, os.Chmod(run, 0o777))
	require.Error(t, proctest.Try(fence.Tokens(run, "8:1/5", "a", now)).Err, "others can write there")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"schema":"genv.host.controller/1","source":"folder:a","epoch":1,"controller":"a","since":"2026-03-01T10:00:00Z"}`))
	f.Add([]byte(`{"schema":"genv.host.controller/1","source":"election:1/k","epoch":18446744073709551615,"controller":"a","name":"\u001b"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		lease, err := fence.Parse(data, "file")
		if err != nil {
			require.Nil(t, lease)
			return
		}
		require.NoError(t, lease.Check())
		_, err = lease.Admit(nil, now)
		if err != nil {
			require.NotContains(t, err.Error(), "\x1b")
		}
	})
}

// admitsVariable makes the test binary a genv that admits the claim with the epoch after the
// space, in the file before it.
const admitsVariable = "GENV_TEST_ADMITS"

func TestMain(m *testing.M) {
	path, epoch, admits := strings.Cut(os.Getenv(admitsVariable), " ")
	if !admits {
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // strace counts the calls of each thread by itself
	n, err := strconv.ParseUint(epoch, 10, 64)
	if err == nil {
		err = (&fence.LeaseFile{Path: path, Now: time.Now}).Admit(request(folder, n, "a"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// admitUnderStrace has another process admit an epoch, under strace(1), and returns the
// system calls that change the note.
func admitUnderStrace(t *testing.T, path string, epoch int, options ...string) (calls [][]byte, err error) {
	t.Helper()
	list := filepath.Join(t.TempDir(), "calls")
	args := append([]string{
		"--follow-forks", "--quiet=all", "--signal=none", "--trace=write,fchmod,fsync,renameat,unlinkat", "--output=" + list,
		"--trace-path=" + filepath.Dir(path), "--trace-path=" + path, "--trace-path=" + path + ".tmp",
	}, options...)
	self := proctest.Try(os.Executable()).OK(t)
	cmd := exec.CommandContext(t.Context(), "/usr/bin/strace", append(args, self)...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", admitsVariable, path, epoch))
	err = cmd.Run()
	written, readErr := os.ReadFile(list)
	require.NoError(t, readErr)
	return bytes.Split(bytes.TrimSpace(written), []byte("\n")), err
}

// A genv that is killed at any system call that changes the note leaves the old one or the new one, never none; the
// next genv goes on from there, has the note safe on the disk before it relies on it, and removes what was left.
func TestKilledAtEachSystemCall(t *testing.T) {
	_, err := os.Stat("/usr/bin/strace")
	proctest.Need(t, err == nil && os.Geteuid() == 0, "strace(1), and root")
	t.Parallel()
	noted := func(t *testing.T) *fence.LeaseFile {
		f := newFile(t)
		require.NoError(t, f.Admit(request(folder, 1, "a")))
		return f
	}
	made := proctest.Try(admitUnderStrace(t, noted(t).Path, 2)).OK(t)
	require.GreaterOrEqual(t, len(made), 6, "%s", made)
	kinds := map[string]int{}
	for i, call := range made {
		kind := proctest.NameOfCall(call)
		kinds[kind]++
		at := fmt.Sprintf("--inject=%s:signal=KILL:when=%d", kind, kinds[kind])
		t.Run(fmt.Sprintf("%d %s", i+1, kind), func(t *testing.T) {
			t.Parallel()
			f := noted(t)
			_, err := admitUnderStrace(t, f.Path, 2, at)
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())

			var refused *fence.RefusedError
			err = f.Admit(request(folder, 1, "a"))
			require.True(t, errors.As(err, &refused) || err == nil, "the note is whole: %v", err)
			next := proctest.Try(admitUnderStrace(t, f.Path, 2)).OK(t)
			require.Contains(t, string(bytes.Join(next, nil)), "fsync(", "whether or not it is written again")
			require.Error(t, f.Admit(request(folder, 1, "a")))
			require.NoError(t, f.Admit(request(folder, 3, "a")))
			require.Empty(t, proctest.Try(filepath.Glob(f.Path+".*tmp")).OK(t))
		})
	}
}

// What killed writers left, under whatever name, goes with the next change.
func TestLeftovers(t *testing.T) {
	f := newFile(t)
	require.NoError(t, f.Admit(request(folder, 1, "a")))
	for _, name := range []string{".tmp", ".1a2b3c.tmp"} {
		require.NoError(t, os.WriteFile(f.Path+name, []byte("{"), 0o600))
	}
	other := filepath.Join(filepath.Dir(f.Path), "other.json.tmp")
	require.NoError(t, os.WriteFile(other, nil, 0o600))
	require.NoError(t, f.Admit(request(folder, 2, "a")))
	require.Equal(t, []string{other}, proctest.Try(filepath.Glob(filepath.Join(filepath.Dir(f.Path), "*.tmp"))).OK(t))
}

// On a full disk the noted controller goes on, and another one as long as there are blocks for its lease.
func TestOnAFullDisk(t *testing.T) {
	const inside = "GENV_TEST_INSIDE"
	if os.Getenv(inside) == "" {
		proctest.Need(t, os.Geteuid() == 0, "root, to mount a file system of its own")
		t.Parallel()
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestOnAFullDisk$")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		output, err := cmd.CombinedOutput()
		proctest.Need(t, !errors.Is(err, unix.EPERM), "a mount namespace")
		require.NoError(t, err, "%s", output)
		return
	}
	f := newFile(t)
	dir := filepath.Dir(f.Path)
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0755"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	filler := filepath.Join(dir, "filler")
	fill := func() {
		file, err := os.OpenFile(filler, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		for require.NoError(t, err); err == nil; {
			_, err = file.Write(make([]byte, 4096))
		}
		require.ErrorIs(t, err, unix.ENOSPC)
		require.NoError(t, file.Close())
	}
	fill()
	require.ErrorIs(t, f.Admit(request(folder, 1, "a")), unix.ENOSPC, "the first one")
	require.NoFileExists(t, f.Path)
	require.NoError(t, os.Remove(filler))
	require.NoError(t, f.Admit(request(folder, 1, "a")))
	fill()
	require.NoError(t, f.Admit(request(folder, 1, "a")))
	proctest.Try(f.Hold(request(folder, 1, "a"))).OK(t)()
	require.NoError(t, f.Admit(request(folder, 2, "a")), "there are blocks for another lease")
	require.Error(t, f.Admit(request(folder, 1, "a")))
	require.NoError(t, os.Remove(f.Path+".spare"))
	fill()
	err := f.Admit(request(folder, 3, "a"))
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, "so nothing is done")
	require.ErrorIs(t, f.GiveBack(request(folder, 2, "a")), unix.ENOSPC)
	again := &fence.LeaseFile{Path: f.Path, Now: f.Now} // of another process
	require.NoError(t, again.Admit(request(folder, 2, "a")))
	require.NoError(t, os.Remove(filler))
	require.NoError(t, again.Admit(request(folder, 3, "a")))
	require.Error(t, f.Admit(request(folder, 2, "a")))
}
