package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// sleeper starts a process that ends with the test.
func sleeper(t testing.TB, env ...string) snapshot.PID {
	t.Helper()
	pid := proctest.Sleeper(t, os.Geteuid(), env...)
	require.Eventually(t, func() bool { // execve(2) is done with it
		_, _, err := proc.FS{}.Environ(pid, "HOME")
		return err == nil
	}, 10*time.Second, time.Millisecond)
	return pid
}

// realMachine is this machine with state of its own, and a program in the place of
// nvidia-smi that lists the given processes, each with 100 MiB on GPU 0.
func realMachine(t testing.TB, pids ...snapshot.PID) (*local.Collector, *disk.Store) {
	t.Helper()
	dir := t.TempDir()
	body := "#!/bin/sh\ncase $1 in\n--query-gpu=*) echo '0, GPU-0, 81559, 100, 7, 31, 70.12, H100' ;;\n--query-compute-apps=*) :\n"
	for _, pid := range pids {
		body += fmt.Sprintf("echo 'GPU-0, %d, 100'\n", pid)
	}
	path := filepath.Join(dir, "nvidia-smi")
	require.NoError(t, proctest.WriteProgram(path, []byte(body+";;\n*) exit 2 ;;\nesac\n")))
	store := disk.New(filepath.Join(dir, "state"), disk.Config{})
	return &local.Collector{SMI: nvidiasmi.New(nvidiasmi.Exec{Path: path}, time.Minute), StateFiles: store, Now: time.Now}, store
}

func TestTheRealSources(t *testing.T) {
	member := sleeper(t, "HOME=/", "GENV_ENVIRONMENT_ID=2020")
	outsider := sleeper(t, "HOME=/")
	machine, store := realMachine(t, member, outsider)
	require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
		return b.Activate(state.Activation{EID: "2020", UID: snapshot.UID(os.Getuid()), Username: "somebody", PID: member, At: snapshot.DateOf(time.Now())})
	}))

	s := proctest.Try(machine.Snapshot(t.Context())).OK(t)
	require.Empty(t, s.Warnings)
	require.NotEmpty(t, s.BootID)
	require.Len(t, s.Devices, 1)
	require.Equal(t, snapshot.GPUUUID("GPU-0"), s.Devices[0].UUID)
	require.NotNil(t, s.Environment("2020"))
	require.False(t, s.Environment("2020").OwnerMismatch)
	claims := map[snapshot.PID]snapshot.EnvID{}
	for _, p := range s.Processes {
		claims[p.PID] = p.EID
		require.False(t, p.EnvUnknown)
		require.NotZero(t, p.Start)
		require.Equal(t, uid(snapshot.UID(os.Getuid())), p.UID)
		require.Equal(t, "sleep", p.Name)
	}
	require.Equal(t, map[snapshot.PID]snapshot.EnvID{member: "2020", outsider: ""}, claims)

	// The devices are in the state files now, and 1.4.3 can read all of it.
	files := proctest.Try(store.Read(t.Context())).OK(t)
	require.Len(t, files.Devices, 1)
	wire := proctest.Try(snapshot.EncodeSnapshot(s)).OK(t)
	decoded := proctest.Try(snapshot.DecodeSnapshot(wire)).OK(t)
	require.Len(t, decoded.Processes, 2)
}

func TestSnapshotsAtOnce(t *testing.T) {
	machine, _ := realMachine(t)
	machine.SMI, machine.DeviceListTTL = listed{[]snapshot.PID{sleeper(t, "HOME=/", "GENV_ENVIRONMENT_ID=2020")}}, time.Nanosecond
	var group sync.WaitGroup
	snapshots, errs := make([]*snapshot.Snapshot, 8), make([]error, 8)
	for i := range snapshots {
		group.Go(func() { snapshots[i], errs[i] = machine.Snapshot(t.Context()) })
	}
	group.Wait()
	for i, s := range snapshots {
		require.NoError(t, errs[i])
		require.Equal(t, snapshots[0].Processes, s.Processes)
	}
}

// BenchmarkSnapshot is the work beyond nvidia-smi: 12 processes, their /proc and the state files. "first" is a program
// that runs once (genv usage snapshot), "again" one that stays (genv usage serve).
func BenchmarkSnapshot(b *testing.B) {
	var pids []snapshot.PID
	for range 12 {
		pids = append(pids, sleeper(b, "HOME=/", "GENV_ENVIRONMENT_ID=2020"))
	}
	kept, store := realMachine(b)
	kept.SMI, kept.DeviceListTTL = listed{pids}, time.Hour
	for name, machine := range map[string]func() *local.Collector{
		"first": func() *local.Collector {
			return &local.Collector{SMI: kept.SMI, StateFiles: store, Now: kept.Now, Brief: true}
		},
		"again": func() *local.Collector { return kept },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				proctest.Try(machine().Snapshot(b.Context())).OK(b)
			}
		})
	}
}
