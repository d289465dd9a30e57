package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// newFourGPUs is a machine with four devices, of which an environment has the last one. The
// minors are in another order than the bus. Its nvidia-smi shows a process of a user only the
// last one, as index 0, as the cgroup of a job or a guard does.
func newFourGPUs(t *testing.T) *machine {
	m := newMachine(t)
	m.Hardware.Run = filepath.Join(t.TempDir(), "run")
	m.files.Devices = nil
	for i, minor := range []int{2, 3, 1, 0} {
		m.write(fmt.Sprintf("driver/nvidia/gpus/0000:%02x:00.0/information", i+1), fmt.Sprintf("GPU UUID: GPU-%d\nDevice Minor: %d\n", i, minor))
		m.files.Devices = append(m.files.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(int64(100 * (i + 1)))})
	}
	m.files.Devices[3].Attachments = []snapshot.Attachment{{EID: "7"}}
	m.smi.devices = "0, GPU-3, 400, 10, 0, 31, 70.12, H100\n"
	m.smi.list = "GPU 0: H100 (UUID: GPU-3)\n  MIG 1g.10gb Device 0: (UUID: MIG-a)\n"
	return m
}

const allFour = "0, GPU-0, 100, 1, 0, 31, 70.12, H100\n1, GPU-1, 200, 1, 0, 31, 70.12, H100\n2, GPU-2, 300, 1, 0, 31, 70.12, H100\n3, GPU-3, 400, 1, 0, 31, 70.12, H100\n"

func (m *machine) guard(mode string) {
	m.t.Helper()
	require.NoError(m.t, os.MkdirAll(m.Hardware.Run, 0o755))
	require.NoError(m.t, os.WriteFile(filepath.Join(m.Hardware.Run, "guard.json"), fmt.Appendf(nil, `{"mode":%q}`, mode), 0o600))
}

// publish has root's genv take an inventory.
func (m *machine) publish() {
	m.t.Helper()
	was, seen := m.Hardware.Root, m.smi.devices
	m.Hardware.Root, m.smi.devices = true, allFour
	proctest.Try(m.ListDevices(m.t.Context())).OK(m.t)
	m.Hardware.Root, m.smi.devices = was, seen
	m.take()
}

// TestAllAreLost: nvidia-smi has a line about one GPU and nothing else, and the driver counts them.
func TestAllAreLost(t *testing.T) {
	const line = "Unable to determine the device handle for GPU 0000:03:00.0: Unknown Error"
	for _, root := range []bool{true, false} {
		m := newFourGPUs(t)
		before := slices.Clone(m.files.Devices)
		m.Hardware.Root, m.smi.apps, m.smi.devices = root, line, line
		list := gpus.Of(m.snapshot())
		require.Len(t, list, 4)
		for i, g := range list {
			require.Equal(t, gpus.Failed, g.State)
			require.Equal(t, fmt.Sprintf("GPU-%d", i), string(g.UUID))
			require.Contains(t, g.Problem, line)
		}
		require.Equal(t, before, m.files.Devices)
		require.Len(t, list[3].Attached, 1)
	}
	m := newMachine(t)
	m.smi.apps, m.smi.devices = line, line
	require.ErrorIs(t, proctest.Try(m.Snapshot(t.Context())).Err, nvidiasmi.ErrGPULost, "the driver doesn't count them")
}

func TestDevicesDoNotVanishWhileTheDriverHasThem(t *testing.T) {
	for name, prepare := range map[string]func(*machine){
		"a user in a cgroup":                  func(*machine) {},
		"a user on a guarded host":            func(m *machine) { m.guard("enforce"); m.publish() },
		"a user whom the guard shows nothing": func(m *machine) { m.guard("enforce"); m.publish(); m.smi.devices = "" },
		"a user before root looked":           func(m *machine) { m.guard("enforce") },
		"root, with a lost device":            func(m *machine) { m.Hardware.Root = true },
	} {
		t.Run(name, func(t *testing.T) {
			m := newFourGPUs(t)
			prepare(m)
			before := append([]snapshot.Device(nil), m.files.Devices...)
			_ = m.snapshot()
			found, err := m.ListDevices(t.Context())
			if err == nil { // as `genv attach` and `genv devices` do
				proctest.Try(m.files.RegisterDevices(t.Context(), found)).OK(t)
			}
			if name == "root, with a lost device" { // root's nvidia-smi has the last word on what it lists
				before[0].TotalMemory = snapshot.MiB(400)
			}
			require.Equal(t, before, m.files.Devices)
		})
	}
}

func TestDevicesThatTheDriverNoLongerHasVanish(t *testing.T) {
	m := newFourGPUs(t)
	require.NoError(t, os.RemoveAll(filepath.Join(m.Proc.Root, "driver/nvidia/gpus/0000:04:00.0")))
	m.files.Devices[3].Attachments = nil
	m.smi.devices = strings.Join(strings.SplitAfter(allFour, "\n")[:3], "")
	_ = m.snapshot()
	require.Len(t, m.files.Devices, 3)
}

func TestNothingIsRegisteredFromAPartialList(t *testing.T) {
	m := newFourGPUs(t)
	m.files.Devices = nil
	for _, want := range []error{local.ErrIncomplete, hardware.ErrNotPublished} {
		for _, read := range []func() error{
			func() error { _, err := m.ListDevices(t.Context()); return err },
			func() error { _, _, err := m.Devices(t.Context()); return err },
			func() error { _, err := m.Snapshot(t.Context()); return err },
		} {
			require.ErrorIs(t, read(), want)
		}
		require.Nil(t, m.files.Devices)
		m.guard("watch")
	}
	require.Nil(t, m.files.Devices, "the driver's folder doesn't say how much memory they have")
}

func TestAUserRegistersRootsInventory(t *testing.T) {
	m := newFourGPUs(t)
	m.guard("enforce")
	m.publish()
	m.files.Devices = nil
	devices, _, err := m.Devices(t.Context())
	require.NoError(t, err)
	require.Len(t, devices, 4)
	require.Equal(t, snapshot.MiB(100), devices[0].TotalMemory, "device 0 is root's, not the one that the user sees as 0")
	require.Equal(t, []string{"read", "discover"}, m.take(), "nvidia-smi isn't asked")
}

func TestWhatAGuardHidesIsUnknown(t *testing.T) {
	m := newFourGPUs(t)
	m.guard("enforce")
	m.publish()
	m.process(51, 1001, 100, "GENV_ENVIRONMENT_ID=7\x00")
	m.process(52, 1001, 100, "GENV_ENVIRONMENT_ID=7\x00")
	m.smi.apps = "GPU-3, 51, 5\nGPU-3, 52, 6\n"
	s := m.snapshot()
	require.Equal(t, []snapshot.DeviceIndex{0, 1, 2}, m.Hidden())
	require.Contains(t, s.Warnings, "a guard hides GPUs 0,1,2 from this user: whether they are in use is unknown")
	require.Equal(t, []snapshot.DeviceUsage{{Index: 3, Memory: snapshot.MiB(5)}}, s.Processes[0].Usage, "by UUID, not as index 0")
	states := []gpus.State{}
	for _, g := range gpus.Of(s) {
		states = append(states, g.State)
	}
	require.Equal(t, []gpus.State{gpus.Unknown, gpus.Unknown, gpus.Unknown, gpus.Idle}, states)
	require.Equal(t, snapshot.GPUUUID("GPU-3"), s.Devices[3].UUID)
	require.Equal(t, snapshot.MiB(10), s.Devices[3].UsedMemory)
	require.False(t, s.Devices[0].UsedMemory.Known())

	m.smi.err = &nvidiasmi.ExitError{Err: nvidiasmi.ErrNoDevices}
	processes, warnings, err := m.Processes(t.Context())
	require.NoError(t, err)
	require.Empty(t, processes)
	require.Equal(t, []string{"a guard hides GPUs 0,1,2,3 from this user: whether they are in use is unknown"}, warnings)
	m.smi.err = nvidiasmi.ErrHung
	_, err = m.Snapshot(t.Context())
	require.ErrorIs(t, err, nvidiasmi.ErrHung, "that is not the guard's doing")
	m.guard("off")
	m.smi.err = &nvidiasmi.ExitError{Err: nvidiasmi.ErrNoDevices}
	require.ErrorIs(t, proctest.Try(m.Snapshot(t.Context())).Err, nvidiasmi.ErrNoDevices)
}

func TestRootPublishesWhatItFinds(t *testing.T) {
	m := newFourGPUs(t)
	m.Hardware.Root, m.smi.devices = true, allFour
	_ = m.snapshot()
	list := proctest.Try(hardware.Read(m.Hardware.Run)).OK(t)
	require.Len(t, list, 4)
	for i, minor := range []int{2, 3, 1, 0} {
		require.Equal(t, minor, *list[i].Minor)
	}
	require.NoError(t, os.RemoveAll(m.Hardware.Run))
	require.NoError(t, os.WriteFile(m.Hardware.Run, nil, 0o600))
	_ = m.snapshot() // a folder that can't be written is no error
	require.Empty(t, m.files.Warnings)
}

// TestALookThatFoundNothingNew is published again only after some seconds: to write a file at each look costs a host
// more than the look.
func TestALookThatFoundNothingNew(t *testing.T) {
	m, now := newMachine(t), time.Now()
	m.Now = func() time.Time { return now }
	m.Hardware, m.smi.devices = hardware.Catalog{Run: filepath.Join(t.TempDir(), "run"), Root: true}, allFour
	age := func() time.Duration {
		now = now.Add(4 * time.Second)
		m.snapshot()
		last, known := m.LastLook()
		require.True(t, known)
		return now.Sub(last.Time)
	}
	require.Zero(t, age())
	require.Equal(t, 4*time.Second, age())
	m.smi.devices = strings.Replace(allFour, "31,", "32,", 1)
	require.Zero(t, age(), "a temperature changed")
	require.Equal(t, 4*time.Second, age())
	require.Equal(t, 8*time.Second, age())
	require.Zero(t, age())
}
