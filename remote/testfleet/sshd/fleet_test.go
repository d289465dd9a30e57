package sshd_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ssh runs a command line on a host with the system's own client.
func ssh(f *sshd.Fleet, host, line string) (output string, code int) {
	cmd := exec.Command("ssh", "-F", f.SSHConfig(), host, line)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		return err.Error(), -1
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestEachAddressIsAHost(t *testing.T) {
	fleet := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02", "gpu-03")})
	for _, h := range fleet.Hosts() {
		out, code := ssh(fleet, h.Name, "id -un; sudo -n id -u; printenv GENV_TMPDIR; sudo -n printenv GENV_TMPDIR GENV_SIM_GPUS")
		require.Equal(t, fmt.Sprintf("operator\n0\n%s\n%s\n%s\n", h.State, h.State, h.GPUs), out)
		require.Zero(t, code)
		require.Contains(t, h.State, h.Name)

		out, code = ssh(fleet, h.Name, "nvidia-smi -L")
		require.Zero(t, code, out)
		require.Equal(t, 8, strings.Count(out, "UUID: GPU-"), out)
	}
}

func TestAFleetMayNeedSeveralSSHDs(t *testing.T) {
	var names []string
	for i := range 35 {
		names = append(names, fmt.Sprintf("gpu-%02d", i))
	}
	fleet := sshd.Start(t, sshd.Options{Hosts: sshd.Named(names...)})
	for _, name := range []string{"gpu-00", "gpu-15", "gpu-16", "gpu-34"} {
		out, _ := ssh(fleet, name, "printenv GENV_TMPDIR")
		require.Equal(t, fleet.Host(name).State+"\n", out)
	}
}

func TestFleetsLiveSideBySide(t *testing.T) {
	one := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01")})
	two := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01")})
	for _, fleet := range []*sshd.Fleet{one, two} {
		out, _ := ssh(fleet, "gpu-01", "printenv GENV_TMPDIR")
		require.Equal(t, fleet.Host("gpu-01").State+"\n", out)
	}
}

func TestRightsAndFaults(t *testing.T) {
	genv := t.TempDir() + "/genv"
	require.NoError(t, proctest.WriteProgram(genv, []byte("#!/bin/sh\necho this is genv\n")))
	fleet := sshd.Start(t, sshd.Options{Genv: genv, Hosts: []sshd.HostOptions{
		{Name: "fine"},
		{Name: "password", Rights: sshd.NeedsPassword},
		{Name: "stranger", Rights: sshd.NotInSudoers},
		{Name: "no-sudo", Rights: sshd.NoSudo},
		{Name: "no-genv", Rights: sshd.NoGenv},
		{Name: "no-driver", Fault: "no-driver"},
	}})
	for _, row := range []struct {
		host, line, output string
		code               int
	}{
		{"fine", "sudo -n genv", "this is genv\n", 0},
		{"fine", "genv", "this is genv\n", 0},
		{"password", "sudo -n genv", "sudo: a password is required\n", 1},
		{"stranger", "sudo -n genv", "sudo: a password is required\n", 1},
		{"no-sudo", "sudo -n genv", "sudo: command not found", 127},
		{"no-sudo", "genv", "this is genv\n", 0},
		{"no-genv", "sudo -n genv", "sudo: genv: command not found\n", 1},
		{"no-genv", "genv", "genv: command not found", 127},
		{"no-genv", "nvidia-smi -L", "GPU 0: ", 0},
		{"no-driver", "sudo -n nvidia-smi", "couldn't communicate with the NVIDIA driver", 9},
	} {
		out, code := ssh(fleet, row.host, row.line)
		require.Contains(t, out, row.output, row)
		require.Equal(t, row.code, code, row)
	}
}

func TestNothingStaysBehind(t *testing.T) {
	sshd.Require(t)
	before := proctest.ReadFile(t, "/etc/passwd")
	fleet := proctest.Try(sshd.Open(sshd.Options{Hosts: sshd.Named("gpu-01")})).OK(t)
	job := proctest.Try(fleet.Host("gpu-01").StartJob(testfleet.Job{User: "bob", IgnoreTerm: true})).OK(t)

	// A command that outlives its connection, as genv's could.
	out, _ := ssh(fleet, "gpu-01", "trap '' HUP TERM; sleep 1000000 >/dev/null 2>&1 & echo $!")
	left := "/proc/" + strings.TrimSpace(out)
	require.DirExists(t, left)

	require.NoError(t, fleet.Close())
	require.NoDirExists(t, fleet.Dir)
	require.False(t, job.Running())
	require.Eventually(t, func() bool { return ended(left) }, waitFor, tick)
	after := proctest.ReadFile(t, "/etc/passwd")
	require.Equal(t, string(before), string(after))
	require.ErrorIs(t, syscall.Kill(int(job.PID), 0), syscall.ESRCH)
}

func TestConnectionsCanBeCut(t *testing.T) {
	fleet := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01")})
	cmd := exec.Command("ssh", "-F", fleet.SSHConfig(), "gpu-01", "echo $$; exec sleep 1000000")
	stdout := proctest.Try(cmd.StdoutPipe()).OK(t)
	require.NoError(t, cmd.Start())
	pid := proctest.Try(bufio.NewReader(stdout).ReadString('\n')).OK(t)

	require.NoError(t, fleet.CutConnections())
	require.Error(t, cmd.Wait())
	require.Equal(t, 255, cmd.ProcessState.ExitCode(), "ssh's own code for a lost connection")
	require.False(t, ended("/proc/"+strings.TrimSpace(pid)), "the command goes on")

	out, code := ssh(fleet, "gpu-01", "echo again")
	require.Zero(t, code, out)
}

// ended says whether a process is gone but for its parent's asking.
func ended(proc string) bool {
	stat, err := os.ReadFile(proc + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

const (
	waitFor = 30 * time.Second
	tick    = 5 * time.Millisecond
)

func startJob(t *testing.T, h *sshd.Host, job testfleet.Job) *testfleet.Process {
	t.Helper()
	return proctest.Try(h.StartJob(job)).OK(t)
}

func TestAJobIsARealProcessOfItsUser(t *testing.T) {
	fleet := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02")})
	job := startJob(t, fleet.Host("gpu-01"), testfleet.Job{
		User: "bob", Env: []string{"GENV_ENVIRONMENT_ID=17"},
		Uses: []testfleet.Use{{Device: 2, MiB: 1000}, {Device: 3, MiB: -1}},
	})
	pid := strconv.Itoa(int(job.PID))

	out, _ := ssh(fleet, "gpu-01", "stat -c %U /proc/"+pid+"; sudo -n cat /proc/"+pid+"/environ")
	require.Regexp(t, "^bob\nUSER=bob\x00.*\x00GENV_ENVIRONMENT_ID=17\x00$", out)
	out, _ = ssh(fleet, "gpu-01", "nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader")
	require.Equal(t, pid+", 1000 MiB\n"+pid+", [N/A]\n", out)
	out, _ = ssh(fleet, "gpu-02", "nvidia-smi --query-compute-apps=pid --format=csv,noheader")
	require.Empty(t, out, "another host does not see it")

	out, code := ssh(fleet, "gpu-01", "kill "+pid)
	require.NotZero(t, code, "the operator may not, without sudo: %s", out)
	require.True(t, job.Running())
	out, code = ssh(fleet, "gpu-01", "sudo -n kill "+pid)
	require.Zero(t, code, out)
	<-job.Ended()
	require.Equal(t, syscall.SIGTERM, job.EndedBy())
}

func TestAJobMayIgnoreTerm(t *testing.T) {
	fleet := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01")})
	job := startJob(t, fleet.Host("gpu-01"), testfleet.Job{User: "alice", IgnoreTerm: true})
	pid := strconv.Itoa(int(job.PID))
	out, code := ssh(fleet, "gpu-01", "sudo -n kill "+pid+" && sudo -n kill -0 "+pid)
	require.Zero(t, code, out)
	require.True(t, job.Running())
	require.Zero(t, job.EndedBy())
	job.Kill()
	require.Equal(t, syscall.SIGKILL, job.EndedBy())
}

func TestABareJobHasNoEnvironment(t *testing.T) {
	fleet := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01")})
	job := startJob(t, fleet.Host("gpu-01"), testfleet.Job{User: "alice", Bare: true})
	require.Empty(t, proctest.ReadFile(t, "/proc/"+strconv.Itoa(int(job.PID))+"/environ"))
}

func TestAnEnvironmentBelongsToItsUser(t *testing.T) {
	fleet := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", GPUs: 2}}})
	h := fleet.Host("gpu-01")
	env := proctest.Try(h.Activate(testfleet.Environment{User: "carol", Devices: []snapshot.DeviceIndex{1}})).OK(t)
	require.Equal(t, proctest.Try(sshd.UID("carol")).OK(t), env.UID)
	out, _ := ssh(fleet, "gpu-01", "stat -c %U /proc/"+string(env.EID))
	require.Equal(t, "carol\n", out)
	require.Error(t, h.Attach(env, 2, time.Now()), "there is no third device")
}
