package testfleet_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot"
)

// smi runs the machine's nvidia-smi as a program on it would.
func smi(t *testing.T, m *testfleet.Machine, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(filepath.Dir(m.GPUs()), "bin", "nvidia-smi"), args...)
	cmd.Env = append(m.Environ(), promptEnd)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

const appQuery = "--query-compute-apps=pid,used_memory,process_name"

func TestAJobIsOnItsDevicesWhileItRuns(t *testing.T) {
	m := newMachine(t)
	job, err := m.Start(testfleet.JobOptions{
		Command: []string{"sleep", "600"}, Title: "python", Name: "train.py", Environment: "4242",
		Uses: []testfleet.Use{{Device: 1, MiB: 5000}, {Device: 3, MiB: -1}},
	})
	require.NoError(t, err)
	pid := strconv.Itoa(int(job.PID()))
	require.Equal(t, pid+", 5000 MiB, train.py\n"+pid+", [N/A], train.py\n", smi(t, m, appQuery, "--format=csv,noheader"))
	require.Equal(t, "0 MiB\n5000 MiB\n0 MiB\n0 MiB\n", smi(t, m, "--query-gpu=memory.used", "--format=csv,noheader"))
	environ, err := os.ReadFile("/proc/" + pid + "/environ")
	require.NoError(t, err)
	require.Contains(t, strings.Split(string(environ), "\x00"), "GENV_ENVIRONMENT_ID=4242")
	cmdline, err := os.ReadFile("/proc/" + pid + "/cmdline")
	require.NoError(t, err)
	require.Equal(t, "python\x00600\x00", string(cmdline))
	require.True(t, job.Running())
	require.Zero(t, job.Signal())

	require.NoError(t, job.Terminate())
	<-job.Done()
	require.Equal(t, syscall.SIGTERM, job.Signal())
	require.Empty(t, smi(t, m, appQuery, "--format=csv,noheader"))
	require.NoError(t, job.Kill()) // of what has ended: nothing happens
}

func TestAJobWithoutEnvironmentHasNone(t *testing.T) {
	t.Setenv("GENV_ENVIRONMENT_ID", "of the caller")
	m := newMachine(t)
	job, err := m.Start(testfleet.JobOptions{Command: []string{"sleep", "600"}})
	require.NoError(t, err)
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(int(job.PID())) + "/environ")
	require.NoError(t, err)
	require.NotContains(t, string(environ), "GENV_ENVIRONMENT_ID")
	require.Empty(t, smi(t, m, appQuery, "--format=csv,noheader"))
}

func TestCloseEndsTheJobs(t *testing.T) {
	m := newMachine(t)
	var jobs []*testfleet.Job
	for range 3 {
		job, err := m.Start(testfleet.JobOptions{Command: []string{"sleep", "600"}})
		require.NoError(t, err)
		jobs = append(jobs, job)
	}
	require.NoError(t, m.Close())
	for _, job := range jobs {
		require.False(t, job.Running())
		require.Equal(t, syscall.SIGKILL, job.Signal())
	}
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	m := newMachine(t)
	_, err := m.Start(testfleet.JobOptions{})
	require.ErrorContains(t, err, "needs a command")
	_, err = m.Start(testfleet.JobOptions{Command: []string{"/nonexistent"}})
	require.ErrorContains(t, err, "/nonexistent")
}

func TestWriteStateIsWhat143Writes(t *testing.T) {
	m := newMachine(t)
	date, err := snapshot.ParseDate("20/11/2026 21:10:32")
	require.NoError(t, err)
	env := snapshot.Environment{EID: "1667", UID: 1001, Creation: date, Username: "alice", PIDs: []snapshot.PID{25936}}
	require.NoError(t, m.WriteState([]snapshot.Environment{env}, map[snapshot.DeviceIndex][]snapshot.Attachment{
		2: {{EID: "1667", GPUMemory: snapshot.MustMemory("4g"), Time: date}},
	}))
	envs, err := os.ReadFile(filepath.Join(m.StateDir(), "envs.json"))
	require.NoError(t, err)
	gotEnvs, err := snapshot.DecodeEnvironments(envs)
	require.NoError(t, err)
	require.Equal(t, snapshot.Username("alice"), gotEnvs[0].Username)
	books, err := os.ReadFile(filepath.Join(m.StateDir(), "devices.json"))
	require.NoError(t, err)
	devices, err := snapshot.DecodeDevices(books)
	require.NoError(t, err)
	require.Len(t, devices, 4)
	require.Equal(t, snapshot.EnvID("1667"), devices[2].Attachments[0].EID)
	require.Equal(t, "81559mi", devices[0].TotalMemory.String())
	require.False(t, bytes.HasSuffix(envs, []byte("\n")))
	info, err := os.Stat(m.StateDir())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o777), info.Mode().Perm())
}
