package local_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func number(text string) (snapshot.PID, bool) {
	n, err := strconv.Atoi(text)
	return snapshot.PID(n), err == nil
}

func TestUntouchablePIDs(t *testing.T) {
	for name, r := range map[string]struct {
		pid    int
		reason string
	}{
		"PID 1":             {1, "PID 1 is never signalled"},
		"all processes":     {-1, "PID -1 is never signalled"},
		"our process group": {0, "PID 0 is never signalled"},
		"another group":     {-os.Getppid(), "is never signalled"},
		"ourselves":         {os.Getpid(), "it is genv itself"},
		"our parent":        {os.Getppid(), "genv itself descends from it"},
	} {
		t.Run(name, func(t *testing.T) {
			p := snapshot.Process{PID: snapshot.PID(r.pid), Usage: usage(0)}
			s := newScene(local.ExecutorOptions{Grace: oneGrace}, p).killing(safety.Protected()...)
			got := s.terminate(t, p)[0]
			require.Equal(t, order.StatusRefused, got.Status)
			require.Contains(t, got.Reason, r.reason)
			require.Empty(t, s.lines)
		})
	}
}

func TestKernelThreadIsRefused(t *testing.T) {
	pid, found := kernelThread()
	if !found {
		t.Skip("no kernel thread is to be seen from this PID namespace; the next test needs none")
	}
	p := snapshot.Process{PID: pid, Usage: usage(0)}
	s := newScene(local.ExecutorOptions{Grace: oneGrace}, p).killing(safety.Protected()...)
	got := s.terminate(t, p)[0]
	require.Equal(t, order.StatusRefused, got.Status)
	require.Equal(t, "it is a kernel thread", got.Reason)
	require.Empty(t, s.lines)
}

func kernelThread() (snapshot.PID, bool) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, ok := number(e.Name())
		if stat, err := (proc.FS{}).Stat(pid); ok && err == nil && stat.IsKernelThread() {
			return pid, true
		}
	}
	return 0, false
}

// TestKernelThreadFlag makes a process look like one.
func TestKernelThreadFlag(t *testing.T) {
	c := ready(t, "gentle")
	root := fakeProc(t, os.Getpid())
	write(t, root, c.pid(), "stat", statLine(int(c.pid()), 2, 0x208040))
	write(t, root, c.pid(), "status", "Name:\tx\nUid:\t0\t0\t0\t0\n")
	p := c.judged("", 0)
	p.Start = 0
	s := newScene(local.ExecutorOptions{Grace: oneGrace, Proc: proc.FS{Root: root}}, p).killing()
	require.Equal(t, "it is a kernel thread", s.terminate(t, p)[0].Reason)
	c.answers()
}

// TestProcOfAnotherNamespace: its numbers are of others.
func TestProcOfAnotherNamespace(t *testing.T) {
	c := ready(t, "gentle")
	p := c.judged("", 0)
	s := newScene(local.ExecutorOptions{Grace: oneGrace, Proc: proc.FS{Root: fakeProc(t, 1)}}, p)
	got := s.terminate(t, p)[0]
	require.Equal(t, order.StatusFailed, got.Status)
	require.Contains(t, got.Reason, "is of another PID namespace: mount proc again")
	c.answers()
}

// fakeProc is a /proc in which we have the given PID and no parent.
func fakeProc(t *testing.T, self int) string {
	root := t.TempDir()
	require.NoError(t, os.Symlink(strconv.Itoa(self), filepath.Join(root, "self")))
	write(t, root, 1, "stat", statLine(1, 0, 0))
	write(t, root, snapshot.PID(self), "stat", statLine(self, 0, 0))
	return root
}

func write(t *testing.T, root string, pid snapshot.PID, name, text string) {
	dir := filepath.Join(root, strconv.Itoa(int(pid)))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

func statLine(pid, ppid, flags int) string {
	fields := strings.Fields("S 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 " + strings.Repeat("0 ", 30))
	fields[1], fields[6] = strconv.Itoa(ppid), strconv.Itoa(flags)
	return strconv.Itoa(pid) + " (x) " + strings.Join(fields, " ") + "\n"
}

// TestSystemDaemonsAreProtected: what a system account runs.
func TestSystemDaemonsAreProtected(t *testing.T) {
	proctest.NeedRoot(t)
	for _, r := range []struct {
		name string
		uid  uint32
	}{
		{"sshd", 0},
		{"systemd", 0},
		{"nvidia-persistenced", 999},
		{"nv-hostengine", 998},
		{"nvidia-cuda-mps-control", 0},
		{"nvidia-cuda-mps-server", 0},
	} {
		t.Run(r.name, func(t *testing.T) {
			c := ready(t, "gentle", called(t, r.name), as(r.uid))
			judged := c.judged("", 0)
			s := newScene(local.ExecutorOptions{Grace: oneGrace}, judged).killing()
			got := s.terminate(t, judged)[0]
			require.Equal(t, order.StatusRefused, got.Status)
			require.Equal(t, "it is "+r.name+", which is never signalled unless it is named in the policy", got.Reason)
			require.Empty(t, s.lines)
			c.answers()

			o := order.Order{Terminate: []order.Termination{{Process: judged}}, Options: order.Options{Unprotected: []string{r.name}}}
			require.Equal(t, order.StatusTerminated, s.x.Execute(context.Background(), o)[0].Status)
		})
	}
}

// TestRootInContainerIsNotProtected: so the name counts for nothing there.
func TestRootInContainerIsNotProtected(t *testing.T) {
	proctest.NeedRoot(t)
	c := ready(t, "gentle", called(t, "sshd"), func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	})
	judged := c.judged("", 0)
	require.Equal(t, order.StatusTerminated, newScene(local.ExecutorOptions{Grace: oneGrace}, judged).terminate(t, judged)[0].Status)
}

// TestSystemMPSServersAreProtected: they run under the uid of the client. Their parent tells them from one that the
// client started himself, and their program from what the client made of one (ptrace(2), execve(2)).
func TestSystemMPSServersAreProtected(t *testing.T) {
	proctest.NeedRoot(t)
	for name, row := range map[string]struct {
		parent            string
		beside, protected bool
	}{
		"of a system daemon":           {"nvidia-cuda-mps-control", true, true},
		"of a shell":                   {"bash", true, false},
		"with a program of the user's": {"nvidia-cuda-mps-control", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			parent, server := program(t, row.parent), program(t, "nvidia-cuda-mps-server")
			installed := filepath.Join(filepath.Dir(parent), filepath.Base(server))
			if row.beside {
				require.NoError(t, os.Rename(server, installed))
				server = installed
			} else {
				require.NoError(t, os.WriteFile(installed, nil, 0o755))
			}
			c := start(t, "parent", func(c *exec.Cmd) { c.Path = parent }, variable("GENV_TEST_CHILD="+server))
			line := proctest.Try(c.out.ReadString('\n')).OK(t)
			pid, ok := number(strings.TrimSpace(line))
			require.True(t, ok, line)
			p := snapshot.Process{PID: pid, Usage: usage(0)}
			s := newScene(local.ExecutorOptions{Grace: oneGrace}, p)
			got := s.terminate(t, p)[0]
			if !row.protected {
				require.Equal(t, order.StatusTerminated, got.Status)
				return
			}
			require.Equal(t, order.StatusRefused, got.Status)
			require.Contains(t, got.Reason, "it is nvidia-cuda-mps-server")
			require.NoError(t, unix.Kill(int(pid), 0))
		})
	}
}

// A snapshot names a daemon by the same judgement by which it is refused.
func TestProtectedName(t *testing.T) {
	proctest.NeedRoot(t)
	folder := proctest.PublicDir(t, 0o755)
	sleep := proctest.ReadFile(t, "/bin/sleep")
	start := func(name string, uid uint32) *snapshot.Process {
		program := filepath.Join(folder, name)
		require.NoError(t, proctest.WriteProgram(program+".new", sleep))
		require.NoError(t, os.Rename(program+".new", program))
		cmd := exec.Command(program, "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
		proctest.Start(t, cmd)
		owner := snapshot.UID(uid)
		return &snapshot.Process{PID: snapshot.PID(cmd.Process.Pid), UID: &owner, Name: name[:min(len(name), 15)]}
	}
	x := local.New(nil, nil, local.ExecutorOptions{})
	require.Equal(t, "nvidia-persistenced", x.ProtectedName(start("nvidia-persistenced", 0)))
	require.Empty(t, x.ProtectedName(start("nvidia-persistenced", 60771)), "users can choose any name")
	require.Empty(t, x.ProtectedName(start("python", 0)))
	require.Empty(t, x.ProtectedName(&snapshot.Process{PID: 1 << 30, UID: new(snapshot.UID(0))}), "it has ended")
	require.Empty(t, x.ProtectedName(&snapshot.Process{PID: 1}), "its owner is not known")
}
