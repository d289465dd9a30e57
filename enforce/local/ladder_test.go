package local_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

const aMoment = 20 * time.Millisecond // a wait that is to run out

func TestIgnoredSIGTERM(t *testing.T) {
	c, judged, s := sceneOf(t, "stubborn", local.ExecutorOptions{Grace: aMoment})
	got := s.terminate(t, judged)[0]
	require.Equal(t, order.StatusSurvived, got.Status)
	require.Equal(t, "it did not end within 20ms of SIGTERM, so it ignores that or takes longer: kill: true in the policy ends it", got.Reason)
	require.Len(t, s.lines, 1)
	c.answers()

	s = newScene(local.ExecutorOptions{Grace: aMoment}, judged).killing()
	require.Equal(t, order.StatusKilled, s.terminate(t, judged)[0].Status)
	require.Len(t, s.lines, 2)
	require.Contains(t, s.lines[1], "Killing process ")
	c.endedBy(unix.SIGKILL)
}

// TestGraceAndKillOfOrder: they go before what this machine would do.
func TestGraceAndKillOfOrder(t *testing.T) {
	c := ready(t, "stubborn", in("7"))
	judged := c.judged("7", 0)
	o := order.Order{Terminate: []order.Termination{{Process: judged}}, Options: order.Options{GraceMS: aMoment.Milliseconds()}}
	s := newScene(local.ExecutorOptions{Grace: oneGrace}, judged)
	got := s.x.Execute(context.Background(), o)[0]
	require.Equal(t, order.StatusSurvived, got.Status)
	require.Equal(t, "it did not end within 20ms of SIGTERM, so it ignores that or takes longer: kill: true in the policy ends it", got.Reason)
	c.answers()

	o.Kill = true
	require.Equal(t, order.StatusKilled, s.x.Execute(context.Background(), o)[0].Status)
	c.endedBy(unix.SIGKILL)
}

// TestVerifyBeforeSIGKILL: it survived SIGTERM, and then something changed.
func TestVerifyBeforeSIGKILL(t *testing.T) {
	for name, r := range map[string]struct {
		change func(m *machine)
		status order.OutcomeStatus // not StatusSurvived, or a controller would not try again
		reason string
	}{
		"it freed its device":   {func(m *machine) { m.apps = nil }, order.StatusChanged, "it does not use GPU(s) 0 any more"},
		"the driver fell ill":   {func(m *machine) { m.err = errDriver }, order.StatusFailed, "the driver is ill"},
		"it has another device": {func(m *machine) { m.apps[0].Usage = usage(1) }, order.StatusChanged, "it does not use GPU(s) 0 any more"},
	} {
		t.Run(name, func(t *testing.T) {
			c := ready(t, "stubborn", in("7"))
			judged := c.judged("7", 0)
			s := newScene(local.ExecutorOptions{Grace: aMoment}, snapshot.Process{PID: c.pid(), Usage: usage(0)}).killing()
			s.machine.then = func() {
				if s.machine.asked == 2 {
					r.change(s.machine)
				}
			}
			got := s.terminate(t, judged)[0]
			require.Equal(t, r.status, got.Status)
			require.Contains(t, got.Reason, "it still ran 20ms after SIGTERM; SIGKILL was not sent: ")
			require.Contains(t, got.Reason, r.reason)
			c.answers()
		})
	}
}

func TestEndBetweenWaitAndSIGKILL(t *testing.T) {
	c, judged, s := sceneOf(t, "stubborn", local.ExecutorOptions{Grace: aMoment})
	s.killing()
	s.machine.then = func() {
		if s.machine.asked == 2 {
			require.NoError(t, c.in.Close())
			c.wait()
		}
	}
	require.Equal(t, order.StatusTerminated, s.terminate(t, judged)[0].Status)
	require.Len(t, s.lines, 1)
}

// TestContextEnd: no signal after it, and no wait.
func TestContextEnd(t *testing.T) {
	goodbye := errors.New("goodbye")
	t.Run("before it began", func(t *testing.T) {
		c, judged, s := sceneOf(t, "gentle", local.ExecutorOptions{Grace: oneGrace})
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(goodbye)
		want := order.Outcome{PID: c.pid(), EID: "7", Status: order.StatusFailed, Reason: "not begun: goodbye"}
		require.Equal(t, want, s.terminateIn(t, ctx, judged)[0])
		c.answers()
	})
	t.Run("while the GPUs are asked", func(t *testing.T) {
		c, judged, s := sceneOf(t, "gentle", local.ExecutorOptions{Grace: oneGrace})
		ctx, cancel := context.WithCancelCause(context.Background())
		s.machine.then = func() { cancel(goodbye) }
		want := order.Outcome{PID: c.pid(), EID: "7", Status: order.StatusFailed, Reason: "not begun: goodbye"}
		require.Equal(t, want, s.terminateIn(t, ctx, judged)[0])
		c.answers()
	})
	t.Run("between two signals", func(t *testing.T) {
		first, second := ready(t, "stubborn", in("7")), ready(t, "gentle", in("7"))
		processes := []snapshot.Process{first.judged("7", 0), second.judged("7", 0)}
		ctx, cancel := context.WithCancelCause(context.Background())
		s := newScene(local.ExecutorOptions{}, processes...).killing()
		s.x = local.New(s.machine, s.stateFiles, local.ExecutorOptions{Grace: oneGrace}).As(ending.Authority{}, func(string) { cancel(goodbye) }, ignore)
		got := s.terminateIn(t, ctx, processes...)
		require.Equal(t, order.StatusSignalled, got[0].Status)
		require.Equal(t, "SIGTERM was sent, but waiting for the end was given up: goodbye", got[0].Reason)
		require.Equal(t, order.StatusFailed, got[1].Status)
		first.answers()
		second.answers()
	})
}

// TestUnkillableProcessIsReportedOnce uses the one process that is sure to outlive SIGKILL for a while: PID 1 of a
// namespace, while a tracer elsewhere does not let go of another process in it.
func TestUnkillableProcessIsReportedOnce(t *testing.T) {
	proctest.NeedRoot(t)
	t.Parallel()
	c, release := unkillable(t)
	judged := c.judged("7", 0)
	s := newScene(local.ExecutorOptions{Grace: aMoment}, judged).killing()

	got := s.terminate(t, judged)[0]
	require.Equal(t, order.StatusSurvived, got.Status)
	require.Contains(t, got.Reason, "it did not end within 10s of SIGKILL")
	require.Len(t, s.lines, 2)

	got = s.terminate(t, judged)[0]
	require.Equal(t, order.StatusSurvived, got.Status)
	require.Contains(t, got.Reason, "it is not signalled again")
	require.Len(t, s.lines, 2, "it was signalled again")

	release()
	c.endedBy(unix.SIGKILL)
	require.Equal(t, order.StatusGone, s.terminate(t, judged)[0].Status)
}

// unkillable is a process that SIGKILL does not end before release is called.
func unkillable(t *testing.T) (c *child, release func()) {
	c = ready(t, "init", in("7"), func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	})
	held := onlyChild(t, c.pid())
	attached, let, done := make(chan error), make(chan struct{}), make(chan struct{})
	go func() { // a tracer is a thread; one that ended would end the children that it has started for other tests
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		attached <- unix.PtraceSeize(int(held))
		<-let
		_, _ = unix.Wait4(int(held), nil, unix.WALL, nil) // it may never have been ours
	}()
	require.NoError(t, <-attached)
	released := false
	release = func() {
		if !released {
			released = true
			_ = c.cmd.Process.Kill() // or nothing ends that is waited for
			close(let)
			<-done
		}
	}
	t.Cleanup(release)
	return c, release
}

// onlyChild is the child of a process that has one.
func onlyChild(t *testing.T, parent snapshot.PID) snapshot.PID {
	entries := proctest.Try(os.ReadDir("/proc")).OK(t)
	for _, e := range entries {
		pid, ok := number(e.Name())
		if stat, err := (proc.FS{}).Stat(pid); ok && err == nil && stat.PPID == parent {
			return pid
		}
	}
	require.Fail(t, "it has no child")
	return 0
}

// initOfItsOwn starts a process, ignores SIGTERM and answers as echo does.
func initOfItsOwn() {
	signal.Ignore(unix.SIGTERM)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleVariable + "=gentle"}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_, _ = io.WriteString(os.Stdout, err.Error()+"\n")
		return
	}
	echo()
	_ = in.Close()
}
