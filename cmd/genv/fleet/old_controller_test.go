package fleet_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// ssh runs what a controller of 1.4.3 runs on a host, by the system's own ssh.
func ssh(t *testing.T, f *sshd.Fleet, host, stdin string, words ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.Command("ssh", append([]string{"-F", f.SSHConfig(), host}, words...)...)
	cmd.Stdin = bytes.NewReader([]byte(stdin))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), errs.String())
	return out.String(), errs.String()
}

// keysOf lists the keys of an object as 1.4.3 would check them.
func keysOf(t *testing.T, data json.RawMessage) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &fields))
	return fields
}

func requireKeys(t *testing.T, data json.RawMessage, keys ...string) map[string]json.RawMessage {
	fields := keysOf(t, data)
	require.Len(t, fields, len(keys), string(data))
	for _, key := range keys {
		require.Contains(t, fields, key, string(data))
	}
	return fields
}

func first(t *testing.T, data json.RawMessage) json.RawMessage {
	var items []json.RawMessage
	require.NoError(t, json.Unmarshal(data, &items))
	require.NotEmpty(t, items)
	return items[0]
}

// TestAControllerOf143DrivesOurHosts: `ssh HOST sudo genv usage …`, exact sets of
// keys, an order in Python's spelling on stdin, and its lines on stdout.
func TestAControllerOf143DrivesOurHosts(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	env, err := h.Activate(testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0}})
	require.NoError(t, err)
	inside, err := h.StartJob(testfleet.Job{User: "alice", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	require.NoError(t, err)
	outside, err := h.StartJob(testfleet.Job{User: "bob", Uses: []testfleet.Use{{Device: 5, MiB: 640}}})
	require.NoError(t, err)
	_, err = h.StartJob(testfleet.Job{User: "bob", Bare: true, Uses: []testfleet.Use{{Device: 6, MiB: -1}}})
	require.NoError(t, err, "its memory is unknown, which 1.4.3 has no word for")

	out, warnings := ssh(t, f, "gpu-01", "", "sudo", "genv", "usage", "snapshot")
	whole := requireKeys(t, json.RawMessage(out), "processes", "envs", "devices")
	process := first(t, requireKeys(t, whole["processes"], "processes")["processes"])
	usage := first(t, requireKeys(t, process, "pid", "used_gpu_memory", "eid")["used_gpu_memory"])
	requireKeys(t, usage, "index", "gpu_memory")
	environment := first(t, requireKeys(t, whole["envs"], "envs")["envs"])
	fields := requireKeys(t, environment, "eid", "uid", "creation", "username", "config", "pids", "kernel_ids")
	requireKeys(t, fields["config"], "name", "gpu_memory", "gpus")
	device := first(t, requireKeys(t, whole["devices"], "devices")["devices"])
	attachment := first(t, requireKeys(t, device, "index", "total_memory", "attachments")["attachments"])
	requireKeys(t, attachment, "eid", "gpu_memory", "time")
	s, err := snapshot.DecodeSnapshot([]byte(out))
	require.NoError(t, err)
	require.Len(t, s.Processes, 2, "what is unknown is left out, and said on stderr")
	require.Contains(t, warnings, "is not known")

	input := fmt.Sprintf(`{"terminate": {"processes": [{"pid": %d, "used_gpu_memory": [{"index": 5, "gpu_memory": "640mi"}], "eid": null}]}, `+
		`"detach": {"0": {"envs": [%s]}}}`, outside.PID, environment)
	out, _ = ssh(t, f, "gpu-01", input, "sudo", "genv", "usage", "execute")
	require.Equal(t, fmt.Sprintf("Detaching environment %s of user alice from device 0\n"+
		"Terminating process %d from environment N/A that is running on GPU(s) 5\n", env.EID, outside.PID), out)
	<-outside.Ended()
	require.True(t, inside.Running())

	out, warnings = ssh(t, f, "gpu-01", input, "sudo", "genv", "usage", "execute")
	require.Empty(t, out, "an order that is sent again finds nothing left to do")
	require.Empty(t, warnings)
}

// TestOrdersThatDoNotMatch: not a single one of these processes may get a signal.
func TestOrdersThatDoNotMatch(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	env, err := h.Activate(testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0}})
	require.NoError(t, err)
	inside, err := h.StartJob(testfleet.Job{User: "alice", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	require.NoError(t, err)
	idle, err := h.StartJob(testfleet.Job{User: "bob"})
	require.NoError(t, err)
	for name, process := range map[string]string{
		"another device":      fmt.Sprintf(`{"pid": %d, "used_gpu_memory": [{"index": 3, "gpu_memory": "10mi"}], "eid": "%s"}`, inside.PID, env.EID),
		"another environment": fmt.Sprintf(`{"pid": %d, "used_gpu_memory": [{"index": 0, "gpu_memory": "10mi"}], "eid": null}`, inside.PID),
		"no device any more":  fmt.Sprintf(`{"pid": %d, "used_gpu_memory": [{"index": 0, "gpu_memory": "10mi"}], "eid": null}`, idle.PID),
		"a shell, not a job":  fmt.Sprintf(`{"pid": %d, "used_gpu_memory": [{"index": 0, "gpu_memory": "10mi"}], "eid": "%s"}`, env.Shell.PID, env.EID),
		"PID 1":               `{"pid": 1, "used_gpu_memory": [{"index": 0, "gpu_memory": "10mi"}], "eid": null}`,
		"a kernel thread":     `{"pid": 2, "used_gpu_memory": [{"index": 0, "gpu_memory": "10mi"}], "eid": null}`,
	} {
		t.Run(name, func(t *testing.T) {
			out, warnings := ssh(t, f, "gpu-01", `{"terminate": {"processes": [`+process+`]}, "detach": {}}`, "sudo", "genv", "usage", "execute")
			require.Empty(t, out)
			require.NotEmpty(t, warnings, "it is said why nothing was done")
		})
	}
	for _, p := range []*testfleet.Process{inside, idle, env.Shell} {
		require.True(t, p.Running())
	}
}
