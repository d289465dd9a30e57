package host

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// BenchmarkUnchangedSnapshot is what `genv usage serve` does when nothing
// happened on its host: four environments with two devices and two processes.
func BenchmarkUnchangedSnapshot(b *testing.B) {
	machine, err := testfleet.NewMachine(b.TempDir(), gpus.Devices("bench", 8, "NVIDIA H100 80GB HBM3", 81559), sshd.Build(b, "remote/testfleet/gpus/nvidia-smi"))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, machine.Close()) })
	var books state.Files
	for i := range snapshot.DeviceIndex(4) {
		shell, err := machine.Start(testfleet.JobOptions{Command: []string{"sleep", "infinity"}})
		require.NoError(b, err)
		eid := snapshot.EnvID(strconv.Itoa(int(shell.PID())))
		books.Environments = append(books.Environments, snapshot.Environment{
			EID: eid, UID: snapshot.UID(os.Getuid()), Creation: snapshot.DateOf(time.Now()), PIDs: []snapshot.PID{shell.PID()},
		})
		for k := range snapshot.DeviceIndex(2) {
			_, err := machine.Start(testfleet.JobOptions{Command: []string{"sleep", "infinity"}, Environment: eid, Uses: []testfleet.Use{{Device: 2*i + k, MiB: 100}}})
			require.NoError(b, err)
			books.Devices = append(books.Devices, snapshot.Device{
				Index: 2*i + k, TotalMemory: snapshot.MiB(81559), Attachments: []snapshot.Attachment{{EID: eid, Time: snapshot.DateOf(time.Now())}},
			})
		}
	}
	b.Setenv(gpus.EnvFile, machine.GPUs())
	environ := map[string]string{"GENV_TMPDIR": machine.StateDir(), "PATH": filepath.Dir(machine.GPUs()) + "/bin"}
	p := &program{command.Program{In: os.Stdin, Getenv: func(key string) string { return environ[key] }, Now: time.Now}}
	host, err := p.openHost()
	require.NoError(b, err)
	require.NoError(b, host.Store.Update(b.Context(), func(old *state.Files) error {
		*old = books
		return nil
	}))
	host.Machine.DevicesFor, host.Machine.Books = devicesFor, state.NewCache(host.Store)
	s := &served{host: host}
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
