package enforcement_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestABorrowedNameMovesNoCap: whoever writes another's name beside his own
// environment is capped all the same, and the other loses nothing.
func TestABorrowedNameMovesNoCap(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	_, err := h.Activate(testfleet.Environment{User: "carol", Devices: []snapshot.DeviceIndex{0, 1}})
	require.NoError(t, err)
	bob, err := h.Activate(testfleet.Environment{User: "bob", Devices: []snapshot.DeviceIndex{2}})
	require.NoError(t, err)
	job, err := h.StartJob(testfleet.Job{User: "bob", Env: []string{bob.Var()}, Uses: []testfleet.Use{{Device: 2, MiB: 10}}})
	require.NoError(t, err)
	books := filepath.Join(h.State, "envs.json")
	text, err := os.ReadFile(books)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(books, bytes.Replace(text, []byte(`"carol"`), []byte(`"bob"`), 1), 0o666))

	r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "0", "--max-devices-for-user", "bob=1", "carol=1")
	require.Zero(t, r.Code, r.Err)
	require.Contains(t, r.Out, "User carol is using 2 devices on 1 hosts which is 1 more than the maximum allowed\n")
	require.NotContains(t, r.Out, "bob")
	require.True(t, job.Running())
}

// TestAStrangersClaimEndsNobodysJob: bob claims alice's environment, and would
// bring it over its capacity. He counts as outside, and alice's job goes on.
func TestAStrangersClaimEndsNobodysJob(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	alice, err := h.Activate(testfleet.Environment{
		User: "alice", Devices: []snapshot.DeviceIndex{0}, Config: snapshot.EnvConfig{GPUMemory: snapshot.MustMemory("4g")},
	})
	require.NoError(t, err)
	honest, err := h.StartJob(testfleet.Job{User: "alice", Env: []string{alice.Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 3000}}})
	require.NoError(t, err)
	stranger, err := h.StartJob(testfleet.Job{User: "bob", Env: []string{alice.Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 3300}}})
	require.NoError(t, err)
	r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "0")
	require.Zero(t, r.Code, r.Err)
	require.Contains(t, r.Err, fmt.Sprintf("process %d (user bob, sleep", stranger.PID))
	require.Contains(t, r.Err, "claims environment "+string(alice.EID))
	require.True(t, stranger.Running(), "he is outside, which no rule forbids")
	r = genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "0", "--non-env-processes")
	require.Zero(t, r.Code, r.Err)
	require.True(t, honest.Running(), r.Out)
	require.False(t, stranger.Running(), r.Out)
}

// TestAReportIsFinishedThoughNobodyListens: its reader is gone before the first
// line is written.
func TestAReportIsFinishedThoughNobodyListens(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	env, err := h.Activate(testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0}})
	require.NoError(t, err)
	job, err := h.StartJob(testfleet.Job{User: "alice", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	require.NoError(t, err)
	envs, err := snapshot.EncodeEnvironments([]snapshot.Environment{env.Environment})
	require.NoError(t, err)
	report := fmt.Sprintf(`{"terminate": {"processes": [{"pid": %d, "used_gpu_memory": [{"index": 0, "gpu_memory": "10mi"}], "eid": "%s"}]}, "detach": {"0": %s}}`,
		job.PID, env.EID, envs)
	session := exec.Command("ssh", "-F", f.SSHConfig(), "gpu-01", "sudo genv usage execute | true")
	session.Stdin = strings.NewReader(report)
	require.NoError(t, session.Run())
	select {
	case <-job.Ended():
	case <-time.After(30 * time.Second):
		require.Fail(t, "the device was detached, and its process goes on")
	}
}
