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

func TestAncestors(t *testing.T) {
	fs := mount(t)
	for _, row := range []struct{ pid, parent int }{{10, 1}, {11, 10}, {12, 11}, {20, 0}, {30, 29}, {40, 41}, {41, 40}} {
		add(t, fs, snapshot.PID(row.pid), map[string]string{"stat": statLine(row.pid, "sh", "S", row.parent, 0, 1, 5)})
	}
	for _, row := range []struct {
		what string
		pid  snapshot.PID
		want []snapshot.PID
	}{
		{"up to PID 1", 12, []snapshot.PID{11, 10, 1}},
		{"PID 1 has none", 1, nil},
		{"the first of a namespace", 20, nil},
	} {
		got, err := fs.Ancestors(row.pid)
		require.NoError(t, err, row.what)
		require.Equal(t, row.want, got, row.what)
	}
	finder := fs.NewAncestorFinder()
	for pid, want := range map[snapshot.PID][]proc.Ancestor{
		12: {{PID: 11, Start: 5}, {PID: 10, Start: 5}, {PID: 1, Start: 2}},
		11: {{PID: 10, Start: 5}, {PID: 1, Start: 2}},
		1:  nil,
		20: nil,
	} {
		stat, err := fs.Stat(pid)
		require.NoError(t, err)
		got, err := finder.Ancestors(stat)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := finder.Ancestors(proc.Stat{PID: 30, PPID: 29, Start: 5})
	require.ErrorIs(t, err, proc.ErrGone)
	many, err := finder.Ancestors(proc.Stat{PID: 40, PPID: 41, Start: 5}) // any depth
	require.NoError(t, err)
	require.Len(t, many, 256)
	_, err = fs.Ancestors(30) // its parent has ended, and it never gets another
	require.ErrorIs(t, err, proc.ErrGone)
	_, err = fs.Ancestors(40) // a ring, which no kernel makes
	require.ErrorIs(t, err, proc.ErrUnreadable)
}

// A parent that ended since the process was looked at: its new one is found.
func TestAncestorsOfAnOrphan(t *testing.T) {
	fs := mount(t)
	add(t, fs, 10, map[string]string{"stat": statLine(10, "sh", "S", 1, 0, 1, 5)})
	before, err := proc.ParseStat([]byte(statLine(10, "sh", "S", 9, 0, 1, 5)))
	require.NoError(t, err)
	got, err := fs.NewAncestorFinder().Ancestors(before)
	require.NoError(t, err)
	require.Equal(t, []proc.Ancestor{{PID: 1, Start: 2}}, got)

	before.Start = 4 // now its PID is another's
	_, err = fs.NewAncestorFinder().Ancestors(before)
	require.ErrorIs(t, err, proc.ErrGone)
}

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
