package host_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

const rootlessUser, rootlessSubuids = 4002, 300000

// newRootlessHost is a host on which root owns the state, and on which a user has a Docker of
// the user's own, that knows genv's runtime.
func newRootlessHost(t *testing.T) *runtimeHost {
	requireRootlessDocker(t)
	h := newGPUHost(t)
	h.serve()
	config := filepath.Join(h.dir, "daemon.json")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `{"runtimes": {"genv": {"path": %q, "runtimeArgs": ["container-runtime", "--"]}}}`, h.binary), 0o644))
	h.dockerDaemon = startRootlessDocker(t, rootlessUser, rootlessSubuids, "--config-file", config)
	return h
}

// environmentOf is a process of a user with an environment on a device.
func (h *runtimeHost) environmentOf(uid uint32, eid string, device int) snapshot.PID {
	h.t.Helper()
	cmd := exec.Command("sleep", "1000000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	require.NoError(h.t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	h.t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	h.must(uid, "envs", "activate", "--eid", eid, "--pid", fmt.Sprint(cmd.Process.Pid))
	attach := h.as(uid, "attach", "--index", fmt.Sprint(device))
	attach.Env = append(attach.Env, "GENV_ENVIRONMENT_ID="+eid)
	proctest.Output(h.t, attach)
	return snapshot.PID(cmd.Process.Pid) //nolint:gosec // the kernel's PIDs fit
}

// getNothing: genv's runtime starts a container of a rootless engine only if it asks for no GPU.
func (h *runtimeHost) getNothing() {
	h.t.Helper()
	require.NotContains(h.t, h.Docker("run", "--rm", "--network", "none", "--runtime", "genv", dockerImage, "env"), "GENV_")
	h.refused("doesn't give GPUs to containers of rootless engines", "--runtime", "genv", "-e", "GENV_GPUS=1", dockerImage, "env")
	require.Empty(h.t, h.files().Environments)
}

// TestARootlessContainerIsJudgedByItsUser: by the one who runs the engine, whatever uid its
// processes have, and whatever environment it claims.
func TestARootlessContainerIsJudgedByItsUser(t *testing.T) {
	h := judged(t, newRootlessHost(t))
	const outsiders = "defaults: {non-env-processes: true, env-devices: true, grace: 1s, kill: true}\n"
	const warning = "defaults: {non-env-processes: true, env-devices: true, warn: {cycles: 1}}\n"
	const capOf1 = "defaults: {max-devices-per-user: 1, warn: {cycles: 1}}\n"
	h.getNothing()
	// In an environment of its user it keeps the rules, and counts for that user.
	h.environmentOf(rootlessUser, "own", 0)
	h.Run("--name", "kept", "--user", "7", "-e", "GENV_ENVIRONMENT_ID=own", dockerImage, "sleep", "1000000")
	kept := h.Init("kept")
	h.uses(kept, 0)
	for _, policy := range []string{outsiders, warning, capOf1} {
		require.Contains(t, h.enforce(policy), "1 host answered, 0 findings: nothing was done")
	}
	h.uses(kept, 0, 2)
	require.Contains(t, h.enforce(capOf1), "User rootless is using 2 devices")
	require.Contains(t, h.enforce(warning), "is using non-attached GPU(s) 2 (user rootless, sleep 1000000, container unnamed, started by rootless)")
	// Without one it is found, and named as far as anybody but its user knows it.
	h.Run("--name", "outside", "--user", "7", "--label", "genv.uid=0", dockerImage, "sleep", "2000000")
	outside := h.Init("outside")
	h.uses(kept, 0)
	h.alsoUses(outside, 1)
	found := fmt.Sprintf("Process %d is not running in a GPU environment (user rootless, sleep 2000000, container unnamed, started by rootless)", outside)
	for _, exempt := range []string{"", "exempt: {users: [root], uids: [0, 7, 300006], containers: [{name: '*'}]}\n"} {
		require.Contains(t, h.enforce(exempt+outsiders, "--dry-run"), found+"\nWould terminate process")
	}
	require.NotContains(t, h.enforce("exempt: {users: [rootless]}\n"+outsiders), "terminat")
	require.Contains(t, h.enforce(warning), found+" (waits for")
	require.True(t, h.Runs("outside"))
	ended := h.enforce(outsiders)
	require.Contains(t, ended, found+"\nTerminating process")
	require.False(t, h.Runs("outside"), ended)
	require.True(t, h.Runs("kept"), ended)
	require.Contains(t, proctest.ReadText(t, filepath.Join(h.dir, "log/audit.jsonl")), fmt.Sprintf(`"uid":%d`, rootlessUser))
	h.claimsAnother(outsiders, capOf1)
	require.True(t, h.Runs("kept"))
}

// claimsAnother: the id of another user's environment costs that user nothing.
func (h *judgedHost) claimsAnother(outsiders, capOf1 string) {
	h.t.Helper()
	theirs := h.environmentOf(containerUser, "theirs", 2)
	h.Run("--name", "thief", "--user", "7", "-e", "GENV_ENVIRONMENT_ID=theirs", dockerImage, "sleep", "3000000")
	thief := h.Init("thief")
	h.uses(theirs, 2)
	h.alsoUses(thief, 2, 3)
	require.NotContains(h.t, h.enforce(capOf1), "User bob")
	found := h.enforce(outsiders)
	require.Contains(h.t, found, fmt.Sprintf("Process %d is", thief))
	require.NotContains(h.t, found, "user bob")
	require.NotContains(h.t, found, "Detaching")
	require.False(h.t, h.Runs("thief"))
	files := h.files()
	require.Len(h.t, files.AttachedTo("theirs"), 1)
}

// judgedHost is a host with the runtime, on which root's genv judges what nvidia-smi, which is
// simulated, shows of containers. In dockerd's namespace its user has the name bob.
type judgedHost struct {
	*runtimeHost
	driver gpus.Driver
}

func judged(t *testing.T, host *runtimeHost) *judgedHost {
	h := &judgedHost{runtimeHost: host}
	for i := range 4 {
		h.driver.Devices = append(h.driver.Devices, gpus.Device{Index: i, UUID: fmt.Sprintf("GPU-%d0", i), Name: "NVIDIA H100 80GB HBM3", TotalMiB: 81559})
	}
	bin := filepath.Join(h.dir, "driver")
	require.NoError(t, os.Mkdir(bin, 0o755))
	require.NoError(t, os.Symlink(sshd.Build(t, "remote/testfleet/gpus/nvidia-smi"), filepath.Join(bin, "nvidia-smi")))
	accounts := filepath.Join(h.dir, "passwd")
	known := proctest.Try(h.Command("cat", "/etc/passwd").Output()).OK(t)
	require.NoError(t, os.WriteFile(accounts, fmt.Appendf(known, "bob:x:%d:%d::/:/bin/sh\n", containerUser, containerUser), 0o644))
	proctest.Output(t, h.Command("mount", "--bind", accounts, "/etc/passwd"))
	return h
}

// uses has nvidia-smi show a process, and no other one, on devices.
func (h *judgedHost) uses(pid snapshot.PID, devices ...int) {
	h.t.Helper()
	h.driver.Apps = nil
	h.alsoUses(pid, devices...)
}

// alsoUses is uses, and the other processes stay.
func (h *judgedHost) alsoUses(pid snapshot.PID, devices ...int) {
	h.t.Helper()
	for _, device := range devices {
		h.driver.Apps = append(h.driver.Apps, gpus.App{PID: int(pid), Device: device, UsedMiB: new(int64(10)), Name: "job"})
	}
	require.NoError(h.t, h.driver.Write(filepath.Join(h.dir, "gpus.json")))
}

// enforce is what a cycle with a policy prints.
func (h *judgedHost) enforce(policy string, flags ...string) string {
	h.t.Helper()
	path := filepath.Join(h.dir, "policy.yaml")
	require.NoError(h.t, os.WriteFile(path, []byte(policy), 0o600))
	cmd := h.Command(h.binary, append([]string{"enforce", "--interval", "0", "--policy", path}, flags...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(h.dir, "driver")+":/usr/bin:/bin", gpus.EnvFile+"="+filepath.Join(h.dir, "gpus.json"),
		"GENV_AUDIT_LOG="+filepath.Join(h.dir, "log/audit.jsonl"), "XDG_STATE_HOME="+filepath.Join(h.dir, "memory"), "GENV_TELL=off", "GENV_CONFIG_DIR=off")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(h.t, err, &exit, "%s", out)
	}
	return string(out)
}

// TestAContainerOfTheRuntimeIsItsUsers: what bob starts with genv's runtime is judged as bob's
// for as long as it runs, with what is executed in it, and when the container is started again.
func TestAContainerOfTheRuntimeIsItsUsers(t *testing.T) {
	h := judged(t, newRuntimeHost(t))
	out := h.mustPerson(h.binary, "docker", "run", "-d", "--network", "none", "--name", "job", "--gpus", "1", dockerImage, "sleep", "1000000")
	id := strings.TrimSpace(out)
	const capOf1 = "defaults: {max-devices-per-user: 1, warn: {cycles: 1}}\n"
	h.uses(h.Init("job"), 0)
	require.NotContains(t, h.enforce(outsideOnly), "Terminating")
	require.NotContains(t, h.enforce(capOf1), "User bob")
	require.True(t, h.Runs("job"), "it keeps the rules")
	h.uses(h.Init("job"), 0, 2) // as a privileged container can
	require.Contains(t, h.enforce(capOf1), "User bob is using 2 devices")
	warned := h.enforce("defaults: {env-devices: true, warn: {cycles: 3}}\n")
	require.Contains(t, warned, "is using non-attached GPU(s) 2 (user bob, sleep 1000000, container job (lab/train:1), started by bob)")

	h.executesIn("job")

	// Containers of a user who may use Docker, made to look like bob's.
	for _, args := range [][]string{
		{"--cgroup-parent", "/docker/" + id, dockerImage, "sleep", "1000000"},
		{"--user", fmt.Sprint(containerUser), "--security-opt", "seccomp=unconfined", dockerImage, "busybox", "unshare", "-U", "sleep", "1000000"},
	} {
		forged := h.Run(args...)
		h.uses(h.Init(forged), 0, 2)
		require.NotContains(t, h.enforce(capOf1), "User bob", "%q", args)
		require.Contains(t, h.enforce("defaults: {non-env-processes: true, warn: {cycles: 3}}\n"), "started by an unknown user", "%q", args)
		h.Docker("rm", "--force", forged) // before the cgroup that it is below
	}

	// Started again, with a token that was used: root's runtime knows the container.
	h.Docker("restart", "--time", "0", "job")
	require.Eventually(t, func() bool { return len(h.files().Environments) == 1 }, time.Minute, 20*time.Millisecond)
	init := h.Init("job")
	h.uses(init, 2)
	const devices = "defaults: {env-devices: true, non-env-processes: true, warn: {cycles: 3}}\n"
	require.Contains(t, h.enforce(devices), "container job (lab/train:1), started by bob")
	restarted := h.files().Environments[0]
	require.EqualValues(t, containerUser, restarted.UID)
	require.Equal(t, []snapshot.PID{init}, restarted.PIDs)
	stat := proctest.Try(proc.FS{}.Stat(init)).OK(t)
	for start, by := range map[snapshot.StartTime]string{stat.Start - 1: "an unknown user", stat.Start: "bob"} {
		require.NoError(t, container.WriteRecord(filepath.Join(h.dir, "root/run"), container.Record{
			ID: id, EID: snapshot.EnvID(id[:12]), UID: new(snapshot.UID(containerUser)), Proof: container.ProofToken, Runtime: "docker", StartedAt: time.Now(), PID: init, Start: start,
		}))
		require.Contains(t, h.enforce(devices), "started by "+by, "a record counts for the process that it names")
	}

	// Without room, it isn't started again, and says why.
	h.Docker("stop", "--time", "0", "job")
	h.free("docker stop")
	h.Run("--name", "full", "-e", "GENV_GPUS=all", dockerImage, "sleep", "1000000")
	refused, err := h.Command("docker", "start", "job").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(refused), "Requested more devices (1) than currently available (0)")
}

// executesIn: what is executed in a container has no variables of genv, and is the container's.
func (h *judgedHost) executesIn(container string) {
	h.t.Helper()
	h.Docker("exec", "--detach", container, "sleep", "2000000")
	executed := h.pidIn(container, "sleep 2000000")
	require.NotContains(h.t, proctest.ReadText(h.t, fmt.Sprintf("/proc/%d/environ", executed)), "GENV_ENVIRONMENT_ID=")
	h.uses(executed, 0)
	require.NotContains(h.t, h.enforce("defaults: {env-devices: true, non-env-processes: true, warn: {cycles: 3}}\n"), "started by", "it keeps the rules")
	h.uses(executed, 2)
	require.Contains(h.t, h.enforce("defaults: {env-devices: true, warn: {cycles: 3}}\n"), "is using non-attached GPU(s) 2 (user bob, sleep 2000000, container job (lab/train:1), started by bob)")
}

// pidIn is the process of a container with a command line.
func (h *judgedHost) pidIn(container, line string) (pid snapshot.PID) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		for entry := range strings.Lines(h.Docker("top", container, "-eo", "pid,args")) {
			number, args, _ := strings.Cut(strings.TrimSpace(entry), " ")
			if strings.TrimSpace(args) == line {
				_, err := fmt.Sscan(number, &pid)
				return err == nil
			}
		}
		return false
	}, time.Minute, 20*time.Millisecond)
	return pid
}
