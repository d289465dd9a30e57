package proc_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// titleVariable holds what the test binary writes over its own environment, as
// a Go string in quotes, when a test starts it again.
const titleVariable = "GENV_TEST_TITLE"

// moving is the titleVariable of a process that moves its environment all the time.
const moving = "moving"

func moveEnviron() {
	move, err := environMover()
	if err != nil {
		fmt.Println("can't:", err)
		return
	}
	fmt.Println("done")
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the test is done with it
		os.Exit(0)
	}()
	for move() == nil {
	}
}

func TestMain(m *testing.M) {
	proctest.RunStall()
	if slices.Equal(os.Args[1:], []string{"read"}) {
		if err := proc.ServeReader(os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	if os.Getenv(titleVariable) == moving {
		moveEnviron()
		return
	}
	if quoted := os.Getenv(titleVariable); quoted != "" {
		title, err := strconv.Unquote(quoted)
		if err == nil {
			err = proctest.OverwriteEnviron(title)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("done")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the test is done with it
		return
	}
	os.Exit(m.Run())
}

// titled is a process that has written a title over its environment.
func titled(t *testing.T, title string, env ...string) snapshot.PID {
	t.Helper()
	pid, output := started(t, slices.Concat(env, []string{titleVariable + "=" + strconv.Quote(title)}))
	require.Equal(t, "done\n", output)
	return pid
}

// started is this program with an environment, and the first line that it says.
func started(t *testing.T, env []string) (pid snapshot.PID, output string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = env
	output, _ = firstLine(t, cmd)
	return snapshot.PID(cmd.Process.Pid), output
}

// firstLine starts a program, which is killed at the end of the test, and waits for a line of it.
func firstLine(t *testing.T, cmd *exec.Cmd) (line string, in io.Writer) {
	t.Helper()
	in, out := proctest.StartPiped(t, cmd)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return proctest.Try(bufio.NewReader(out).ReadString('\n')).OK(t), in
}

// A title that extends into the environment is not an environment, whatever it
// holds: the process is not "in none", and not in the one that the title names.
func TestATitleOverTheEnvironment(t *testing.T) {
	for name, title := range map[string]string{
		"words":                     "train.py: epoch 3",
		"with a =":                  "n.py --lr=0.1",
		"that begins like an entry": "lr=0.1",
		"our variable":              key + "=7",
		"wiped":                     "",
		"one byte":                  "\x00…",
	} {
		t.Run(name, func(t *testing.T) {
			pid := titled(t, title, "A=1", key+"=1667", "B="+strings.Repeat("x", 5000))
			_, found, err := proc.FS{}.Environ(pid, key)
			require.False(t, found)
			require.ErrorIs(t, err, proc.ErrUnreadable)
			require.ErrorIs(t, err, proc.ErrOverwritten)
		})
	}
}

// An environment that is moved all the time is overwritten, not merely unknown: the process itself hides it.
func TestAnEnvironmentThatIsMovedAllTheTime(t *testing.T) {
	pid, output := started(t, []string{titleVariable + "=" + moving, key + "=1667"})
	if output != "done\n" {
		t.Skip("no process can move its environment here: " + output)
	}
	address := func() uint64 {
		stat := proctest.Try(proc.FS{}.Stat(pid)).OK(t)
		return stat.EnvAddress
	}
	for moves := 0; moves < 100; {
		before := address()
		_, found, err := proc.FS{}.Environ(pid, key)
		require.False(t, found)
		require.ErrorIs(t, err, proc.ErrUnreadable)
		require.ErrorIs(t, err, proc.ErrOverwritten)
		if address() != before {
			moves++
		}
	}
}

func TestAnEnvironmentThatIsUntouched(t *testing.T) {
	pid := titled(t, "A…", "A=1", key+"=1667", "BASH_FUNC_x%%=() {  :\n}")
	requireEnviron(t, proc.FS{}, pid)
}

// What a process cannot help is not overwritten: only unknown.
func TestUnknownIsNotOverwritten(t *testing.T) {
	// A kernel thread, memory that is gone, and memory that is not shown.
	fs := mount(t)
	for pid, stat := range map[snapshot.PID]string{
		10: statLine(10, "kworker/0:1", "S", 2, 0x00200040, 1, 5),
		11: statLine(11, "python3", "D", 1, 4, 1, 5), // exiting
		12: statLine(12, "python3", "S", 1, 0, 1, 5),
	} {
		stat = strings.Replace(stat, " 1000 100 18446744073709551615 1 1 ", " 0 0 18446744073709551615 0 0 ", 1)
		stat = strings.Replace(stat, " 140722 140793 ", " 0 0 ", 1)
		add(t, fs, pid, map[string]string{"stat": stat, "environ": ""})
		_, _, err := fs.Environ(pid, key)
		require.ErrorIs(t, err, proc.ErrUnreadable)
		require.NotErrorIs(t, err, proc.ErrOverwritten)
	}
	if os.Geteuid() == 0 {
		pid := titled(t, "")
		asNobody(t, func() {
			_, _, err := proc.FS{}.Environ(pid, key)
			require.ErrorIs(t, err, proc.ErrUnreadable)
			require.NotErrorIs(t, err, proc.ErrOverwritten)
		})
	}
}

// A process that becomes another program all the time never looks as if it had overwritten its environment.
func TestExecveIsNotOverwriting(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", `[ $N -gt 0 ] || exec sleep 60; N=$((N-1)) exec /bin/sh -c "$0" "$0"`)
	cmd.Args = append(cmd.Args, cmd.Args[2])
	cmd.Env = []string{"N=600", key + "=1667"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	pid := running(t, cmd)
	for looks := 0; ; looks++ {
		value, found, err := proc.FS{}.Environ(pid, key)
		require.NotErrorIs(t, err, proc.ErrOverwritten)
		if err == nil && looks > 0 {
			require.True(t, found)
			require.Equal(t, "1667", value)
		}
		if stat, err := (proc.FS{}).Stat(pid); err == nil && stat.Name == "sleep" && looks > 100 {
			return
		}
	}
}

// mmMap is struct prctl_mm_map of linux/prctl.h.
type mmMap struct {
	startCode, endCode, startData, endData, startBrk, brk, startStack uint64
	argStart, argEnd, envStart, envEnd                                uint64
	auxv                                                              uint64
	auxvSize, exeFD                                                   uint32
}

// environMover returns a function that moves this process's environment to another place each time, where the memory
// is empty. It uses PR_SET_MM_MAP of prctl(2), which needs no privilege. The error is that of a kernel without it.
func environMover() (move func() error, err error) {
	field, err := proctest.Stat()
	if err != nil {
		return nil, err
	}
	const room, size = 1 << 20, 4096
	empty, err := unix.Mmap(-1, 0, room, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	brk, _, _ := unix.Syscall(unix.SYS_BRK, 0, 0, 0)
	m := &mmMap{
		startCode: field(26), endCode: field(27), startStack: field(28), startData: field(45), endData: field(46),
		startBrk: field(47), brk: uint64(brk), argStart: field(48), argEnd: field(49), exeFD: ^uint32(0),
	}
	from := uint64(uintptr(unsafe.Pointer(&empty[0])))
	step := uint64(0)
	move = func() error {
		step = (step + 64) % (room - size)
		m.envStart, m.envEnd = from+step, from+step+size
		return unix.Prctl(unix.PR_SET_MM, unix.PR_SET_MM_MAP, uintptr(unsafe.Pointer(m)), unsafe.Sizeof(*m), 0)
	}
	return move, move()
}
