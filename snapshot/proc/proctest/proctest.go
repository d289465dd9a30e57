// Package proctest helps tests with real processes that they start, and says what tests need.
package proctest

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// Need skips a test on a machine that lacks something. With CI=true that is a failure, so that the test isn't missed.
func Need(t testing.TB, has bool, what string) {
	t.Helper()
	switch {
	case has:
	case os.Getenv("CI") == "true":
		t.Fatal("CI=true, so this test must run, but it needs " + what)
	default:
		t.Skip("this test needs " + what)
	}
}

// NeedRoot skips a test that only root can do.
func NeedRoot(t testing.TB) {
	t.Helper()
	Need(t, os.Geteuid() == 0, "root: run it with sudo")
}

// NeedPrograms skips a test without programs of Debian.
func NeedPrograms(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := exec.LookPath(name)
		Need(t, err == nil, name+": `make test` as root installs it on Debian")
	}
}

// NeedSSH skips a test that runs programs of OpenSSH. They do not run for a uid without an account.
func NeedSSH(t testing.TB) {
	t.Helper()
	NeedPrograms(t, "ssh")
	if _, err := user.LookupId(strconv.Itoa(os.Getuid())); err != nil {
		t.Skip("skipped: OpenSSH does not run for a uid without an account:", err)
	}
}

// PublicDir is a new folder that other users may enter, as they may not t.TempDir. Its path has room for that of a socket.
func PublicDir(t testing.TB, mode os.FileMode) string {
	t.Helper()
	dir := Try(os.MkdirTemp("/tmp", "genv-test-")).OK(t)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, mode))
	return dir
}

// MemoryDir is a new folder in memory if possible: on a disk, tests would spend their time waiting for fsync.
func MemoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "genv-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// WriteProgram writes a program to run. A process that another test starts then has the file open for writing until
// its exec, and Linux runs no such program ("text file busy"): so none is started meanwhile.
func WriteProgram(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755)
}

// Stat returns the numeric fields of /proc/self/stat, with their numbers of proc(5).
func Stat() (field func(n int) uint64, err error) {
	data, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	return func(n int) uint64 {
		value, _ := strconv.ParseUint(fields[n-3], 10, 64) // the kernel writes numbers
		return value
	}, nil
}

// OverwriteEnviron does to this process what setproctitle does: it writes a title over the environment with which the
// process was started, and NULs to the end of it. If the title ends with "…", the rest is not changed.
func OverwriteEnviron(title string) error {
	field, err := Stat()
	if err != nil {
		return err
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = memory.Close() }()
	data := make([]byte, field(51)-field(50))
	if title, ok := strings.CutSuffix(title, "…"); ok {
		data = data[:copy(data, title)]
	} else {
		copy(data, title)
	}
	_, err = memory.WriteAt(data, int64(field(50)))
	return err
}

// OrdinaryUID is of this test's program alone, since what one process of a user does concerns the others. It is in a
// range that no distribution assigns (60706 to 61183), above those that tests name.
var OrdinaryUID = snapshot.UID(61003 + os.Getpid()%181) //nolint:gosec // it fits

// OrdinaryUser is a user who is not root, the test's own user if possible. It returns the path of the test's program
// that this user can run, and the attributes to start it as this user.
func OrdinaryUser(t *testing.T) (uid snapshot.UID, program string, attr *syscall.SysProcAttr) {
	exe := Try(os.Executable()).OK(t)
	attr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		return snapshot.UID(os.Getuid()), exe, attr
	}
	program = filepath.Join(PublicDir(t, 0o755), filepath.Base(exe))
	require.NoError(t, WriteProgram(program, ReadFile(t, exe)))
	require.NoError(t, os.Chmod(program, 0o755)) // whatever the umask is
	attr.Credential = &syscall.Credential{Uid: uint32(OrdinaryUID), Gid: uint32(OrdinaryUID)}
	return OrdinaryUID, program, attr
}

// Cases is how many random cases of n a property test tries: a fiftieth with the race detector, which makes each seven
// times as slow and finds little where there are few goroutines; all without it, and in `make soak`.
func Cases(n uint64) uint64 {
	info, ok := debug.ReadBuildInfo()
	raced := ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
	if raced && os.Getenv("GENV_SOAK") == "" {
		return n / 50
	}
	return n
}

// Soak skips a test that takes too long for anything but make soak, and otherwise is for how long it is to go on.
func Soak(t testing.TB) time.Duration {
	t.Helper()
	if os.Getenv("GENV_SOAK") == "" {
		t.Skip("set GENV_SOAK, as make soak does")
	}
	return Try(time.ParseDuration(os.Getenv("GENV_SOAK"))).OK(t, "GENV_SOAK is a duration such as 2m")
}

// ShortenQuickly has Go try little to shorten each new input of a fuzz test, unless the command line says how much: by
// default it takes up to a minute, in which no case counts.
func ShortenQuickly(f *testing.F) {
	f.Helper()
	const name = "test.fuzzminimizetime"
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if !given {
		require.NoError(f, flag.Set(name, "10x"))
	}
}

// Names are those of the entries of a folder.
func Names(t testing.TB, dir string) []string {
	t.Helper()
	names := []string{}
	for _, e := range Try(os.ReadDir(dir)).OK(t) {
		names = append(names, e.Name())
	}
	return names
}

// InEtc runs a test in a process of its own that has other files in /etc, such as subuid: it and what it starts see
// them, nothing else does. It returns true there, and false in the first process when that has ended.
func InEtc(t *testing.T, files map[string]string) bool {
	t.Helper()
	const variable = "PROCTEST_IN_ETC" // genvtest.Main removes GENV_…
	if os.Getenv(variable) == t.Name() {
		return true
	}
	NeedRoot(t)
	etc := filepath.Join(t.TempDir(), "etc")
	require.NoError(t, exec.Command("cp", "-a", "/etc", etc).Run())
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644))
	}
	const script = `mount --bind "$1" /etc && shift && exec "$@"`
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", script, "sh",
		etc, os.Args[0], "-test.v", "-test.count=1", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), variable+"="+t.Name())
	output, err := cmd.CombinedOutput()
	Need(t, !bytes.Contains(output, []byte("unshare failed")), "a mount namespace of its own")
	require.NoError(t, err, string(output))
	require.Contains(t, string(output), "--- PASS: "+t.Name())
	return false
}

// StartPiped starts a program with pipes to its stdin and from its stdout.
func StartPiped(t testing.TB, cmd *exec.Cmd) (stdin io.WriteCloser, stdout io.ReadCloser) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err = cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return stdin, stdout
}

// Start starts a program, and kills it at the end of the test.
func Start(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// Sleeper starts a process of a user, with an environment or this one's, that does nothing until the test ends.
func Sleeper(t testing.TB, uid int, environ ...string) snapshot.PID {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "1000000")
	cmd.Dir, cmd.Env = "/", environ
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if uid != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	Start(t, cmd)
	return snapshot.PID(cmd.Process.Pid)
}

// ReadFile is the content of a file.
func ReadFile(t testing.TB, path string) []byte {
	t.Helper()
	return Try(os.ReadFile(path)).OK(t)
}

// ReadText returns the content of a file as text.
func ReadText(t testing.TB, path string) string {
	t.Helper()
	return string(ReadFile(t, path))
}

// Output runs a program, which has to succeed, and returns all that it writes.
func Output(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%q: %s", cmd.Args, out)
	return string(out)
}

// CheckSudoers has visudo(8) check the content of a file.
func CheckSudoers(t testing.TB, content string) {
	t.Helper()
	const visudo = "/usr/sbin/visudo"
	_, err := os.Stat(visudo)
	Need(t, err == nil, "visudo")
	path := filepath.Join(t.TempDir(), "genv")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o440))
	Output(t, exec.Command(visudo, "-cf", path))
}

// Readable reports whether a file can be read, now or within a time. Go's runtime interrupts poll(2) with its own signals.
func Readable(t testing.TB, file *os.File, within time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(file.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(within.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			require.NoError(t, err)
			return n > 0
		}
	}
}

// NameOfCall is the name in a line of strace(1): PID NAME(ARGUMENTS) = RESULT.
func NameOfCall(line []byte) string {
	name, _, _ := bytes.Cut(line, []byte("("))
	fields := bytes.Fields(name)
	return string(fields[len(fields)-1])
}

// Tried is a value, or why there is none.
type Tried[T any] struct {
	value T
	Err   error // nil with a value
}

// Try takes what a function returns: proctest.Try(os.Open(path)).OK(t).
func Try[T any](value T, err error) Tried[T] { return Tried[T]{value, err} }

// OK requires the value. A message is printed with the error.
func (r Tried[T]) OK(t testing.TB, message ...any) T {
	t.Helper()
	require.NoError(t, r.Err, message...)
	return r.value
}
