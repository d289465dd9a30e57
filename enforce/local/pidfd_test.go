package local_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// noPidfdVariable names the error that system calls about pidfds give in the tests.
const noPidfdVariable = "GENV_TEST_NO_PIDFD"

var noPidfdErrors = map[string]unix.Errno{"ENOSYS": unix.ENOSYS, "EPERM": unix.EPERM}

// TestWithoutPidfds runs the tests of terminations again where the kernel has no pidfds (Linux before 5.3), and where a
// filter of system calls that doesn't know them refuses them, or only the signal.
func TestWithoutPidfds(t *testing.T) {
	if os.Getenv(noPidfdVariable) != "" {
		t.Skip("it is one of those that are run again")
	}
	for name := range noPidfdErrors {
		for _, calls := range []string{"", "signal"} {
			t.Run(name+calls, func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command("/proc/self/exe", "-test.run=Process|Ended|Exec|Grace|KILL|TERM|Stopped|Thread|Try",
					"-test.skip=TestProperty|TestWithoutPidfds|Terminal|Detach")
				cmd.Env = append(os.Environ(), noPidfdVariable+"="+name, "GENV_TEST_NO_PIDFD_CALLS="+calls)
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", out)
			})
		}
	}
}

// refusePidfds has the kernel refuse pidfds to this process and its children.
func refusePidfds(name string) {
	errno, ok := noPidfdErrors[name]
	if !ok {
		return
	}
	calls := []uint32{unix.SYS_PIDFD_SEND_SIGNAL}
	if os.Getenv("GENV_TEST_NO_PIDFD_CALLS") == "" {
		calls = append(calls, unix.SYS_PIDFD_OPEN)
	}
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the number of the call
	for i, call := range calls {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jt: uint8(len(calls) - i)})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(errno)})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread() // no_new_privs is of a thread until the filter is of all
	defer runtime.UnlockOSThread()
	if os.Geteuid() != 0 {
		_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) // else the next call fails
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program))); errno != 0 {
		panic(errno)
	}
}

// The number of a thread is no process, and kill(2) with it would signal that of the thread.
func TestThreadIsNotSignalled(t *testing.T) {
	c := ready(t, "gentle", in("7"))
	var thread snapshot.PID
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", c.pid()))
	require.NoError(t, err)
	for _, task := range threads {
		if number, _ := strconv.Atoi(task.Name()); number != int(c.pid()) {
			thread = snapshot.PID(number)
		}
	}
	judged := c.judged("7", 0)
	judged.PID, judged.Start = thread, 0
	s := newScene(local.ExecutorOptions{Grace: oneGrace}, judged)
	require.Equal(t, order.StatusChanged, s.terminate(t, judged)[0].Status)
	c.answers()
}

func TestTry(t *testing.T) {
	lacks := os.Getenv(noPidfdVariable) != ""
	for command, want := range map[string]*snapshot.Trial{
		"/proc/self/exe": {NoPidfds: lacks},
		"/bin/false":     {Unable: "processes can't be read: the process that reads it has ended, or does not start (/bin/false)"},
		"/no/such/file":  {Unable: "processes can't be read: fork/exec /no/such/file: no such file or directory"},
		"":               nil,
	} {
		var fs proc.FS
		if command != "" {
			fs.Reader = &proc.ReaderProcess{Command: []string{command, "read"}}
		}
		require.Equal(t, want, newScene(local.ExecutorOptions{Proc: fs}).x.Try(), command)
	}
}
