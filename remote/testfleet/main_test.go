package testfleet_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// smi runs the machine's nvidia-smi as a program on it would.
func smi(t *testing.T, m *testfleet.Machine, args ...string) string {
	t.Helper()
	cmd := exec.Command(m.NvidiaSMI(), args...)
	cmd.Env = append(m.Environ(), promptEnd)
	return proctest.Output(t, cmd)
}

const appQuery = "--query-compute-apps=pid,used_memory,process_name"

func TestAJobIsOnItsDevicesWhileItRuns(t *testing.T) {
	m := newMachine(t)
	job, err := m.StartJob(testfleet.Job{
		Command: []string{"sleep", "600"}, Name: "train.py", Env: []string{"GENV_ENVIRONMENT_ID=4242"},
		Uses: []testfleet.Use{{Device: 1, MiB: 5000}, {Device: 3, MiB: -1}},
	})
	require.NoError(t, err)
	pid := strconv.Itoa(int(job.PID))
	require.Equal(t, pid+", 5000 MiB, train.py\n"+pid+", [N/A], train.py\n", smi(t, m, appQuery, "--format=csv,noheader"))
	require.Equal(t, "0 MiB\n5000 MiB\n0 MiB\n0 MiB\n", smi(t, m, "--query-gpu=memory.used", "--format=csv,noheader"))
	environ := proctest.ReadFile(t, "/proc/"+pid+"/environ")
	require.Contains(t, strings.Split(string(environ), "\x00"), "GENV_ENVIRONMENT_ID=4242")
	require.Equal(t, "train.py\x00600\x00", proctest.ReadText(t, "/proc/"+pid+"/cmdline"))
	require.True(t, job.Running())
	require.Zero(t, job.EndedBy())

	require.NoError(t, syscall.Kill(int(job.PID), syscall.SIGTERM))
	<-job.Ended()
	require.Equal(t, syscall.SIGTERM, job.EndedBy())
	require.Empty(t, smi(t, m, appQuery, "--format=csv,noheader"))
	job.Kill() // of what has ended: nothing happens
}

func TestAJobWithoutEnvironmentHasNone(t *testing.T) {
	t.Setenv("GENV_ENVIRONMENT_ID", "of the caller")
	m := newMachine(t)
	job := proctest.Try(m.StartJob(testfleet.Job{})).OK(t)
	environ := proctest.ReadFile(t, "/proc/"+strconv.Itoa(int(job.PID))+"/environ")
	require.NotContains(t, string(environ), "GENV_ENVIRONMENT_ID")
	require.Empty(t, smi(t, m, appQuery, "--format=csv,noheader"))
}

func TestCloseEndsTheJobs(t *testing.T) {
	m := newMachine(t)
	var jobs []*testfleet.Process
	for range 3 {
		job := proctest.Try(m.StartJob(testfleet.Job{})).OK(t)
		jobs = append(jobs, job)
	}
	require.NoError(t, m.Close())
	for _, job := range jobs {
		require.False(t, job.Running())
		require.Equal(t, syscall.SIGKILL, job.EndedBy())
	}
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	m := newMachine(t)
	require.ErrorContains(t, proctest.Try(m.StartJob(testfleet.Job{Command: []string{"/nonexistent"}})).Err, "/nonexistent")
}

func TestActivateWritesStateAsGenvDoes(t *testing.T) {
	m := newMachine(t)
	at := time.Date(2026, 11, 20, 21, 10, 33, 0, time.Local)
	env, err := m.Activate(testfleet.Environment{
		User: "carol", Config: snapshot.EnvConfig{Name: "training", GPUMemory: snapshot.MustMemory("4g")},
		Devices: []snapshot.DeviceIndex{1}, At: at,
	})
	require.NoError(t, err)
	require.True(t, env.Shell.Running())
	require.Equal(t, "GENV_ENVIRONMENT_ID="+strconv.Itoa(int(env.Shell.PID)), env.Var())

	envs := proctest.Try(m.Environments()).OK(t)
	require.Len(t, envs, 1)
	require.Equal(t, snapshot.Username("carol"), envs[0].Username)
	require.Equal(t, snapshot.UID(os.Getuid()), envs[0].UID)
	require.Equal(t, []snapshot.PID{env.Shell.PID}, envs[0].PIDs)

	devices := proctest.Try(m.Devices()).OK(t)
	require.Len(t, devices, 4)
	require.Equal(t, "81559mi", devices[0].TotalMemory.String())
	require.Empty(t, devices[0].Attachments)
	require.Equal(t, []snapshot.Attachment{
		{EID: env.EID, GPUMemory: snapshot.MustMemory("4g"), Time: snapshot.DateOf(at)},
	}, devices[1].Attachments)
	require.Error(t, m.Attach(env, 4, at), "there is no fifth device")

	for _, name := range []string{"envs.json", "devices.json", "genv.lock"} {
		info := proctest.Try(os.Stat(filepath.Join(m.State, name))).OK(t)
		require.Equal(t, os.FileMode(0o666), info.Mode().Perm(), name)
	}
	written := proctest.ReadFile(t, filepath.Join(m.State, "envs.json"))
	require.False(t, bytes.HasSuffix(written, []byte("\n")), "1.4.3 writes no end of line")
	info := proctest.Try(os.Stat(m.State)).OK(t)
	require.Equal(t, os.FileMode(0o777), info.Mode().Perm())
}

const promptEnd = "GORACE=atexit_sleep_ms=0" // spares a program with the race detector its second of waiting at its end

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "nvidia-smi" {
		os.Exit(gpus.Main(os.Args[1:], os.Stdout, os.Stderr, os.Getenv))
	}
	goleak.VerifyTestMain(m)
}

func newMachine(t *testing.T) *testfleet.Machine {
	t.Helper()
	program := proctest.Try(os.Executable()).OK(t)
	m := proctest.Try(testfleet.NewMachine(filepath.Join(t.TempDir(), "host"), gpus.Devices("test", 4, "NVIDIA H100 80GB HBM3", 81559), program)).OK(t)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// TestInstall: a program can be had by several at a time, and each can be run at once.
func TestInstall(t *testing.T) {
	const smi = "remote/testfleet/gpus/nvidia-smi"
	t.Setenv("TESTFLEET_PROGRAMS", "")
	dir := t.TempDir()
	var codes [4]int
	var group sync.WaitGroup
	for i := range codes {
		group.Go(func() {
			path := filepath.Join(dir, fmt.Sprint("nvidia-smi-", i))
			if err := testfleet.InstallProgram(smi, path); err != nil {
				t.Error(err)
				return
			}
			cmd := exec.Command(path, "-L")
			cmd.Env = []string{gpus.EnvFault + "=" + gpus.FaultNoDriver}
			_ = cmd.Run() // it fails with the code
			codes[i] = cmd.ProcessState.ExitCode()
		})
	}
	group.Wait()
	require.Equal(t, [4]int{9, 9, 9, 9}, codes)

	require.ErrorContains(t, testfleet.InstallProgram("cmd/none", filepath.Join(dir, "none")), "build cmd/none")
	require.NoFileExists(t, filepath.Join(dir, "none"))
}

func TestCopy(t *testing.T) {
	dir := t.TempDir()
	program, path := filepath.Join(dir, "program"), filepath.Join(dir, "copy")
	require.ErrorContains(t, testfleet.CopyProgram(program, path), program)
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o600))
	require.NoError(t, testfleet.CopyProgram(program, path))
	info := proctest.Try(os.Stat(path)).OK(t)
	require.Equal(t, os.FileMode(0o755), info.Mode())
}
