package host_test

import (
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

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// dockerHost is a GPU host with a real Docker. Its GPUs are simulated.
type dockerHost struct {
	*testfleet.Machine
	*dockerDaemon
	t *testing.T
}

// uids are the users of the host's environments.
var uids = map[string]snapshot.UID{"alice": 61001, "bob": 61002}

func newDockerHost(t *testing.T, flags ...string) *dockerHost {
	t.Helper()
	docker := startDocker(t, flags...)
	machine := proctest.Try(testfleet.NewMachine(t.TempDir(), gpus.H100s("docker", 8), sshd.Build(t, "remote/testfleet/gpus/nvidia-smi"))).OK(t)
	machine.Account = func(user string) (testfleet.Account, error) {
		return testfleet.Account{UID: uids[user], Home: "/"}, nil
	}
	t.Cleanup(func() { require.NoError(t, machine.Close()) })
	return &dockerHost{machine, docker, t}
}

// uses has nvidia-smi show a container's first process on a device.
func (h *dockerHost) uses(pid snapshot.PID, device int, mib int64) {
	h.t.Helper()
	host := proctest.Try(gpus.Read(h.GPUs)).OK(h.t)
	host.Apps = append(host.Apps, gpus.App{PID: int(pid), Device: device, UsedMiB: &mib, Name: "job"})
	require.NoError(h.t, host.Write(h.GPUs))
}

// container starts a container that uses a device, with a first process that ignores
// signals for which it has no handler.
func (h *dockerHost) container(device int, args ...string) (id string) {
	h.t.Helper()
	id = h.Run(append(args, dockerImage, "sleep", "1000000")...)
	h.uses(h.Init(id), device, 1000)
	return id
}

// genv runs genv as root on the host.
func (h *dockerHost) genv(args ...string) genvtest.Result {
	h.t.Helper()
	cmd := h.Command(genvtest.Program(h.t), args...)
	cmd.Env = h.Environ()
	return genvtest.Exec(h.t, cmd)
}

func (h *dockerHost) enforce(policy string) genvtest.Result {
	h.t.Helper()
	path := filepath.Join(h.t.TempDir(), "policy.yaml")
	require.NoError(h.t, os.WriteFile(path, []byte(policy), 0o600))
	return h.genv("enforce", "--interval", "0", "--policy", path)
}

func (h *dockerHost) activate(user string, devices ...snapshot.DeviceIndex) *testfleet.Env {
	h.t.Helper()
	env, err := h.Activate(testfleet.Environment{User: user, Devices: devices, Config: snapshot.EnvConfig{GPUMemory: snapshot.MustMemory("4g")}})
	require.NoError(h.t, err)
	return env
}

// record has the host's hook record who started a container.
func (h *dockerHost) record(id, user string, env *testfleet.Env) {
	h.t.Helper()
	uid, init := uids[user], h.Init(id)
	stat := proctest.Try(proc.FS{}.Stat(init)).OK(h.t)
	require.NoError(h.t, container.WriteRecord(filepath.Join(h.Root(), "run"), container.Record{
		ID: id, EID: env.EID, UID: &uid, Proof: container.ProofToken, Runtime: "docker", StartedAt: time.Now(), PID: init, Start: stat.Start,
	}))
}

const outsideOnly = "defaults: {non-env-processes: true, env-devices: true, env-memory: true, grace: 1s, kill: false}\n"

// TestContainerWithoutAnEnvironment: it is named, and stopped by its engine, since the
// kernel drops SIGTERM for its first process; neither needs `kill`.
func TestContainerWithoutAnEnvironment(t *testing.T) {
	t.Parallel()
	h := newDockerHost(t)
	id := h.container(0, "--name", "web", "--restart", "always", "--label", "team=vision")
	warned := h.enforce("defaults: {non-env-processes: true, warn: {cycles: 3}}\n")
	require.Contains(t, warned.Out+warned.Err, "container web (lab/train:1), started by an unknown user")
	require.True(t, h.Runs(id))

	shown := h.genv("gpus", "--format", "json").OK(t)
	var document struct{ GPUs []gpusProcess }
	require.NoError(t, json.Unmarshal([]byte(shown.Out), &document))
	require.Equal(t, []containerProcess{{Container: id, Image: dockerImage, ContainerName: "web", User: "root"}}, document.GPUs[0].Processes)
	require.Contains(t, h.genv("gpus", "--wide").Out+h.genv("gpus").Out, "web (lab/train:1)")

	left := h.enforce("exempt: {containers: [{name: 'w*', image: 'lab/*'}]}\n" + outsideOnly)
	require.True(t, h.Runs(id), "%s%s", left.Out, left.Err)
	left = h.enforce("exempt: {containers: [{label: team=vision}]}\n" + outsideOnly)
	require.True(t, h.Runs(id), "%s%s", left.Out, left.Err)
	left = h.enforce("defaults: {non-env-processes: true, containers: leave}\n")
	require.True(t, h.Runs(id), "%s%s", left.Out, left.Err)

	ended := h.enforce("exempt: {users: [root], uids: [0], containers: [{name: other}, {label: team=nlp}, {name: web, label: other=vision}]}\n" + outsideOnly)
	require.False(t, h.Runs(id), "%s%s", ended.Out, ended.Err)
	require.Contains(t, ended.Out+ended.Err, "container web (lab/train:1)")
	require.Contains(t, proctest.ReadText(t, h.AuditLog()), "its container was stopped: container web (lab/train:1)")
}

type gpusProcess struct{ Processes []containerProcess }

type containerProcess struct {
	User          string `json:"user"`
	Container     string `json:"container"`
	Image         string `json:"image"`
	ContainerName string `json:"container_name"`
	StartedBy     string `json:"started_by"`
}

// TestContainersOfEnvironments: those of the shim and of the hook stay, and one that carries another user's id, forges
// labels or runs as that user's uid costs the user nothing.
func TestContainersOfEnvironments(t *testing.T) {
	t.Parallel()
	h := newDockerHost(t)
	alice, bob := h.activate("alice", 0, 1), h.activate("bob", 3)
	shim := h.container(0, "--name", "shim", "--env", alice.Var())
	hook := h.container(1, "--name", "hook", "--env", alice.Var())
	h.record(hook, "alice", alice)
	own := proctest.Try(h.StartJob(testfleet.Job{User: "alice", Env: []string{alice.Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 1000}}})).OK(t)
	quiet := h.enforce(outsideOnly)
	require.True(t, h.Runs(shim) && h.Runs(hook) && own.Running(), "%s%s", quiet.Out, quiet.Err)
	require.NotContains(t, quiet.Out, "Terminating", quiet.Out)

	thief := h.Run("--name", "thief", "--env", alice.Var(), "--user", "61001", "--label", "genv.uid=61001", dockerImage, "sleep", "1000000")
	h.uses(h.Init(thief), 0, 3500) // alice's 4g are exceeded with it
	other := h.container(2, "--name", "other", "--env", alice.Var(), "--user", "61001")
	proved := h.container(3, "--name", "proved", "--env", bob.Var())
	h.record(proved, "alice", alice)
	r := h.enforce(outsideOnly + "exempt: {users: [alice], uids: [61001]}\n")
	require.False(t, h.Runs(other), "alice's uid in a container is not alice: %s%s", r.Out, r.Err)
	r = h.enforce(outsideOnly)
	require.False(t, h.Runs(thief), "%s%s", r.Out, r.Err)
	require.Contains(t, r.Out, "over its capacity of 4g (container thief (lab/train:1), started by an unknown user)", "alice isn't blamed for it: %s", r.Err)
	require.False(t, h.Runs(proved), "it is proved not to be bob's: %s%s", r.Out, r.Err)
	require.True(t, own.Running(), "alice's process stays")
	require.True(t, h.Runs(hook), "%s%s", r.Out, r.Err)
	r = h.enforce("defaults: {max-devices-per-user: 2}\n")
	require.NotContains(t, r.Out, "Detaching", "what others started counts for no cap of alice's")
}

// TestRootlessContainer: a real user namespace of bob's stands for a rootless container;
// its cgroup and name are constructed. It counts for bob.
func TestRootlessContainer(t *testing.T) {
	t.Parallel()
	h := newDockerHost(t)
	bob := h.activate("bob", 3)
	job := testfleet.Job{
		User: "bob", Uses: []testfleet.Use{{Device: 3, MiB: 10}}, Env: []string{bob.Var()},
		Command: []string{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "sleep", "1000000"},
	}
	if out, err := exec.Command("unshare", "--user", "true").CombinedOutput(); err != nil {
		t.Skipf("skipped, because users can't make user namespaces here: %s", out)
	}
	parent := proctest.Try(h.StartJob(job)).OK(t)
	var inner snapshot.PID
	require.Eventually(t, func() bool { inner = childOf(parent.PID); return inner != 0 }, time.Minute, 10*time.Millisecond)
	h.uses(inner, 3, 10)
	r := h.enforce(outsideOnly)
	require.True(t, parent.Running(), "%s%s", r.Out, r.Err)
	require.Contains(t, h.genv("gpus", "--format", "json").Out, `"started_by":"uid 61002"`)
}

// childOf is a child of a process that has become another program; 0 if there is none yet.
func childOf(pid snapshot.PID) snapshot.PID {
	out, _ := exec.Command("pgrep", "--exact", "--parent", fmt.Sprint(pid), "sleep").Output()
	for line := range strings.Lines(string(out)) {
		var child snapshot.PID
		if json.Unmarshal([]byte(line), &child) == nil {
			return child
		}
	}
	return 0
}

// TestHangingDocker: a dockerd that doesn't answer delays a snapshot for a moment.
func TestHangingDocker(t *testing.T) {
	t.Parallel()
	h := newDockerHost(t)
	id := h.container(0, "--name", "web")
	h.Signal(syscall.SIGSTOP)
	begun := time.Now()
	r := h.genv("gpus", "--format", "json")
	took := time.Since(begun)
	h.Signal(syscall.SIGCONT)
	require.Contains(t, r.Out, `"container":"`+id, r.Err)
	require.Less(t, took, 20*time.Second, "it waits for 250 ms at most")
	require.True(t, h.Runs(id))
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
		h.mustPerson(h.binary, "docker", "run", "-d", "--network", "none", "--name", name, "--gpus", "1", dockerImage, "sleep", "1000000")
	}
	folder := filepath.Join(h.dir, "root/container-users")
	notes := func() (ids []string) {
		found := proctest.Try(filepath.Glob(folder + "/*.json")).OK(t)
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

	last := grant.RestartNote{ID: strings.Repeat("f", 64), ProvedUser: grant.ProvedUser{UID: containerUser}, Runtime: "docker"} // the service looks at it after the others
	require.NoError(t, grant.RestartNotes{Dir: filepath.Join(h.dir, "root"), Now: time.Now}.Write(last, "never"))
	pid := h.servicePID()
	require.Positive(t, pid)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool { return !h.lives(snapshot.PID(pid)) }, time.Minute, time.Millisecond)
	serve := h.Command(h.binary, "host", "serve") // where Docker's socket is
	serve.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	proctest.Start(t, serve)
	require.Eventually(t, func() bool { return len(notes()) < 2 }, time.Minute, 20*time.Millisecond)
	require.Equal(t, []string{stopped}, notes())
}

// TestRootsLookRemovesOldRecords: without root's service too, and only of what has ended.
func TestRootsLookRemovesOldRecords(t *testing.T) {
	t.Parallel()
	h := newOwnHost(t)
	run := filepath.Join(h.dir, "root/run")
	self := proctest.Try(proc.FS{}.Stat(snapshot.PID(os.Getpid()))).OK(t)
	ended, lives := strings.Repeat("0", 64), strings.Repeat("1", 64)
	for id, start := range map[string]snapshot.StartTime{ended: self.Start + 1, lives: self.Start} {
		require.NoError(t, container.WriteRecord(run, container.Record{ID: id, PID: snapshot.PID(os.Getpid()), Start: start, StartedAt: time.Now()}))
	}
	remaining := func() []string {
		return proctest.Try(container.ListRecords(run)).OK(t)
	}
	h.does(4001, "gpus")
	require.Equal(t, []string{ended, lives}, remaining(), "a user's look removes nothing")
	text, _ := h.does(0, "gpus")
	require.Equal(t, []string{lives}, remaining(), text)
}

// bundle writes what an engine that leaves CDI to the runtime hands to it: a config.json with an annotation.
func (h *runtimeHost) bundle(devices string) (dir string) {
	h.t.Helper()
	dir = h.t.TempDir()
	bin := filepath.Join(dir, "rootfs/bin")
	require.NoError(h.t, os.MkdirAll(bin, 0o755))
	proctest.Output(h.t, h.Command("sh", "-c", `cp "$(command -v busybox)" `+bin+`/env && runc spec --bundle `+dir))
	path := filepath.Join(dir, "config.json")
	data := proctest.ReadFile(h.t, path)
	var config map[string]any
	require.NoError(h.t, json.Unmarshal(data, &config))
	config["annotations"] = map[string]string{"cdi.k8s.io/lab_gpus": devices}
	process, ok := config["process"].(map[string]any)
	require.True(h.t, ok)
	process["terminal"], process["args"] = false, []string{"/bin/env"}
	data = proctest.Try(json.Marshal(config)).OK(h.t)
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
	require.Contains(t, out, "There is no GPU 7")
	h.free("a device that doesn't exist")
}
