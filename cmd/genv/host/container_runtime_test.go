package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// runtimeHost is a host with four GPUs, on which root owns the state, and a real Docker that
// was set up while it ran. NVIDIA's hook, without which dockerd refuses --gpus, does nothing.
type runtimeHost struct {
	*ownHost
	*dockerDaemon
	store *disk.Store
}

const containerUser = 4001

// newGPUHost is a host with four GPUs, without a service or a Docker.
func newGPUHost(t *testing.T) *runtimeHost {
	h := &runtimeHost{ownHost: newOwnHost(t)}
	var devices []hardware.BusDevice
	for i := range 4 {
		devices = append(devices, hardware.BusDevice{Index: snapshot.DeviceIndex(i), UUID: snapshot.GPUUUID(fmt.Sprintf("GPU-%d0", i)), Minor: new(3 - i), Address: fmt.Sprintf("0000:%02x:00.0", i+1), Bytes: new(int64(80e9))})
	}
	root := filepath.Join(h.dir, "root")
	require.NoError(t, hardware.Publish(filepath.Join(root, "run"), devices))
	h.store = disk.New(filepath.Join(h.dir, "tmp/genv"), disk.Config{RootDir: root, Keeps: (&container.RunningInits{Run: filepath.Join(root, "run")}).Keeps})
	proctest.Try(h.store.RegisterDevices(t.Context(), hardware.Devices(devices))).OK(t)
	t.Setenv("GENV_TMPDIR", filepath.Join(h.dir, "tmp/genv"))
	t.Setenv("GENV_ROOT_DIR", root)
	return h
}

func newRuntimeHost(t *testing.T) *runtimeHost {
	requireDocker(t)
	h := newGPUHost(t)
	h.serve()

	bin, config := filepath.Join(h.dir, "bin"), filepath.Join(h.dir, "daemon.json")
	require.NoError(t, os.Mkdir(bin, 0o755))
	require.NoError(t, proctest.WriteProgram(filepath.Join(bin, "nvidia-container-runtime-hook"), []byte("#!/bin/sh\n")))
	require.NoError(t, os.WriteFile(config, []byte(`{"debug": false}`), 0o644))
	t.Setenv("PATH", bin+":/usr/sbin:/usr/bin:/sbin:/bin")
	h.dockerDaemon = startDocker(t, "--config-file", config)
	setup := h.as(0, "host", "setup-docker")
	setup.Env = append(setup.Env, "PATH=/usr/sbin:/usr/bin")
	printed, err := setup.Output()
	require.NoError(t, err, "%s", printed)
	require.NoError(t, os.WriteFile(config, printed, 0o644))
	h.Signal(syscall.SIGHUP)
	require.Eventually(t, func() bool { return h.Docker("info", "--format", "{{.DefaultRuntime}}") == "genv" }, time.Minute, 50*time.Millisecond)
	require.NoError(t, h.Command("chmod", "666", "/run/docker.sock").Run())
	return h
}

// person runs a command of a user on the host, where docker is.
func (h *runtimeHost) person(args ...string) (out string, ok bool) {
	line := append([]string{"--reuid", fmt.Sprint(containerUser), "--regid", fmt.Sprint(containerUser), "--clear-groups", "env", "HOME=/nonexistent", "GENV_CONFIG_DIR=off"}, args...)
	text, err := h.Command("setpriv", line...).CombinedOutput()
	return string(text), err == nil
}

func (h *runtimeHost) mustPerson(args ...string) string {
	h.t.Helper()
	out, ok := h.person(args...)
	require.True(h.t, ok, out)
	return out
}

func (h *runtimeHost) files() state.Files {
	h.t.Helper()
	return proctest.Try(h.store.Read(h.t.Context())).OK(h.t)
}

// free waits until all devices are given back.
func (h *runtimeHost) free(why string) {
	h.t.Helper()
	require.Eventually(h.t, func() bool { return len(h.files().Environments) == 0 }, 30*time.Second, 50*time.Millisecond, why)
	files := h.files()
	for i := range files.Devices {
		require.Empty(h.t, files.Devices[i].Attachments, why)
	}
}

func (h *runtimeHost) refused(text string, args ...string) {
	h.t.Helper()
	out, err := h.Command("docker", append([]string{"run", "--rm", "--network", "none"}, args...)...).CombinedOutput()
	require.Error(h.t, err, "%s", out)
	require.Contains(h.t, string(out), text)
}

// overSubscribes asks for three devices while only two are free.
func (h *runtimeHost) overSubscribes() {
	h.t.Helper()
	const tooMany, three = "Requested more devices (3) than currently available (2)", "NVIDIA_VISIBLE_DEVICES=GPU-00,GPU-20,GPU-30"
	h.refused(tooMany, "-e", "GENV_GPUS=3", dockerImage, "env")
	require.Contains(h.t, h.Docker("run", "--rm", "--network", "none", "-e", "GENV_GPUS=3", "-e", "GENV_ALLOW_OVER_SUBSCRIPTION=1", dockerImage, "env"), three)

	out, ok := h.person(h.binary, "docker", "run", "--rm", "--network", "none", "--gpus", "3", dockerImage, "env")
	require.False(h.t, ok, out)
	require.Contains(h.t, out, tooMany)
	require.Contains(h.t, h.mustPerson(h.binary, "docker", "run", "--rm", "--network", "none", "--gpus", "3", "--over-subscribe", dockerImage, "env"), three)
}

// TestContainersOfTheRuntime: what containers of a real Docker get from genv's runtime, what
// they give back and when, and what they can't forge.
func TestContainersOfTheRuntime(t *testing.T) {
	h := newRuntimeHost(t)
	require.NotContains(t, h.Docker("run", "--rm", "--network", "none", "-e", "NVIDIA_VISIBLE_DEVICES=all", dockerImage, "env"), "GENV_", "it asks for no GPU")

	// An environment of its own, for the user whom the token proves.
	out := h.mustPerson(h.binary, "docker", "run", "-d", "--network", "none", "--name", "own", "--gpus", "2", "--gpu-memory", "4g", dockerImage, "sh", "-c", "env; echo printed; sleep 1000000")
	id := strings.TrimSpace(out)
	own := h.files().Environments
	require.Len(t, own, 1)
	require.EqualValues(t, id[:12], own[0].EID)
	require.EqualValues(t, containerUser, own[0].UID)
	require.Equal(t, []snapshot.PID{h.Init("own")}, own[0].PIDs)
	require.False(t, own[0].OwnerMismatch)
	var text string
	require.Eventually(t, func() bool { text = h.Docker("logs", "own"); return strings.Contains(text, "\nprinted") }, time.Minute, 20*time.Millisecond)
	for _, line := range []string{
		"GENV_ENVIRONMENT_ID=" + id[:12], "GENV_GPU_MEMORY=4g", "NVIDIA_VISIBLE_DEVICES=GPU-00,GPU-10", "CUDA_VISIBLE_DEVICES=GPU-00,GPU-10",
	} {
		require.Contains(t, text, line)
	}
	require.NotContains(t, text, "GENV_CONTAINER_TOKEN")
	r := proctest.Try(container.ReadRecord(filepath.Join(h.dir, "root/run"), id)).OK(t)
	require.EqualValues(t, containerUser, *r.UID)
	require.Equal(t, container.ProofToken, r.Proof)

	// Without a proof, whatever it claims: a spent token, another's environment.
	h.refused("Device 0 is not available", "-e", "GENV_ENVIRONMENT_ID="+id[:12], "--gpus", "device=0", dockerImage, "env")
	spent := h.Docker("inspect", "--format", "{{range .Config.Env}}{{println .}}{{end}}", "own")
	at := strings.Index(spent, "GENV_CONTAINER_TOKEN=")
	token, _, _ := strings.Cut(spent[at:], "\n")
	replay := proctest.Output(t, h.Command("docker", "run", "--rm", "--network", "none", "-e", token, "-e", "GENV_GPUS=1", dockerImage, "env"))
	require.Contains(t, replay, "counts for no user: not a valid request: the token was used before")
	h.overSubscribes()
	require.Len(t, h.files().Environments, 1, "the others have ended")
	h.refused("no such file", "-e", "GENV_GPUS=1", dockerImage, "/missing")
	require.Len(t, h.files().Environments, 1, "what couldn't be started has nothing")
	h.Docker("kill", "own")
	h.free("docker kill")
	require.ErrorIs(t, proctest.Try(container.ReadRecord(filepath.Join(h.dir, "root/run"), id)).Err, os.ErrNotExist)

	// In a shell with an environment.
	shims := filepath.Join(h.dir, "genv-shims/genv/shims")
	require.NoError(t, os.MkdirAll(shims, 0o755))
	require.NoError(t, os.Symlink(h.binary, filepath.Join(shims, "docker")))
	out = h.mustPerson(h.binary, "run", "--quiet", "--gpus", "2", "sh", "-c", "PATH="+shims+":$PATH; echo mine=$GENV_ENVIRONMENT_ID; docker run --rm --network none --gpus device=1 "+dockerImage+" env; docker run -d --name joined --network none --gpus all "+dockerImage+" sleep 1000000")
	_, rest, _ := strings.Cut(out, "mine=")
	eid, _, _ := strings.Cut(rest, "\n")
	require.Contains(t, out, "GENV_ENVIRONMENT_ID="+eid+"\n")
	require.Contains(t, out, "NVIDIA_VISIBLE_DEVICES=GPU-10\n")
	joined := h.files().Environments
	require.Len(t, joined, 1, "the container keeps it after the shell")
	require.EqualValues(t, eid, joined[0].EID)

	// SIGKILL of dockerd gives nothing back that is in use, and the end of the container does without it.
	init := h.Init("joined")
	h.Signal(syscall.SIGKILL)
	require.Len(t, h.files().Environments, 1)
	require.NoError(t, syscall.Kill(int(init), syscall.SIGKILL))
	h.free("SIGKILL of dockerd, and of the container")
	h.kill("") // what dockerd leaves behind when it is killed
}

// kill kills the processes with a name, or all with any, that dockerd has started, and itself.
func (h *runtimeHost) kill(name string) (killed int) {
	own := proctest.Try(os.Readlink("/proc/self/ns/mnt")).OK(h.t)
	entries := proctest.Try(filepath.Glob("/proc/[0-9]*/environ")).OK(h.t)
	for _, path := range entries {
		dir := filepath.Dir(path)
		if mayStall(dir) {
			continue
		}
		data, err := os.ReadFile(path)
		mount, mountErr := os.Readlink(filepath.Join(dir, "ns/mnt"))
		if err != nil || mountErr != nil || mount == own || !strings.Contains(string(data), "GENV_ROOT_DIR="+filepath.Join(h.dir, "root")+"\x00") {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil || name != "" && strings.TrimSpace(string(comm)) != name {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(filepath.Base(dir), &pid); err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// TestKilledPartsOfDocker: SIGKILL of any part of the engine, and of genv's runtime, gives
// nothing back that a container uses, and what no container uses is given back.
func TestKilledPartsOfDocker(t *testing.T) {
	h := newRuntimeHost(t)

	// The runtime, when it has attached devices and the container isn't created.
	bundle, runc := filepath.Join(h.dir, "bundle"), filepath.Join(h.dir, "runc")
	require.NoError(t, os.Mkdir(bundle, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "config.json"), []byte(`{"ociVersion": "1.0.2", "process": {"env": ["GENV_GPUS=2"]}}`), 0o600))
	require.NoError(t, proctest.WriteProgram(runc, []byte("#!/bin/sh\nexec sleep 1000000\n")))
	creating := h.as(0, "container-runtime", "--real", runc, "--", "create", "--bundle", bundle, strings.Repeat("ab", 32))
	proctest.Start(t, creating)
	require.Eventually(t, func() bool { return len(h.files().Environments) == 1 }, time.Minute, 20*time.Millisecond)
	require.NoError(t, creating.Process.Kill())
	_ = creating.Wait()
	h.free("SIGKILL of the runtime")

	// The hook at the end: what it doesn't give back is given back all the same.
	h.Run("--name", "unhooked", "-e", "GENV_GPUS=1", dockerImage, "sleep", "1000000")
	require.NoError(t, os.Rename(h.binary, h.binary+".away"))
	require.NoError(t, proctest.WriteProgram(h.binary, []byte("#!/bin/sh\ncase $1 in container-hook) kill -9 $$;; *) exec "+h.binary+".away \"$@\";; esac\n")))
	h.Docker("kill", "unhooked")
	h.free("SIGKILL of the hook")
	require.NoError(t, os.Rename(h.binary+".away", h.binary))

	h.killedAtTheStart()
	h.killedEngine()
}

// killedAtTheStart: a hook at the start that gets SIGKILL, before or after it has told of the
// container's init, keeps the container from starting, and it has nothing.
func (h *runtimeHost) killedAtTheStart() {
	h.t.Helper()
	killer, runc, config := filepath.Join(h.dir, "killer"), filepath.Join(h.dir, "hooked-runc"), filepath.Join(h.dir, "daemon.json")
	started := filepath.Join(h.dir, "hook-started")
	require.NoError(h.t, os.WriteFile(runc, fmt.Appendf(nil, `#!/bin/sh
for word; do [ "$before" != --bundle ] || bundle=$word; before=$word; done
[ -z "$bundle" ] || sed -i 's|"path":"%s","args":\["genv","container-hook","start"|"path":"%s","args":["genv","container-hook","start"|' "$bundle/config.json"
exec runc "$@"
`, h.binary, killer), 0o755))
	known := proctest.ReadFile(h.t, config)
	runtimes := fmt.Sprintf(`"runtimes": {"hooked": {"path": %q, "runtimeArgs": ["container-runtime", "--real=%s", "--"]},`, h.binary, runc)
	changed := strings.Replace(string(known), `"runtimes": {`, runtimes, 1)
	require.NotEqual(h.t, string(known), changed)
	require.NoError(h.t, os.WriteFile(config, []byte(changed), 0o644))
	h.Signal(syscall.SIGHUP)
	require.Eventually(h.t, func() bool { return strings.Contains(h.Docker("info", "--format", "{{json .Runtimes}}"), "hooked") }, time.Minute, 50*time.Millisecond)
	for _, before := range []string{"", h.binary + ` "$@" || exit; `} {
		require.NoError(h.t, proctest.WriteProgram(killer, []byte("#!/bin/sh\n"+before+"touch "+started+"; kill -9 $$\n")))
		out, err := h.Command("docker", "run", "--rm", "--network", "none", "--runtime", "hooked", "-e", "GENV_GPUS=1", dockerImage, "env").CombinedOutput()
		require.Error(h.t, err, "%s", out)
		require.NotContains(h.t, string(out), "NVIDIA_VISIBLE_DEVICES", "the program was not started")
		require.NoError(h.t, os.Remove(started), "%s", out)
		h.free("SIGKILL of the hook at the start " + before)
	}
}

// killedEngine: after SIGKILL of what watches a container, and of the engine, it keeps what it
// has for as long as its first process runs.
func (h *runtimeHost) killedEngine() {
	h.t.Helper()
	h.Run("--name", "unwatched", "-e", "GENV_GPUS=1", dockerImage, "sleep", "1000000")
	init := h.Init("unwatched")
	require.Positive(h.t, h.kill("containerd-shim"))
	if h.lives(init) { // containerd ends it, as soon as it knows
		_ = syscall.Kill(int(init), syscall.SIGKILL)
	}
	h.free("SIGKILL of the shim, and of the container")

	h.Run("--name", "survivor", "-e", "GENV_GPUS=1", dockerImage, "sleep", "1000000")
	init = h.Init("survivor")
	for _, part := range []string{"containerd", "dockerd", "containerd-shim"} {
		require.Positive(h.t, h.kill(part), part)
		require.Eventually(h.t, func() bool { return part == "containerd" || h.kill(part) == 0 && h.kill("containerd") == 0 }, time.Minute, 20*time.Millisecond, "dockerd starts it again")
		require.True(h.t, h.lives(init), "SIGKILL of %s doesn't end the container", part)
		h.keeps(init, part)
	}
	require.NoError(h.t, syscall.Kill(int(init), syscall.SIGKILL))
	h.free("SIGKILL of the engine, and of the container")
}

func (h *runtimeHost) lives(pid snapshot.PID) bool {
	stat, err := proc.FS{}.Stat(pid)
	return err == nil && !stat.Gone()
}

// keeps requires that nothing of a container is given back by a look that cleans up.
func (h *runtimeHost) keeps(init snapshot.PID, after string) {
	h.t.Helper()
	require.NoError(h.t, h.store.Update(h.t.Context(), func(*state.Files) error { return nil }))
	files := h.files()
	require.Len(h.t, files.Environments, 1, after)
	require.Equal(h.t, []snapshot.PID{init}, files.Environments[0].PIDs, after)
	require.Equal(h.t, []snapshot.DeviceIndex{0}, files.AttachedTo(files.Environments[0].EID), after)
}
