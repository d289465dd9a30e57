package local_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// The proof that a PID that was reused is never signalled. In a PID namespace of its own, clone3's set_tid gives one
// PID to process after process: what takes the kernel a turn through all numbers elsewhere, at once.

const (
	reusesVariable = "GENV_PID_REUSES"
	reusedPID      = 4242
)

func TestPropertyReusedPIDIsNeverSignalled(t *testing.T) {
	proctest.NeedRoot(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleVariable + "=reuse", envVariable + "=7", reusesVariable + "=" + fmt.Sprint(proctest.Cases(10_000))}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	t.Logf("%s", out)
	require.NoError(t, err)
}

// reusePIDs runs as PID 1 of the namespace.
func reusePIDs() {
	if err := reuse(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// reuser counts what became of the processes.
type reuser struct {
	judged               snapshot.Process // the first to have the PID
	swap                 func()           // called by the executor's question about the GPUs
	before, during, acts int
	signalled            int // of during: the signal was faster
}

func (r *reuser) Processes(context.Context) ([]snapshot.Process, []string, error) {
	r.swap()
	return []snapshot.Process{{PID: reusedPID, Usage: usage(0)}}, nil, nil
}

func (r *reuser) GPUs(context.Context) (map[snapshot.DeviceIndex]snapshot.GPUUUID, error) {
	return nil, nil
}

func (r *reuser) Devices(context.Context) ([]snapshot.Device, []string, error) { return nil, nil, nil }

func (r *reuser) Environments(context.Context) ([]snapshot.Environment, []string, error) {
	return nil, nil, nil
}

func reuse() error {
	if err := mountProc(); err != nil {
		return err
	}
	n, err := strconv.Atoi(os.Getenv(reusesVariable))
	if err != nil {
		return err
	}
	r := &reuser{swap: func() {}}
	if err := r.judge(); err != nil {
		return err
	}
	x := local.New(r, nil, local.ExecutorOptions{})
	began := time.Now()
	for i := 0; r.before+r.during < n; i++ {
		step := r.reusedDuring
		switch {
		case i%100 == 0:
			step = r.notReused
		case i%2 == 0:
			step = r.reusedBefore
		}
		if err := step(x); err != nil {
			return fmt.Errorf("reuse %d: %w", i, err)
		}
	}
	fmt.Printf("%d reuses before and %d during an execution (in %d of these the signal came first), none signalled; %d rightly signalled; %s\n",
		r.before, r.during, r.signalled, r.acts, time.Since(began).Round(time.Millisecond))
	return nil
}

func mountProc() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("proc", "/proc", "proc", 0, "")
}

// judge takes the snapshot: of a process that ends before anything is done, and
// long enough ago that no other started in the same tick of the clock.
func (r *reuser) judge() error {
	if err := begin(); err != nil {
		return err
	}
	stat, err := proc.FS{}.Stat(reusedPID)
	if err != nil {
		return err
	}
	r.judged = snapshot.Process{PID: reusedPID, EID: "7", Start: stat.Start, Usage: usage(0)}
	for stat.Start == r.judged.Start {
		if err := end(unix.SIGKILL); err != nil {
			return err
		}
		if err := begin(); err != nil {
			return err
		}
		if stat, err = (proc.FS{}).Stat(reusedPID); err != nil {
			return err
		}
	}
	return end(unix.SIGKILL)
}

// reusedBefore: the PID is another's when the order arrives; the start time tells.
func (r *reuser) reusedBefore(x *local.Executor) error {
	if err := begin(); err != nil {
		return err
	}
	r.swap = func() {}
	if got := execute(x, r.judged); got.Status != order.StatusChanged {
		return fmt.Errorf("%+v", got)
	}
	r.before++
	return end(unix.SIGKILL)
}

// reusedDuring: the PID is reused somewhere between the question about the GPUs and the signal. Nothing but the pidfd
// tells: the order is one of 1.4.3, without a start time, and the other process has the same environment, the same
// owner and the same device.
func (r *reuser) reusedDuring(x *local.Executor) error {
	if err := begin(); err != nil {
		return err
	}
	swapped := make(chan error, 1)
	delay := rand.IntN(400)
	r.swap = func() {
		go func() { swapped <- swapAfter(delay) }()
	}
	p := r.judged
	p.Start = 0
	got := execute(x, p)
	if err := <-swapped; err != nil {
		return err
	}
	switch got.Status {
	case order.StatusSignalled:
		r.signalled++
	case order.StatusGone, order.StatusChanged: // changed: it was ending while it was looked at
	default:
		return fmt.Errorf("%+v", got)
	}
	r.during++
	return end(unix.SIGKILL)
}

// notReused shows that the harness can tell: this one is signalled.
func (r *reuser) notReused(x *local.Executor) error {
	if err := begin(); err != nil {
		return err
	}
	r.swap = func() {}
	p := r.judged
	p.Start = 0
	if got := execute(x, p); got.Status != order.StatusSignalled {
		return fmt.Errorf("%+v", got)
	}
	r.acts++
	return end(unix.SIGTERM)
}

func execute(x *local.Executor, p snapshot.Process) order.Outcome {
	return x.Execute(context.Background(), order.Order{Terminate: []order.Termination{{Process: p}}})[0]
}

// swapAfter ends the process with the PID and begins another, after a delay of so many getpid(2).
func swapAfter(delay int) error {
	for range delay {
		_ = unix.Getppid()
	}
	if err := unix.Kill(reusedPID, unix.SIGKILL); err != nil {
		return err
	}
	if _, err := unix.Wait4(reusedPID, nil, 0, nil); err != nil {
		return err
	}
	return begin()
}

// end ends the process with the PID, and fails unless the signal that ended it
// is the one that should have: the first that was sent counts.
func end(want syscall.Signal) error {
	if err := unix.Kill(reusedPID, unix.SIGKILL); err != nil {
		return err
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(reusedPID, &status, 0, nil); err != nil {
		return err
	}
	if !status.Signaled() || status.Signal() != want {
		return fmt.Errorf("a process that only %v should have ended was ended by %v", want, status.Signal())
	}
	return nil
}

// cloneArgs is struct clone_args of include/uapi/linux/sched.h.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// They stay in memory unchanged, as the kernel requires.
var (
	cloneTID = [1]int32{reusedPID}
	cloneOf  = cloneArgs{
		flags: unix.CLONE_CLEAR_SIGHAND, exitSignal: uint64(unix.SIGCHLD),
		setTID: uint64(uintptr(unsafe.Pointer(&cloneTID[0]))), setTIDSize: 1,
	}
)

// begin makes a process with the PID that waits for a signal. It is a copy of this one, with its environment, that
// must not return into Go's runtime, which has only this one thread there.
//
//go:norace
//go:nosplit
func begin() error {
	pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&cloneOf)), unsafe.Sizeof(cloneOf), 0)
	for errno == 0 && pid == 0 {
		_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
	if errno != 0 {
		return errno
	}
	return nil
}

const noPidfdVariable = "GENV_TEST_NO_PIDFD" // names the error that system calls about pidfds give in the tests

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
				proctest.Output(t, cmd)
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
	threads := proctest.Try(os.ReadDir(fmt.Sprintf("/proc/%d/task", c.pid()))).OK(t)
	for _, task := range threads {
		if number, _ := strconv.Atoi(task.Name()); number != int(c.pid()) {
			thread = snapshot.PID(number)
		}
	}
	judged := c.judged("7", 0)
	judged.PID, judged.Start = thread, 0
	require.Equal(t, order.StatusChanged, newScene(local.ExecutorOptions{Grace: oneGrace}, judged).terminate(t, judged)[0].Status)
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
