package host_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/dockerd"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// inside is a command in a container, with the environment of its first process.
func (h *judgedHost) inside(container, script string) *exec.Cmd {
	const withEnviron = `busybox xargs -0 sh -c 'exec busybox env "$@" sh -c "$SCRIPT"' sh </proc/1/environ`
	return h.Command("docker", "exec", "--env", "SCRIPT="+script, container, "sh", "-c", withEnviron)
}

// mounted starts a container of bob's on devices 1 and 2, with shims and locks. Its nvidia-smi
// shows what the files name.
func (h *judgedHost) mounted(flags ...string) {
	h.t.Helper()
	smi := sshd.Build(h.t, "remote/testfleet/gpus/nvidia-smi")
	h.uses(1, 0)
	some := gpus.Driver{Devices: []gpus.Device{h.driver.Devices[1], h.driver.Devices[2]}}
	for i := range some.Devices { // NVIDIA's runtime leaves the others out, and numbers these from 0
		some.Devices[i].Index, some.Devices[i].Bus = i, i+2
	}
	require.NoError(h.t, some.Write(filepath.Join(h.dir, "some.json")))
	out, ok := h.person(h.binary, "docker", "run", "-d", "--network", "none", "--name", "first", "--gpus", "1", dockerd.Image, "sleep", "1000000")
	require.True(h.t, ok, out)
	line := []string{
		h.binary, "docker", "run", "-d", "--network", "none", "--name", "job", "--gpus", "2", "--gpu-memory", "4g", "--mount-shims", "--mount-locks",
		"-v", smi + ":/driver/nvidia-smi:ro", "-v", h.dir + ":/lab:ro", "-e", "PATH=/driver:/bin",
	}
	out, ok = h.person(append(append(line, flags...), dockerd.Image, "sleep", "1000000")...)
	require.True(h.t, ok, out)
}

// TestWhatIsMountedIntoAContainer: the shims and the locks work in the container, and its root
// can't do more by them than read.
func TestWhatIsMountedIntoAContainer(t *testing.T) {
	h := newJudgedHost(t)
	run := filepath.Join(h.dir, "root/run")
	h.mounted("-v", run+":"+run) // as some monitoring does: root's socket is in it
	for _, seen := range []string{"some.json", "gpus.json"} {
		out, err := h.inside("job", "export GENV_SIM_GPUS=/lab/"+seen+"; nvidia-smi -L; nvidia-smi --query-gpu=index,uuid,memory.total --format=csv,noheader").CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-10)\nGPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-20)\n"+
			"1, GPU-10, 3814 MiB\n2, GPU-20, 3814 MiB\n", string(out), seen)
	}
	h.showsOnly()
	h.locksExclude()
	h.rootReadsOnly(run)
}

// showsOnly tries the commands of genv in the container.
func (h *judgedHost) showsOnly() {
	h.t.Helper()
	genv := func(command string) (string, error) {
		out, err := h.inside("job", "export GENV_SIM_GPUS=/lab/some.json; genv "+command+" 2>&1").Output()
		return string(out), err
	}
	for command, want := range map[string]string{
		"status": "Attached to GPUs at indices 1,2\n", "envs": "bob(4001)", "devices": "\n3 ", "config": "gpus: 2\n",
		"gpus": "this container doesn't have devices 0,3: whether they are in use is unknown\n",
	} {
		out, err := genv(command)
		require.NoError(h.t, err, "%s: %s", command, out)
		require.Contains(h.t, out, want, command)
		require.NotContains(h.t, out, "cleaned up", command)
	}
	for _, command := range []string{
		"activate", "deactivate", "attach", "attach --index 3", "detach", "run true", "docker run x", "config name x", "devices attach", "devices detach --index 1",
	} {
		out, err := genv(command)
		require.Error(h.t, err, command)
		require.Equal(h.t, "genv only shows what this container has, which it keeps until it ends: run this on the host itself\n", out, command)
	}
}

// locksExclude tries the locks from both sides.
func (h *judgedHost) locksExclude() {
	h.t.Helper()
	locks := filepath.Join(h.dir, "tmp/genv/devices")
	file, err := os.Open(filepath.Join(locks, "2.lock"))
	require.NoError(h.t, err, "the runtime has made it")
	defer file.Close()
	try := func() error { return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
	require.NoError(h.t, try())
	cmd := h.inside("job", "genv lock sh -c 'echo $$; exec sleep 1234567' 2>&1")
	out, err := cmd.StdoutPipe()
	require.NoError(h.t, err)
	require.NoError(h.t, cmd.Start())
	lines := bufio.NewReader(out)
	waiting, err := lines.ReadString('\n')
	require.NoError(h.t, err)
	require.Contains(h.t, waiting, "genv: waiting for "+file.Name())
	require.NoError(h.t, syscall.Flock(int(file.Fd()), syscall.LOCK_UN))
	locked, err := lines.ReadString('\n')
	require.NoError(h.t, err)
	require.NotContains(h.t, locked, "genv")
	require.ErrorIs(h.t, try(), syscall.EWOULDBLOCK, "the container has it")
	h.Docker("exec", "job", "busybox", "kill", strings.TrimSpace(locked))
	_ = cmd.Wait() // the status of a signal
	require.NoError(h.t, try(), "it ended with the command")
}

// rootReadsOnly tries as root of the container what its user can't do on the host.
func (h *judgedHost) rootReadsOnly(run string) {
	h.t.Helper()
	state, locks := filepath.Join(h.dir, "root/host"), filepath.Join(h.dir, "tmp/genv/devices")
	for _, attempt := range []string{
		"busybox cp /bin/busybox " + locks + "/su", "busybox chmod 4755 " + locks + "/1.lock", "busybox chown 4001 " + locks + "/1.lock",
		"echo x >" + locks + "/1.lock", "busybox rm " + locks + "/1.lock", "busybox mv " + locks + "/1.lock " + locks + "/7.lock",
		"echo x >" + state + "/envs.json", "busybox rm " + state + "/envs.json", "busybox touch " + state + "/new",
		"busybox mount -o remount,rw " + locks, "echo x >/opt/genv/bin/genv", "echo x >/opt/genv/shims/nvidia-smi", "busybox rm /opt/genv/bin/genv",
		"echo x >" + run + "/devices.json",
	} {
		out, err := h.inside("job", attempt).CombinedOutput()
		require.Error(h.t, err, "%s: %s", attempt, out)
	}
	entries, err := os.ReadDir(locks)
	require.NoError(h.t, err)
	require.Len(h.t, entries, 2, "those of its devices")

	eid := snapshot.EnvID(h.Docker("inspect", "--format", "{{slice .Id 0 12}}", "job"))
	for _, change := range []string{"genv attach --index 3", "genv detach --index 1"} {
		out, err := h.inside("job", "unset GENV_CONTAINER; "+change).CombinedOutput()
		require.Error(h.t, err, "%s: %s", change, out)
		require.Contains(h.t, string(out), "in a container, of which the uid proves no user")
	}
	out, err := h.Command("docker", "exec", "--user", fmt.Sprint(containerUser), "--env", "GENV_ENVIRONMENT_ID="+string(eid), "--env", "GENV_TMPDIR="+filepath.Dir(locks),
		"--env", "GENV_ROOT_DIR="+filepath.Dir(state), "job", "/opt/genv/bin/genv", "detach", "--index", "1").CombinedOutput()
	require.Error(h.t, err, "%s", out)
	require.Contains(h.t, string(out), "in a container, of which the uid proves no user", "a container chooses its uids")
	files := h.files()
	require.Equal(h.t, []snapshot.DeviceIndex{1, 2}, files.AttachedTo(eid))
}
