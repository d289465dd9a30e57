package local_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	snapshotlocal "github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

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
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	return uid, snapshot.PID(cmd.Process.Pid), snapshot.PID(pid), func() { _ = cmd.Wait() }
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
			machine := &snapshotlocal.Collector{SMI: lists{job}, StateFiles: store, DeviceListTTL: time.Hour}
			register(row.before)
			require.Eventually(t, func() bool { return hasTitle(job) }, 10*time.Second, time.Millisecond)
			s, err := machine.Snapshot(t.Context())
			require.NoError(t, err)
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
