package host

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// BenchmarkUnchangedSnapshot is what `genv usage serve` does when nothing
// happened on its host: four environments with two devices and two processes.
func BenchmarkUnchangedSnapshot(b *testing.B) {
	machine, err := testfleet.NewMachine(b.TempDir(), gpus.H100s("bench", 8), sshd.Build(b, "remote/testfleet/gpus/nvidia-smi"))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, machine.Close()) })
	for i := range snapshot.DeviceIndex(4) {
		env, err := machine.Activate(testfleet.Environment{Devices: []snapshot.DeviceIndex{2 * i, 2*i + 1}})
		require.NoError(b, err)
		for k := range snapshot.DeviceIndex(2) {
			_, err := machine.StartJob(testfleet.Job{Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 2*i + k, MiB: 100}}})
			require.NoError(b, err)
		}
	}
	b.Setenv(gpus.EnvFile, machine.GPUs)
	environ := map[string]string{"GENV_TMPDIR": machine.State, "PATH": machine.Bin()}
	p := &program{command.Program{In: os.Stdin, Getenv: func(key string) string { return environ[key] }, Now: time.Now}}
	host := p.openHost()
	host.Machine.DeviceListTTL, host.Machine.StateFiles = devicesFor, disk.NewCache(host.Store)
	s := &agent.Answers{Backend: served{host, &events{host: host}}}
	ask := func(revision uint64) (answer agent.SnapshotAnswer) {
		body, err := json.Marshal(agent.SnapshotRequest{Revision: revision})
		require.NoError(b, err)
		reply, err := s.Handle(b.Context(), agent.Request{Name: agent.RequestSnapshot, Body: body, Wanted: b.Context()})
		require.NoError(b, err)
		require.NoError(b, json.Unmarshal(reply, &answer))
		return answer
	}
	first := ask(0)
	b.ReportAllocs()
	for b.Loop() {
		require.Nil(b, ask(first.Revision).Snapshot)
	}
}
