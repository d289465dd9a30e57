package proc_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestParseStat(t *testing.T) {
	for name, want := range map[string]proc.Stat{
		"a plain name":        {PID: 42, Name: "python3", State: 'S', PPID: 7, Threads: 1, Start: 123456},
		"spaces":              {PID: 42, Name: "tmux: server", State: 'R', PPID: 1, Threads: 3, Start: 1},
		"parentheses":         {PID: 42, Name: "a) R 1 (b", State: 'D', PPID: 7, Threads: 1, Start: 99},
		"closing only":        {PID: 42, Name: ") Z 1 1 1", State: 'S', PPID: 7, Threads: 1, Start: 99},
		"a newline":           {PID: 42, Name: "a\nb", State: 'S', PPID: 7, Threads: 1, Start: 99},
		"not UTF-8":           {PID: 42, Name: "\xff\xfe", State: 'S', PPID: 7, Threads: 1, Start: 99},
		"no name":             {PID: 42, Name: "", State: 'S', PPID: 7, Threads: 1, Start: 99},
		"a kernel thread":     {PID: 2, Name: "kworker/u8:3-ev", State: 'I', PPID: 0, Flags: 0x208040, Threads: 1},
		"a namespace's first": {PID: 42, Name: "sh", State: 'S', PPID: 0, Threads: 1, Start: 5},
	} {
		t.Run(name, func(t *testing.T) {
			line := statLine(int(want.PID), want.Name, string(want.State), int(want.PPID), int(want.Flags), want.Threads, int(want.Start))
			got := proctest.Try(proc.ParseStat([]byte(line))).OK(t)
			want.EnvAddress, want.EnvSize, want.Session = 140722, 71, want.PID
			require.Equal(t, want, got)
		})
	}
}

func TestParseStatRefuses(t *testing.T) {
	whole := statLine(42, "sh", "S", 1, 0, 1, 7)
	for name, line := range map[string]string{
		"nothing":              "",
		"no name":              strings.NewReplacer("(", "", ")", "").Replace(whole),
		"a name left open":     strings.Replace(whole, ")", "", 1),
		"turned parentheses":   "42 )sh( S 1",
		"cut before the start": upTo(whole, " 7 1000"),
		"a word for a PID":     strings.Replace(whole, "42", "me", 1),
		"a negative parent":    strings.Replace(whole, "S 1", "S -1", 1),
		"a long state":         strings.Replace(whole, "S 1", "SS 1", 1),
		"a start beyond 64bit": strings.Replace(whole, " 7 1000", " 99999999999999999999999 1000", 1),
	} {
		require.Error(t, proctest.Try(proc.ParseStat([]byte(line))).Err, name)
	}
}

// Before Linux 3.5 the line ended earlier.
func TestParseStatOfAnOldKernel(t *testing.T) {
	line := statLine(42, "sh", "S", 1, 0, 1, 7)
	stat := proctest.Try(proc.ParseStat([]byte(upTo(line, " 140722")))).OK(t)
	require.Equal(t, snapshot.StartTime(7), stat.Start)
	require.Zero(t, stat.EnvAddress)
}

func TestExecMovesTheEnvironment(t *testing.T) {
	cmd := exec.Command("sh", "-c", "read -r line; exec cat")
	stdin, _ := proctest.StartPiped(t, cmd)
	defer func() {
		require.NoError(t, stdin.Close())
		require.NoError(t, cmd.Wait())
	}()
	pid := snapshot.PID(cmd.Process.Pid)
	var before proc.Stat
	var err error
	require.Eventually(t, func() bool { // execve(2) sets it after it has closed what Start waits for
		before, err = proc.FS{}.Stat(pid)
		return err == nil && before.EnvAddress != 0
	}, 5e9, 1e6)
	_, err = stdin.Write([]byte("go on\n"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		after, err := proc.FS{}.Stat(pid)
		return err == nil && after.Name == "cat" && after.Start == before.Start && after.EnvAddress != before.EnvAddress
	}, 5e9, 1e6)
}

func upTo(line, mark string) string {
	before, _, _ := strings.Cut(line, mark)
	return before
}

func TestGone(t *testing.T) {
	for _, row := range []struct {
		what  string
		state byte
		n     int
		gone  bool
	}{
		{"running", 'R', 1, false},
		{"sleeping", 'S', 4, false},
		{"stuck in the kernel", 'D', 1, false},
		{"stopped", 'T', 1, false},
		{"a zombie", 'Z', 1, true},
		{"a zombie, number of threads unknown", 'Z', 0, true},
		{"dead", 'X', 1, true},
		{"its first thread ended, others run", 'Z', 5, false},
	} {
		require.Equal(t, row.gone, proc.Stat{State: row.state, Threads: row.n}.Gone(), row.what)
	}
}

func TestAlive(t *testing.T) {
	fs := mount(t)
	add(t, fs, 10, map[string]string{"stat": statLine(10, "sh", "S", 1, 0, 1, 500)})
	add(t, fs, 11, map[string]string{"stat": statLine(11, "sh", "Z", 1, 0, 1, 500)})
	add(t, fs, 12, map[string]string{"stat": "rubbish"})
	for _, row := range []struct {
		what  string
		pid   snapshot.PID
		start snapshot.StartTime
		alive bool
	}{
		{"the very process", 10, 500, true},
		{"whoever has the PID", 10, 0, true},
		{"the PID was reused", 10, 499, false},
		{"a zombie", 11, 500, false},
		{"nobody", 13, 0, false},
		{"no PID", 0, 0, false},
		{"a process group", -10, 0, false},
	} {
		alive := proctest.Try(fs.Alive(row.pid, row.start)).OK(t, row.what)
		require.Equal(t, row.alive, alive, row.what)
	}
	require.ErrorIs(t, proctest.Try(fs.Alive(12, 0)).Err, proc.ErrUnreadable)
}

// With hidepid=2 the processes of others are absent, PID 1 among them. Their folders can be opened, and are empty.
func TestAbsenceSaysNothingWhereProcessesAreHidden(t *testing.T) {
	fs := proc.FS{Root: t.TempDir()}
	_, err := fs.Alive(10, 0)
	hidden := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, proc.ErrUnreadable)
		require.NotErrorIs(t, err, proc.ErrGone)
		require.ErrorContains(t, err, "hidepid")
	}
	hidden(err)
	add(t, fs, 10, nil)
	h := proctest.Try(fs.Open(10)).OK(t)
	defer func() { require.NoError(t, h.Close()) }()
	_, err = h.Stat()
	hidden(err)
	_, err = h.UID()
	hidden(err)
	_, _, err = h.Environ("A")
	hidden(err)
	add(t, fs, 1, nil)
	require.ErrorIs(t, proctest.Try(h.Stat()).Err, proc.ErrGone, "nothing is hidden")
}

// TestTheKernelHidesAProcess: a user who sees only the own processes, one of which ends.
func TestTheKernelHidesAProcess(t *testing.T) {
	const variable = "PROC_TEST_HIDDEN"
	if other, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		h := proctest.Try(proc.FS{}.Open(snapshot.PID(other))).OK(t)
		_, err = h.Stat()
		require.ErrorIs(t, err, proc.ErrUnreadable)
		require.ErrorContains(t, err, "hidepid")
		own := exec.Command("sleep", "60")
		require.NoError(t, own.Start())
		h = proctest.Try(proc.FS{}.Open(snapshot.PID(own.Process.Pid))).OK(t)
		_ = own.Process.Kill() // it runs
		_ = own.Wait()
		require.ErrorIs(t, proctest.Try(h.Stat()).Err, proc.ErrGone)
		return
	}
	proctest.NeedRoot(t)
	proctest.NeedPrograms(t, "unshare", "mount", "setpriv")
	uid, program, _ := proctest.OrdinaryUser(t)
	id := strconv.Itoa(int(uid))
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", `mount -t proc -o hidepid=2 proc /proc && exec "$@"`,
		"sh", "setpriv", "--reuid", id, "--regid", id, "--clear-groups", program, "-test.run=^"+t.Name()+"$")
	cmd.Dir, cmd.Env = "/", append(os.Environ(), fmt.Sprintf("%s=%d", variable, proctest.Sleeper(t, 0)))
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "mount:") {
		t.Skipf("no /proc can be mounted here: %s", out)
	}
	require.NoError(t, err, string(out))
}

func TestThisProcess(t *testing.T) {
	self := snapshot.PID(os.Getpid())
	p := proctest.Try(proc.FS{}.Open(self)).OK(t)
	defer func() { require.NoError(t, p.Close()) }()

	stat := proctest.Try(p.Stat()).OK(t)
	require.Equal(t, self, stat.PID)
	require.Equal(t, snapshot.PID(os.Getppid()), stat.PPID)
	require.NotZero(t, stat.Start)
	require.False(t, stat.Gone())
	require.False(t, stat.IsKernelThread())

	require.Equal(t, snapshot.UID(os.Getuid()), proctest.Try(p.UID()).OK(t))

	require.True(t, strings.HasPrefix(filepath.Base(proctest.Try(os.Executable()).OK(t)), p.Command(stat)))

	ancestors := proctest.Try(proc.FS{}.Ancestors(self)).OK(t)
	require.Equal(t, stat.PPID, ancestors[0].PID)
}

// child starts a process that waits until its stdin is closed.
func child(t *testing.T, env ...string) (*exec.Cmd, snapshot.PID) {
	t.Helper()
	cmd := exec.Command("cat")
	cmd.Env = env
	stdin, _ := proctest.StartPiped(t, cmd)
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait() // some tests have waited for it already
	})
	return cmd, snapshot.PID(cmd.Process.Pid)
}

// What is read through a handle is of one process, no matter who has its PID later.
func TestAHandleOutlivesItsProcess(t *testing.T) {
	cmd, pid := child(t, "GENV_ENVIRONMENT_ID=1667")
	p := proctest.Try(proc.FS{}.Open(pid)).OK(t)
	defer func() { require.NoError(t, p.Close()) }()
	require.Eventually(t, func() bool { // not in the middle of execve(2), when there is none to see
		eid, found, err := p.Environ("GENV_ENVIRONMENT_ID")
		return err == nil && found && eid == "1667"
	}, 10*time.Second, time.Millisecond)

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	_, err := p.Stat()
	require.ErrorIs(t, err, proc.ErrGone)
	require.ErrorIs(t, proctest.Try(p.UID()).Err, proc.ErrGone)
	_, _, err = p.Environ("GENV_ENVIRONMENT_ID")
	require.ErrorIs(t, err, proc.ErrGone)
}

func TestAZombieIsGone(t *testing.T) {
	cmd, pid := child(t)
	require.NoError(t, cmd.Process.Kill())
	require.Eventually(t, func() bool { // no process has waited for it: it stays a zombie
		stat, err := proc.FS{}.Stat(pid)
		return err == nil && stat.Gone()
	}, 5e9, 1e6)
	alive := proctest.Try(proc.FS{}.Alive(pid, 0)).OK(t)
	require.False(t, alive)
	_, found, err := proc.FS{}.Environ(pid, "GENV_ENVIRONMENT_ID")
	require.Error(t, err) // gone or unreadable, as kernels differ, but never "not in one"
	require.False(t, found)
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(statLine(42, "tmux: server", "S", 1, 0, 1, 7)))
	f.Add([]byte(statLine(42, "a) R 1 (b", "Z", 1, 0x200000, 1, 7)))
	f.Add([]byte("42 (sh) S 1"))
	f.Add([]byte(")("))
	f.Fuzz(func(t *testing.T, data []byte) {
		stat, err := proc.ParseStat(data)
		if err != nil {
			require.Zero(t, stat)
			return
		}
		require.GreaterOrEqual(t, stat.PID, snapshot.PID(0))
		require.GreaterOrEqual(t, stat.PPID, snapshot.PID(0))
		require.Contains(t, string(data), "("+stat.Name+")")
	})
}

func TestCommand(t *testing.T) {
	fs := mount(t)
	for _, row := range []struct {
		what      string
		pid       int
		comm, exe string
		flags     int
		want      string
	}{
		{"a short name", 10, "python3", "/usr/bin/python3.11", 0, "python3"},
		{"a cut name", 11, "nvidia-cuda-mps", "/usr/bin/nvidia-cuda-mps-server", 0, "nvidia-cuda-mps-server"},
		{"a cut name whose program was replaced", 12, "nvidia-cuda-mps", "/usr/bin/nvidia-cuda-mps-server (deleted)", 0, "nvidia-cuda-mps-server"},
		{"a title of its own", 13, "worker-00000001", "/usr/bin/python3.11", 0, "worker-00000001"},
		{"no program to be seen", 14, "nvidia-cuda-mps", "", 0, "nvidia-cuda-mps"},
	} {
		add(t, fs, snapshot.PID(row.pid), map[string]string{"stat": statLine(row.pid, row.comm, "S", 1, row.flags, 1, 5)})
		if row.exe != "" {
			require.NoError(t, os.Symlink(row.exe, filepath.Join(fs.Root, strconv.Itoa(row.pid), "exe")))
		}
		p := proctest.Try(fs.Open(snapshot.PID(row.pid))).OK(t, row.what)
		stat := proctest.Try(p.Stat()).OK(t, row.what)
		require.Equal(t, row.want, p.Command(stat), row.what)
		require.NoError(t, p.Close())
	}
}

func TestCommandLine(t *testing.T) {
	fs := mount(t)
	for i, row := range []struct{ what, cmdline, want string }{
		{"arguments", "python\x00train.py\x00--lr=0.1\x00", "python train.py --lr=0.1"},
		{"an empty argument", "a\x00\x00b\x00", "a  b"},
		{"a title, and NULs", "ray::train epoch 3\x00\x00\x00\x00\x00", "ray::train epoch 3"},
		{"none", "", ""},
		{"only NULs", "\x00\x00", ""},
		{"what a terminal obeys", "a\x1b[2J\x00b\nc\x7f\x00", "a?[2J b?c?"},
		{"not UTF-8", "a\xff\x00", "a?"},
		{"letters", "жук\x00日本\x00", "жук 日本"},
		{"a long one", strings.Repeat("x", 5000), strings.Repeat("x", snapshot.MaxCommand)},
		{"a long one of long letters", "x" + strings.Repeat("日", 5000), "x" + strings.Repeat("日", (snapshot.MaxCommand-1)/3)},
	} {
		pid := snapshot.PID(10 + i)
		add(t, fs, pid, map[string]string{"cmdline": row.cmdline})
		got := commandLine(t, fs, pid)
		require.Equal(t, row.want, got, row.what)
		require.LessOrEqual(t, len(got), snapshot.MaxCommand)
		require.True(t, utf8.ValidString(got))
		require.NoError(t, snapshot.CheckText("command", got))
	}
	add(t, fs, 9, nil)
	require.Empty(t, commandLine(t, fs, 9), "it is not shown")
}

func commandLine(t *testing.T, fs proc.FS, pid snapshot.PID) string {
	t.Helper()
	p := proctest.Try(fs.Open(pid)).OK(t)
	defer func() { require.NoError(t, p.Close()) }()
	return p.CommandLine()
}

func TestCommandLineOfARealProcess(t *testing.T) {
	pid := running(t, exec.Command("sleep", "60"))
	require.Eventually(t, func() bool { // execve(2) shows it a moment after Start has seen it succeed
		return commandLine(t, proc.FS{}, pid) == "sleep 60"
	}, 10*time.Second, time.Millisecond)
}
