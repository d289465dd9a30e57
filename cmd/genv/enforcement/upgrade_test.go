package enforcement_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// TestUpgradeUnderALoop: while a controller enforces, the program on a host is replaced.
// No cycle fails, and soon afterwards the new program serves.
func TestUpgradeUnderALoop(t *testing.T) {
	t.Parallel()
	sshd.Require(t)
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", GPUs: 1}}, Installable: true})
	driver, err := os.ReadFile(filepath.Join(f.Dir, "driver", "nvidia-smi"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(f.Local(), "bin/nvidia-smi"), driver, 0o755))
	install := func(program string) {
		r := genvtest.Exec(t, exec.Command(program, "remote", "install", "-F", f.SSHConfig(), "-H", "gpu-01", "--upgrade"))
		require.Zero(t, r.Code, r.Err)
		require.NotContains(t, r.Out, "devices can't be listed")
	}
	install(genvtest.Program(t))
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "1", "--non-env-processes")
	for _, more := range []string{"", "2"} {
		if more != "" {
			install(genvtest.ProgramWith(t, more))
		}
		place, err := os.Stat(filepath.Join(f.Local(), "bin/genv"))
		require.NoError(t, err)
		d.next(func(c enforcement.CycleDocument) bool {
			require.Empty(t, c.Failed)
			require.Equal(t, agent.ViaStream, c.Via["gpu-01"])
			return len(servedBy(t, place)) == 1
		})
		job, err := f.Host("gpu-01").StartJob(testfleet.Job{User: "bob", Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
		require.NoError(t, err)
		d.next(func(c enforcement.CycleDocument) bool {
			require.Empty(t, c.Failed)
			return !job.Running()
		})
	}
}

// servedBy are the processes of `genv usage serve` that run a file.
func servedBy(t *testing.T, program os.FileInfo) (pids []string) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, proc := range processes {
		exe, err := os.Stat(filepath.Join(proc, "exe"))
		if err != nil || !os.SameFile(exe, program) {
			continue
		}
		if line, _ := os.ReadFile(filepath.Join(proc, "cmdline")); strings.Contains(string(line), "usage\x00serve") { // it may have ended
			pids = append(pids, filepath.Base(proc))
		}
	}
	return pids
}
