package host

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// TestTheParentDiesBeforeItIsWatched: the kernel tells of deaths after the question for them alone.
func TestTheParentDiesBeforeItIsWatched(t *testing.T) {
	require.ErrorContains(t, endWithParent(1<<22+7), "has ended")
}

// BenchmarkUnchangedSnapshot is what `genv usage serve` does when nothing
// happened on its host: four environments with two devices and two processes.
func BenchmarkUnchangedSnapshot(b *testing.B) {
	machine := proctest.Try(testfleet.NewMachine(b.TempDir(), gpus.H100s("bench", 8), sshd.Build(b, "remote/testfleet/gpus/nvidia-smi"))).OK(b)
	b.Cleanup(func() { require.NoError(b, machine.Close()) })
	for i := range snapshot.DeviceIndex(4) {
		env := proctest.Try(machine.Activate(testfleet.Environment{Devices: []snapshot.DeviceIndex{2 * i, 2*i + 1}})).OK(b)
		for k := range snapshot.DeviceIndex(2) {
			proctest.Try(machine.StartJob(testfleet.Job{Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 2*i + k, MiB: 100}}})).OK(b)
		}
	}
	b.Setenv(gpus.EnvFile, machine.GPUs)
	environ := map[string]string{"GENV_TMPDIR": machine.State, "PATH": machine.Bin()}
	p := &hostCommands{command.Program{In: os.Stdin, Getenv: func(key string) string { return environ[key] }, Now: time.Now}}
	host := p.openHost()
	host.Machine.DeviceListTTL, host.Machine.StateFiles = devicesFor, disk.NewCache(host.Store)
	s := &agent.Answers{Backend: host}
	ask := func(revision uint64) (answer agent.SnapshotAnswer) {
		body := proctest.Try(json.Marshal(agent.SnapshotRequest{Revision: revision})).OK(b)
		reply := proctest.Try(s.Handle(b.Context(), agent.Call{Frame: &frame.Frame{Name: agent.RequestSnapshot, Body: body}, Wanted: b.Context()})).OK(b)
		require.NoError(b, json.Unmarshal(reply, &answer))
		return answer
	}
	first := ask(0)
	b.ReportAllocs()
	for b.Loop() {
		require.Nil(b, ask(first.Revision).Snapshot)
	}
}

// crashVariable makes the test binary a `genv usage serve` that panics at the
// first request for a snapshot: it has no host.
const crashVariable = "GENV_TEST_CRASH"

// ServeAndCrash does so where the variable is set, for TestMain.
func ServeAndCrash() {
	if os.Getenv(crashVariable) == "" {
		return
	}
	server := &agent.Responder{Token: "t", Idle: time.Minute, Handler: (&agent.Answers{Backend: new(host)}).Handle, Greeting: agent.NewGreeting("")}
	_ = server.Serve(context.Background(), os.Stdin, os.Stdout) // it does not return
}

// What crashes on a host says so on stderr, in its first line, and exits with 2: nothing on the way catches a panic.
func TestServeThatPanics(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), crashVariable+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, out := proctest.StartPiped(t, cmd)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := proctest.Try(agent.OpenStream(ctx, out, in, "t")).OK(t)
	require.Error(t, proctest.Try(client.Call(ctx, agent.RequestSnapshot, []byte("{}"))).Err)
	_ = cmd.Wait() // its state says more
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
	first, _, _ := strings.Cut(stderr.String(), "\n")
	require.True(t, strings.HasPrefix(first, "panic: runtime error: "), stderr.String())
}
