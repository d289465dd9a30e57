package host_test

import (
	"encoding/json"
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
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

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

	last := grant.RestartNote{ID: strings.Repeat("f", 64), Holder: grant.Holder{UID: containerUser}, Runtime: "docker"} // the service looks at it after the others
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

// bundle writes what an engine that leaves CDI to the runtime hands to it: a config.json with an annotation.
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
	require.Contains(t, out, "There is no GPU 7")
	h.free("a device that doesn't exist")
}
