package gpus_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot/hardware"
)

const (
	patience = 20 * time.Second
	tick     = time.Millisecond
)

func TestWriteAndRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gpus.json")
	h := lab()
	h.Apps = []gpus.App{{PID: 7, Start: 1 << 60, Device: 1, UsedMiB: mib(3), Name: "ä \"x\""}, {PID: 8, UUID: "MIG-x"}}
	for range 2 { // over the old one too
		require.NoError(t, h.Write(path))
		got, err := gpus.Read(path)
		require.NoError(t, err)
		require.Equal(t, h, got)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "a temporary file is left")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode())
	require.Error(t, h.Write(filepath.Join(dir, "nowhere", "gpus.json")))
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = gpus.Read(path)
	require.ErrorContains(t, err, path)
}

func TestTheProgramItself(t *testing.T) {
	dir := t.TempDir()
	program, file := filepath.Join(dir, "nvidia-smi"), filepath.Join(dir, "gpus.json")
	require.NoError(t, testfleet.InstallProgram("remote/testfleet/gpus/nvidia-smi", program))
	require.NoError(t, lab().Write(file))
	cmd := exec.Command(program, "--query-gpu=index", "--format=csv,noheader")
	cmd.Env = []string{gpus.EnvFile + "=" + file}
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, "0\n1\n2\n", string(out))
}

func TestHangLastsUntilItIsKilled(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "nvidia-smi")
	require.NoError(t, testfleet.InstallProgram("remote/testfleet/gpus/nvidia-smi", program))
	cmd := exec.Command(program, "-L")
	cmd.Env = []string{gpus.EnvFault + "=" + gpus.FaultHang}
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Fatalf("it did not hang: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	require.NoError(t, cmd.Process.Kill())
	require.ErrorContains(t, <-ended, "killed")
}

// mixed is a host with four devices, of which the minors are in another order than the bus.
func mixed() gpus.Driver {
	h := gpus.Driver{Devices: gpus.H100s("mixed", 4)}
	for i, minor := range []int{2, 3, 1, 0} {
		h.Devices[i].Minor = &minor
	}
	return h
}

func TestAGuardShowsOnlySomeDevices(t *testing.T) {
	h := mixed()
	h.Devices[3].MIG = []gpus.MIG{{Profile: "1g.10gb", UUID: "MIG-1"}}
	h.Apps = []gpus.App{{PID: 1, Device: 0}, {PID: 2, Device: 1}, {PID: 3, Device: 3}, {PID: 4, UUID: "MIG-1"}}
	require.Equal(t, h, h.SeenBy(1001), "no guard")
	h.Visible = map[int][]int{1001: {1, 3}}
	require.Equal(t, h, h.SeenBy(0), "root")
	require.Empty(t, h.SeenBy(1002).Devices)
	seen := h.SeenBy(1001)
	require.Len(t, seen.Devices, 2)
	for i, was := range []int{1, 3} {
		d := seen.Devices[i]
		require.Equal(t, i, d.Index)
		require.Equal(t, h.Devices[was].UUID, d.UUID)
		require.Equal(t, h.Devices[was].BusID(), d.BusID())
		require.Equal(t, h.Devices[was].MinorNumber(), d.MinorNumber())
	}
	require.Len(t, seen.Apps, 3)
	require.Equal(t, h.Devices[1].UUID, seen.Apps[0].UUID)
	require.Len(t, h.Apps, 4)
	require.Empty(t, h.Apps[0].UUID, "the host itself is as it was")
}

func TestTheDriversFolder(t *testing.T) {
	h, proc := mixed(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "driver/nvidia/gpus/0000:99:00.0"), 0o755))
	require.NoError(t, h.WriteProc(proc))
	list, err := hardware.FromDriver(proc)
	require.NoError(t, err)
	require.Len(t, list, 4)
	for i, d := range list {
		require.Equal(t, h.Devices[i].UUID, string(d.UUID))
		require.Equal(t, h.Devices[i].MinorNumber(), *d.Minor)
		require.True(t, hardware.SameAddress(h.Devices[i].BusID(), d.Address))
	}
}
