package gpus_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot/hardware"
)

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
