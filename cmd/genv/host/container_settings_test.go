package host_test

import (
	"bufio"
	"encoding/json"
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
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/proc"
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
	out, ok := h.person(h.binary, "docker", "run", "-d", "--network", "none", "--name", "first", "--gpus", "1", dockerImage, "sleep", "1000000")
	require.True(h.t, ok, out)
	line := []string{
		h.binary, "docker", "run", "-d", "--network", "none", "--name", "job", "--gpus", "2", "--gpu-memory", "4g", "--mount-shims", "--mount-locks",
		"-v", smi + ":/driver/nvidia-smi:ro", "-v", h.dir + ":/lab:ro", "-e", "PATH=/driver:/bin",
	}
	out, ok = h.person(append(append(line, flags...), dockerImage, "sleep", "1000000")...)
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
	require.Len(h.t, entries, 4, "those of the devices")

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

// TestAHookJoinsTheContainersUserAlone: where the container's environment has ended, and
// another user has one with its id, the container doesn't start in that.
func TestAHookJoinsTheContainersUserAlone(t *testing.T) {
	h := newGPUHost(t)
	h.serve()
	const eid = "abababababab"
	theirs := h.environmentOf(rootlessUser, eid, 0)
	init := h.environmentOf(containerUser, "mine", 1)
	start := func(environment string) (string, error) {
		order := fmt.Sprintf(`{"run": %q, "eid": %q, "uid": %d, "proof": "token", "gpus": true, "registered": true}`, h.dir+"/root/run", environment, containerUser)
		cmd := h.as(0, "container-hook", "start", order)
		cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"id": %q, "pid": %d}`, strings.Repeat("ab", 32), init))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := start(eid)
	require.Error(t, err, out)
	require.Contains(t, out, "environment "+eid+" has ended before the container started")
	files := h.files()
	require.Equal(t, []snapshot.PID{theirs}, files.Environment(eid).PIDs)
	require.Equal(t, []snapshot.PID{init}, files.Environment("mine").PIDs)
	out, err = start("mine")
	require.NoError(t, err, out)
}

// TestNotesOfRemovedContainers: root's service forgets for whom a container was started when
// Docker doesn't know it any more, and keeps that of one that is stopped.
func TestNotesOfRemovedContainers(t *testing.T) {
	h := newRuntimeHost(t)
	for _, name := range []string{"stopped", "removed"} {
		out, ok := h.person(h.binary, "docker", "run", "-d", "--network", "none", "--name", name, "--gpus", "1", dockerImage, "sleep", "1000000")
		require.True(t, ok, out)
	}
	folder := filepath.Join(h.dir, "root/container-users")
	notes := func() (ids []string) {
		found, err := filepath.Glob(folder + "/*.json")
		require.NoError(t, err)
		for _, path := range found {
			ids = append(ids, strings.TrimSuffix(filepath.Base(path), ".json"))
		}
		return ids
	}
	stopped := h.Docker("inspect", "--format", "{{.Id}}", "stopped")
	require.Len(t, notes(), 2)
	h.Docker("stop", "--time", "0", "stopped")
	h.Docker("rm", "--force", "removed")
	h.free("docker rm")

	last := grant.RestartNote{ID: strings.Repeat("f", 64), UID: containerUser, Runtime: "docker"} // the service looks at it after the others
	require.NoError(t, grant.RestartNotes{Dir: filepath.Join(h.dir, "root"), Now: time.Now}.Write(last, "never"))
	pid := h.servicePID()
	require.Positive(t, pid)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool { return !h.lives(snapshot.PID(pid)) }, time.Minute, time.Millisecond)
	serve := h.Command(h.binary, "host", "serve") // where Docker's socket is
	serve.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, serve.Start())
	t.Cleanup(func() { _ = serve.Process.Kill(); _ = serve.Wait() })
	require.Eventually(t, func() bool { return len(notes()) < 2 }, time.Minute, 20*time.Millisecond)
	require.Equal(t, []string{stopped}, notes())
}

// TestRootsLookRemovesOldRecords: without root's service too, and only of what has ended.
func TestRootsLookRemovesOldRecords(t *testing.T) {
	t.Parallel()
	h := newOwnHost(t)
	run := filepath.Join(h.dir, "root/run")
	self, err := proc.FS{}.Stat(snapshot.PID(os.Getpid()))
	require.NoError(t, err)
	ended, lives := strings.Repeat("0", 64), strings.Repeat("1", 64)
	for id, start := range map[string]snapshot.StartTime{ended: self.Start + 1, lives: self.Start} {
		require.NoError(t, container.WriteRecord(run, container.Record{ID: id, PID: snapshot.PID(os.Getpid()), Start: start, StartedAt: time.Now()}))
	}
	remaining := func() []string {
		ids, err := container.ListRecords(run)
		require.NoError(t, err)
		return ids
	}
	h.does(4001, "gpus")
	require.Equal(t, []string{ended, lives}, remaining(), "a user's look removes nothing")
	text, _ := h.does(0, "gpus")
	require.Equal(t, []string{lives}, remaining(), text)
}

// bundle writes what an engine that leaves CDI to the runtime hands to it: a config.json with
// an annotation.
func (h *runtimeHost) bundle(devices string) (dir string) {
	h.t.Helper()
	dir = h.t.TempDir()
	bin := filepath.Join(dir, "rootfs/bin")
	require.NoError(h.t, os.MkdirAll(bin, 0o755))
	out, err := h.Command("sh", "-c", `cp "$(command -v busybox)" `+bin+`/env && runc spec --bundle `+dir).CombinedOutput()
	require.NoError(h.t, err, "%s", out)
	path := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(path)
	require.NoError(h.t, err)
	var config map[string]any
	require.NoError(h.t, json.Unmarshal(data, &config))
	config["annotations"] = map[string]string{"cdi.k8s.io/lab_gpus": devices}
	process, ok := config["process"].(map[string]any)
	require.True(h.t, ok)
	process["terminal"], process["args"] = false, []string{"/bin/env"}
	data, err = json.Marshal(config)
	require.NoError(h.t, err)
	require.NoError(h.t, os.WriteFile(path, data, 0o600))
	return dir
}

// TestCDINamesInAnAnnotation: runc starts the container with the devices that have these names.
func TestCDINamesInAnAnnotation(t *testing.T) {
	h := newRuntimeHost(t)
	run := func(devices string) (string, error) {
		out, err := h.Command(h.binary, "container-runtime", "--", "run", "--bundle", h.bundle(devices), strings.Repeat("ab", 32)).CombinedOutput()
		return string(out), err
	}
	for devices, visible := range map[string]string{
		"nvidia.com/gpu=1":                        "GPU-10",
		"nvidia.com/gpu=GPU-20,nvidia.com/gpu=3":  "GPU-20,GPU-30",
		"vendor.com/net=eth0, nvidia.com/gpu=all": "GPU-00,GPU-10,GPU-20,GPU-30",
	} {
		out, err := run(devices)
		require.NoError(t, err, "%s: %s", devices, out)
		require.Contains(t, out, "\nNVIDIA_VISIBLE_DEVICES="+visible+"\n", devices)
		h.free(devices)
	}
	out, err := run("nvidia.com/gpu=7")
	require.Error(t, err, out)
	require.Contains(t, out, "There is no device 7")
	h.free("a device that doesn't exist")
}
