package local_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	snapshotlocal "github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// TestJudgedProcessIsTerminated: each row still is what was judged.
func TestJudgedProcessIsTerminated(t *testing.T) {
	type row struct {
		name    string
		root    bool
		options []option
		eid     snapshot.EnvID
		change  func(judged, now *snapshot.Process)
		shown   string
	}
	for _, r := range []row{
		{name: "all of it", options: []option{in("7")}, eid: "7"},
		{name: "an order of 1.4.3, without a start time", options: []option{in("7")}, eid: "7", change: func(judged, _ *snapshot.Process) { judged.Start = 0 }},
		{name: "the owner too", options: []option{in("7")}, eid: "7", change: func(judged, _ *snapshot.Process) { judged.UID = new(snapshot.UID(os.Getuid())) }},
		{name: "in no environment"},
		{name: "in no environment, said with nothing", options: []option{in("")}},
		{name: "in no environment, said with an id that none can have", options: []option{in("7\x1b[2J")}},
		{name: "in an environment of spaces", options: []option{in("a b")}, eid: "a b", shown: `"a b"`},
		{name: "outside, with another claim now", options: []option{in("9")}},
		{name: "outside, and one of two devices freed", change: func(_, now *snapshot.Process) { now.Usage = usage(1) }},
		{name: "on one more device now", options: []option{in("7")}, eid: "7", change: func(_, now *snapshot.Process) { now.Usage = usage(4, 1, 0) }},
		{name: "with other memory now", options: []option{in("7")}, eid: "7", change: func(judged, _ *snapshot.Process) { judged.Usage[0].Memory = snapshot.MiB(99) }},
		{name: "called sshd by its owner", root: true, options: []option{in("7"), as(person), called(t, "sshd")}, eid: "7"},
		{name: "called a kernel thread by its owner", options: []option{in("7"), called(t, "kworker 0:1")}, eid: "7"},
		{name: "an MPS server that a person started", root: true, options: []option{in("7"), as(person), called(t, "nvidia-cuda-mps-server")}, eid: "7"},
	} {
		t.Run(r.name, func(t *testing.T) {
			if r.root {
				proctest.NeedRoot(t)
			}
			c := ready(t, "gentle", r.options...)
			judged := c.judged(r.eid, 0, 1)
			now := snapshot.Process{PID: c.pid(), Usage: usage(0, 1)}
			if r.change != nil {
				r.change(&judged, &now)
			}
			s := newScene(local.ExecutorOptions{Grace: oneGrace}, now)
			got := s.terminate(t, judged)[0]
			require.Equal(t, order.StatusTerminated, got.Status, got.Reason)
			require.Empty(t, got.Reason)
			c.endedBy(unix.SIGTERM)

			name := cmp.Or(r.shown, string(r.eid), "N/A")
			require.Equal(t, []string{fmt.Sprintf("Terminating process %d from environment %s that is running on GPU(s) 0,1", c.pid(), name)}, s.lines)
		})
	}
}

// TestChangedProcessIsNotSignalled: each row differs in one thing.
func TestChangedProcessIsNotSignalled(t *testing.T) {
	other := snapshot.UID(os.Getuid() + 1)
	for name, r := range map[string]struct {
		options []option
		eid     snapshot.EnvID
		change  func(judged *snapshot.Process, m *machine)
		status  order.OutcomeStatus
		reason  string
	}{
		"another start time": {
			change: func(p *snapshot.Process, _ *machine) { p.Start-- },
			status: order.StatusChanged, reason: "started at another time",
		},
		"no device of the driver open": {
			change: func(_ *snapshot.Process, m *machine) { m.apps[0].NodeMissing = true },
			status: order.StatusChanged, reason: "not been seen with a device of the driver open", // a refusal is for ever, and it may open one
		},
		"another owner": {
			change: func(p *snapshot.Process, _ *machine) { p.UID = &other },
			status: order.StatusChanged, reason: fmt.Sprintf("uid %d was judged", other),
		},
		"another environment": {
			options: []option{in("8")}, eid: "7",
			status: order.StatusChanged, reason: "it is in environment 8, and environment 7 was judged",
		},
		"in an environment, and none was judged": {options: []option{in("8")}, status: order.StatusChanged, reason: "it is in environment 8, and environment N/A was judged"},
		"in none, and one was judged":            {eid: "7", status: order.StatusChanged, reason: "it is in environment N/A, and environment 7 was judged"},
		"a longer name of the same beginning": {
			options: []option{in("77")}, eid: "7",
			status: order.StatusChanged, reason: "it is in environment 77",
		},
		"an id that no environment can have": {
			options: []option{in("7\x1b[2J")}, eid: "7",
			status: order.StatusChanged, reason: "it is in environment odd-fdfef27baed4ea3c",
		},
		"a variable that only ends like ours": {
			options: []option{variable("XGENV_ENVIRONMENT_ID=7")}, eid: "7",
			status: order.StatusChanged, reason: "it is in environment N/A",
		},
		"another device": {
			change: func(_ *snapshot.Process, m *machine) { m.apps[0].Usage = usage(2, 3) },
			status: order.StatusChanged, reason: "it does not use GPU(s) 0,1 any more",
		},
		"one of two devices freed": {
			options: []option{in("7")}, eid: "7", change: func(_ *snapshot.Process, m *machine) { m.apps[0].Usage = usage(0) },
			status: order.StatusChanged, reason: "it does not use GPU(s) 1 any more",
		},
		"only others use devices": {
			change: func(_ *snapshot.Process, m *machine) { m.apps[0].PID++ },
			status: order.StatusChanged, reason: "it does not use GPU(s) 0,1 any more",
		},
		"the driver does not answer": {
			change: func(_ *snapshot.Process, m *machine) { m.err = errDriver },
			status: order.StatusFailed, reason: "the driver is ill",
		},
		"judged in an unknown environment": {
			change: func(p *snapshot.Process, _ *machine) { p.EnvUnknown = true },
			status: order.StatusRefused, reason: "its environment was not known",
		},
		"judged without a device": {
			change: func(p *snapshot.Process, _ *machine) { p.Usage = nil },
			status: order.StatusRefused, reason: "it used no GPU",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := ready(t, "gentle", r.options...)
			judged := c.judged(r.eid, 0, 1)
			s := newScene(local.ExecutorOptions{Grace: oneGrace}, snapshot.Process{PID: c.pid(), Usage: usage(0, 1)}).killing()
			s.machine.envs = []snapshot.Environment{environment("8", snapshot.UID(os.Getuid()), "me")}
			if r.change != nil {
				r.change(&judged, s.machine)
			}
			got := s.terminate(t, judged)[0]
			require.Equal(t, r.status, got.Status, got.Reason)
			require.Contains(t, got.Reason, r.reason)
			require.Empty(t, s.lines)
			c.answers()
		})
	}
}

func TestExecIsNotSignalled(t *testing.T) {
	c := start(t, "turncoat", in("7"))
	judged := c.judged("7", 0)
	proctest.Try(fmt.Fprint(c.in, "!")).OK(t)
	c.answers()
	s := newScene(local.ExecutorOptions{Grace: oneGrace}, judged)
	got := s.terminate(t, judged)[0]
	require.Equal(t, order.StatusChanged, got.Status)
	require.Contains(t, got.Reason, "it is in environment other")
	c.answers()
}

func TestEndedProcessIsGone(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *child){
		"reaped": func(_ *testing.T, c *child) { c.wait() },
		"a zombie": func(t *testing.T, c *child) {
			require.NoError(t, unix.Waitid(unix.P_PID, int(c.pid()), nil, unix.WEXITED|unix.WNOWAIT, nil))
			require.Equal(t, byte('Z'), c.stat().State)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := ready(t, "gentle", in("7"))
			judged := c.judged("7", 0)
			require.NoError(t, unix.Kill(int(c.pid()), unix.SIGKILL))
			end(t, c)
			s := newScene(local.ExecutorOptions{Grace: oneGrace}, judged).killing()
			require.Equal(t, order.StatusGone, s.terminate(t, judged)[0].Status)
			require.Empty(t, s.lines)
		})
	}
}

// TestEndDuringInspectionIsGone: the PID could be another's by then, and nothing that is read by it counts.
func TestEndDuringInspectionIsGone(t *testing.T) {
	c, judged, s := sceneOf(t, "gentle", local.ExecutorOptions{Grace: oneGrace})
	s.machine.then = func() {
		require.NoError(t, unix.Kill(int(c.pid()), unix.SIGKILL))
		c.wait()
	}
	require.Equal(t, order.StatusGone, s.terminate(t, judged)[0].Status)
	require.Empty(t, s.lines)
}

func TestNoWaitWithoutGrace(t *testing.T) {
	c, judged, s := sceneOf(t, "stubborn", local.ExecutorOptions{})
	s.killing()
	require.Equal(t, order.Outcome{PID: c.pid(), EID: "7", Status: order.StatusSignalled}, s.terminate(t, judged)[0])
	require.Len(t, s.lines, 1)
	c.answers()
}

func TestProcessListedTwiceIsSignalledOnce(t *testing.T) {
	c, judged, s := sceneOf(t, "stubborn", local.ExecutorOptions{})
	got := s.terminate(t, judged, judged)
	require.Equal(t, order.StatusSignalled, got[0].Status)
	require.Equal(t, order.Outcome{PID: c.pid(), EID: "7", Status: order.StatusRefused, Reason: "it is listed twice"}, got[1])
	require.Len(t, s.lines, 1)
}

func TestStoppedJobIsContinued(t *testing.T) {
	c := ready(t, "gentle", in("7"))
	require.NoError(t, unix.Kill(int(c.pid()), unix.SIGSTOP))
	require.Eventually(t, func() bool { return c.stat().State == 'T' }, time.Minute, time.Millisecond)
	judged := c.judged("7", 0)
	require.Equal(t, order.StatusTerminated, newScene(local.ExecutorOptions{Grace: oneGrace}, judged).terminate(t, judged)[0].Status)
	c.endedBy(unix.SIGTERM)
}

func TestOneRefusalDoesNotStopOthers(t *testing.T) {
	first, second, third := ready(t, "gentle", in("7")), ready(t, "gentle", in("8")), ready(t, "gentle", in("7"))
	judged := []snapshot.Process{first.judged("7", 0), second.judged("7", 0), third.judged("7", 0)}
	s := newScene(local.ExecutorOptions{Grace: oneGrace}, judged...)
	got := s.terminate(t, judged...)
	require.Equal(t, order.StatusTerminated, got[0].Status)
	require.Equal(t, order.StatusChanged, got[1].Status)
	require.Equal(t, order.StatusTerminated, got[2].Status)
	require.Equal(t, 1, s.machine.asked, "the GPUs are asked once for an order")
	first.endedBy(unix.SIGTERM)
	second.answers()
	third.endedBy(unix.SIGTERM)
}

// TestConcurrentOrders: an order that waits for a process delays neither another
// order nor the question that every snapshot asks, and each gets its own lines.
func TestConcurrentOrders(t *testing.T) {
	stubborn, gentle := ready(t, "stubborn", in("7")), ready(t, "gentle", in("7"))
	slow, fast := stubborn.judged("7", 0), gentle.judged("7", 0)
	s := newScene(local.ExecutorOptions{Grace: time.Hour}, slow, fast)
	ends := func(p snapshot.Process) order.Order {
		return order.Order{Terminate: []order.Termination{{Process: p}}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	signalled, done := make(chan string, 1), make(chan []order.Outcome, 1)
	go func() {
		done <- s.x.As(ending.Authority{}, func(line string) { signalled <- line }, ignore).Execute(ctx, ends(slow))
	}()
	require.Equal(t, ends(slow).Terminate[0].String(), <-signalled)

	var lines []string
	outcomes := s.x.As(ending.Authority{}, func(line string) { lines = append(lines, line) }, ignore).Execute(t.Context(), ends(fast))
	require.Equal(t, order.StatusTerminated, outcomes[0].Status)
	require.Equal(t, []string{ends(fast).Terminate[0].String()}, lines)
	gentle.endedBy(unix.SIGTERM)
	require.Empty(t, s.x.ProtectedName(&snapshot.Process{PID: slow.PID, UID: new(snapshot.UID(0))}))
	require.Empty(t, done)
	cancel()
	require.Equal(t, order.StatusSignalled, (<-done)[0].Status)
	stubborn.answers()
}

// lists is an nvidia-smi that lists one process.
type lists struct{ pid snapshot.PID }

func (l lists) Apps(context.Context, time.Duration) (nvidiasmi.Usage, error) {
	return nvidiasmi.Usage{Apps: []nvidiasmi.App{{GPU: "GPU-0", PID: l.pid, Memory: snapshot.MiB(100)}}}, nil
}

func (l lists) Devices(context.Context, time.Duration) (nvidiasmi.Listing, error) {
	return nvidiasmi.Listing{GPUs: []nvidiasmi.GPU{{Device: snapshot.Device{UUID: "GPU-0", TotalMemory: snapshot.MiB(81559)}}}}, nil
}

func (l lists) Details(context.Context, time.Duration) (nvidiasmi.Details, error) {
	return nvidiasmi.Details{}, nvidiasmi.ErrGarbled
}

func (l lists) List(context.Context, time.Duration) ([]snapshot.Device, error) {
	return nil, nvidiasmi.ErrGarbled
}

// shellWithJob is a shell, and a job in it that sets a title over its environ.
func shellWithJob(t *testing.T) (uid snapshot.UID, shell, job snapshot.PID, wait func()) {
	uid, program, attr := proctest.OrdinaryUser(t) // nothing is inherited from root's processes
	cmd := exec.Command("/bin/sh", "-c", `exec 3<&0; "$0" <&3 & echo $!; wait`, program)
	cmd.Env = []string{roleVariable + "=titled", promptEnd} // a shell that was activated after its start
	cmd.SysProcAttr = attr
	c := started(t, cmd)
	line := proctest.Try(c.out.ReadString('\n')).OK(t)
	pid := proctest.Try(strconv.Atoi(strings.TrimSpace(line))).OK(t)
	return uid, c.pid(), snapshot.PID(pid), func() { c.wait() }
}

// TestSnapshotAndVerificationAgree: with the real sources, a job behind a title is judged in its shell's environment,
// or as one that hides it, and it is ended only while that holds.
func TestSnapshotAndVerificationAgree(t *testing.T) {
	for name, row := range map[string]struct {
		before, after bool // whether the shell is registered
		status        order.OutcomeStatus
	}{
		"in the environment":           {true, true, order.StatusTerminated},
		"hidden":                       {false, false, order.StatusTerminated},
		"registered since it was seen": {false, true, order.StatusChanged},
		"ended since it was seen":      {true, false, order.StatusChanged},
	} {
		t.Run(name, func(t *testing.T) {
			uid, shell, job, wait := shellWithJob(t)
			store := disk.New(filepath.Join(t.TempDir(), "state"), disk.Config{})
			register := func(registered bool) {
				require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
					b.Environments = nil
					if registered {
						b.Environments = []snapshot.Environment{{
							EID: "1667", UID: uid, Creation: snapshot.DateOf(time.Now()), PIDs: []snapshot.PID{shell},
						}}
					}
					return nil
				}))
			}
			machine := &snapshotlocal.Collector{SMI: lists{job}, StateFiles: store, Now: time.Now, DeviceListTTL: time.Hour}
			register(row.before)
			require.Eventually(t, func() bool { return hasTitle(job) }, 10*time.Second, time.Millisecond)
			s := proctest.Try(machine.Snapshot(t.Context())).OK(t)
			require.Len(t, s.Processes, 1)
			judged := s.Processes[0]
			require.Equal(t, row.before, judged.EID == "1667")
			require.Equal(t, !row.before, judged.EnvUnknown && judged.EnvOverwritten)

			register(row.after)
			o := order.Order{Terminate: []order.Termination{{Process: judged}}}
			got := local.New(machine, store, local.ExecutorOptions{Grace: oneGrace}).Execute(t.Context(), o)[0]
			require.Equal(t, row.status, got.Status, got.Reason)
			if got.Status == order.StatusTerminated {
				wait()
				return
			}
			require.NoError(t, syscall.Kill(int(job), 0))
			require.NoError(t, syscall.Kill(int(job), syscall.SIGKILL))
		})
	}
}

func hasTitle(pid snapshot.PID) bool {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/environ")
	return err == nil && strings.HasPrefix(string(environ), "train.py")
}
