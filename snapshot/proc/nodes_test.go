package proc_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// memMajor is the major number of /dev/null and /dev/zero.
const memMajor = 1

func hasNode(t *testing.T, pid int, major uint32) bool {
	t.Helper()
	search := proc.NodeSearch{Major: major}
	has, err := search.Finds(proc.FS{}, snapshot.PID(pid))
	require.NoError(t, err)
	return has
}

func TestNodeSearch(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can look at what is mapped")
	}
	for name, tt := range map[string]struct {
		script string
		want   bool
	}{
		"none":   {"exec 0<&- 2>&-; echo; exec sleep 60", false},
		"open":   {"exec 2>/dev/null 0<&-; echo; exec sleep 60", true},
		"closed": {"exec 2>/dev/null 0<&-; exec 2>&-; echo; exec sleep 60", false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/bin/bash", "-c", "for fd in {3..255}; do eval \"exec $fd<&-\"; done; "+tt.script)
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			defer in.Close()
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			defer func() { _ = cmd.Process.Signal(syscall.SIGKILL); _ = cmd.Wait() }()
			_, err = out.Read(make([]byte, 1))
			require.NoError(t, err)
			require.Equal(t, tt.want, hasNode(t, cmd.Process.Pid, memMajor))
			require.False(t, hasNode(t, cmd.Process.Pid, 195))
		})
	}
}

// TestNodeSearchThatIsMapped: a device of which only the mapping is left.
func TestNodeSearchThatIsMapped(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can look at what is mapped")
	}
	const mem = "/dev/mem"
	file, err := os.Open(mem)
	if err != nil {
		t.Skip(err)
	}
	data, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	_ = file.Close()
	if err != nil {
		t.Skip(err)
	}
	defer func() { require.NoError(t, unix.Munmap(data)) }()
	require.True(t, hasNode(t, os.Getpid(), memMajor))
}
