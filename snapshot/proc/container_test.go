package proc_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Without a name in the cgroup the PID namespace still shows it.
func TestContainerByPIDNamespace(t *testing.T) {
	for name, row := range map[string]struct{ cgroup, pids, want string }{
		"the host's":           {"0::/\n", "NSpid:\t10\n", ""},
		"another":              {"0::/user.slice\n", "NSpid:\t10\t1\n", snapshot.UnnamedContainer},
		"one in another":       {"0::/user.slice\n", "NSpid:\t10\t5\t1\n", snapshot.UnnamedContainer},
		"another, with a name": {"0::/lxc/web\n", "NSpid:\t10\t1\n", "web"},
		"a name, the host's":   {"0::/lxc/web\n", "NSpid:\t10\n", "web"},
		"no cgroup":            {"", "NSpid:\t10\t1\n", snapshot.UnnamedContainer},
		"an old kernel":        {"0::/\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			fs := mount(t)
			add(t, fs, 10, map[string]string{"cgroup": row.cgroup, "status": statusText("NSpid: 7 8", 1001) + row.pids})
			require.Equal(t, row.want, containerOf(t, fs, 10))
		})
	}
}

func containerOf(t *testing.T, fs proc.FS, pid snapshot.PID) string {
	t.Helper()
	p, err := fs.Open(pid)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	status, err := p.Credentials()
	require.NoError(t, err)
	return p.Container(status).ID
}

// A real process in a PID namespace of its own.
func TestContainerOfARealProcess(t *testing.T) {
	own := containerOf(t, proc.FS{}, snapshot.PID(os.Getpid())) // the tests may run in one themselves
	sleep := func(flags uintptr) string {
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return containerOf(t, proc.FS{}, snapshot.PID(cmd.Process.Pid))
	}
	require.Equal(t, own, sleep(0))
	if os.Geteuid() != 0 {
		t.Skip("only root can make a PID namespace alone")
	}
	want := snapshot.UnnamedContainer
	if own != "" {
		want = own
	}
	require.Equal(t, want, sleep(syscall.CLONE_NEWPID))
}
