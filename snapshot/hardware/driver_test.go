package hardware

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// information6200 is constructed with the white space of nv-procfs.c of NVIDIA's open-gpu-kernel-modules.
const information6200 = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 10\nGPU UUID: \t GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b\n" +
	"Video BIOS: \t 96.00.99.00.01\nBus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\n" +
	"Bus Location: \t 0000:62:00.0\nDevice Minor: \t 5\nGPU Firmware: \t 535.129.03\nGPU Excluded:\t No\n"

func TestParseInformation(t *testing.T) {
	h100 := BusDevice{Name: "NVIDIA H100 80GB HBM3", UUID: "GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b", Address: "0000:62:00.0", Minor: new(5)}
	for name, tt := range map[string]struct {
		text string
		want information
	}{
		"all":                       {information6200, information{BusDevice: h100}},
		"only a minor":              {"Device Minor: 0\n", information{BusDevice: BusDevice{Minor: new(0)}}},
		"no newline at the end":     {"Device Minor: 3", information{BusDevice: BusDevice{Minor: new(3)}}},
		"not initialized":           {"GPU UUID: GPU-????????-????-????-????-????????????\nDevice Minor: 3", information{BusDevice: BusDevice{Minor: new(3)}}},
		"excluded":                  {"Device Minor: 1\nGPU Excluded:\t Yes\n", information{BusDevice: BusDevice{Minor: new(1)}, excluded: true}},
		"excluded by older drivers": {"Device Minor: 1\nBlacklisted:\t Yes\n", information{BusDevice: BusDevice{Minor: new(1)}, excluded: true}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, proctest.Try(parseInformation([]byte(tt.text))).OK(t))
		})
	}
	for name, text := range map[string]string{
		"nothing": "", "no minor": "Model: X\n", "a minor below zero": "Device Minor: -1\n", "a minor that no node can have": "Device Minor: 1048576\n",
		"no number": "Device Minor: five\n", "two minors": "Device Minor: 1\nDevice Minor: 2\n", "two UUIDs": "GPU UUID: GPU-1\nGPU UUID: GPU-2\nDevice Minor: 1\n",
		"a control character": "Model: \x1b[2J\nDevice Minor: 1\n", "a bad address": "Bus Location: here\nDevice Minor: 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, proctest.Try(parseInformation([]byte(text))).Err, ErrGarbled)
		})
	}
}

func FuzzParseInformation(f *testing.F) {
	f.Add([]byte(information6200))
	f.Add([]byte("GPU UUID: GPU-????????-????\nDevice Minor: 7\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		info, err := parseInformation(data)
		if err != nil {
			require.ErrorIs(t, err, ErrGarbled)
			return
		}
		require.NotNil(t, info.Minor)
		p := published{devicesSchema, []BusDevice{info.BusDevice}}
		data = proctest.Try(json.Marshal(p)).OK(t)
		require.Equal(t, p.Devices, proctest.Try(Decode(data)).OK(t), "what is read can be published")
	})
}

// driver makes the driver's /proc folder: the content of `information` by address.
func driver(t *testing.T, files map[string]string) string {
	t.Helper()
	proc := t.TempDir()
	for address, text := range files {
		dir := filepath.Join(proc, driverFolder, address)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "information"), []byte(text), 0o644))
	}
	return proc
}

func TestFromDriver(t *testing.T) {
	proc := driver(t, map[string]string{
		"0001:01:00.0": "GPU UUID: GPU-d\nDevice Minor: 1\n", // in another domain, it comes last
		"0000:0a:00.0": "GPU UUID: GPU-b\nBus Location: 0000:0A:00.0\nDevice Minor: 0\n",
		"0000:09:00.0": "GPU UUID: GPU-a\nModel: A100\nDevice Minor: 3\n",
		"0000:c1:00.0": "GPU UUID: GPU-c\nDevice Minor: 2\n",
		"0000:0b:00.0": "GPU UUID: GPU-x\nDevice Minor: 4\nGPU Excluded: Yes\n",
	})
	got := proctest.Try(FromDriver(proc)).OK(t)
	require.Equal(t, []BusDevice{
		{Index: 0, UUID: "GPU-a", Minor: new(3), Address: "0000:09:00.0", Name: "A100"},
		{Index: 1, UUID: "GPU-b", Minor: new(0), Address: "0000:0a:00.0"},
		{Index: 2, UUID: "GPU-c", Minor: new(2), Address: "0000:c1:00.0"},
		{Index: 3, UUID: "GPU-d", Minor: new(1), Address: "0001:01:00.0"},
	}, got)
	require.Equal(t, 5, Count(proc))
}

func TestFromDriverRefuses(t *testing.T) {
	require.ErrorIs(t, proctest.Try(FromDriver(t.TempDir())).Err, fs.ErrNotExist, "no driver is not a machine without GPUs")
	for name, files := range map[string]map[string]string{
		"one minor twice":        {"0000:01:00.0": "Device Minor: 1\n", "0000:02:00.0": "Device Minor: 1\n"},
		"one UUID twice":         {"0000:01:00.0": "GPU UUID: GPU-a\nDevice Minor: 1\n", "0000:02:00.0": "GPU UUID: GPU-a\nDevice Minor: 2\n"},
		"a file about another":   {"0000:01:00.0": "Bus Location: 0000:02:00.0\nDevice Minor: 1\n"},
		"a folder without a GPU": {"here": "Device Minor: 1\n"},
		"a file without a minor": {"0000:01:00.0": "Model: A100\n"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, proctest.Try(FromDriver(driver(t, files))).Err, ErrGarbled)
		})
	}
	proc := driver(t, map[string]string{"0000:01:00.0": "Device Minor: 1\n"})
	require.NoError(t, os.Remove(filepath.Join(proc, driverFolder, "0000:01:00.0/information")))
	require.ErrorIs(t, proctest.Try(FromDriver(proc)).Err, fs.ErrNotExist)
}

func TestIdentifiedMatchesByUUIDOnly(t *testing.T) {
	found := []snapshot.Device{
		{Index: 0, UUID: "GPU-a", Name: "A100", TotalMemory: snapshot.MiB(40960), UsedMemory: snapshot.MiB(3)},
		{Index: 1, UUID: "GPU-b"},
		{Index: 2, UUID: "GPU-c"},
		{Index: 3},
	}
	got := Identified(found, []BusDevice{
		{Index: 0, UUID: "GPU-b", Minor: new(7), Address: "0000:01:00.0"},
		{Index: 1, UUID: "GPU-a", Minor: new(9), Address: "0000:02:00.0"},
		{Index: 2, Minor: new(8)},
	})
	require.Equal(t, []BusDevice{
		{Index: 0, UUID: "GPU-a", Name: "A100", Bytes: new(int64(40960 << 20)), Minor: new(9), Address: "0000:02:00.0"},
		{Index: 1, UUID: "GPU-b", Minor: new(7), Address: "0000:01:00.0"},
		{Index: 2, UUID: "GPU-c"},
		{Index: 3},
	}, got)
}

func TestUUIDs(t *testing.T) {
	list := []BusDevice{{Index: 0, UUID: "GPU-a"}, {Index: 5, UUID: "GPU-f"}, {Index: 6}}
	uuids, ok := UUIDs(list, []snapshot.DeviceIndex{5, 0})
	require.True(t, ok)
	require.Equal(t, []snapshot.GPUUUID{"GPU-f", "GPU-a"}, uuids)
	for _, unknown := range []snapshot.DeviceIndex{1, 6} {
		_, ok = UUIDs(list, []snapshot.DeviceIndex{0, unknown})
		require.False(t, ok)
	}
}
