package nvidiasmi_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

func per(cent int) *int { return &cent }

func watts(w float64) *float64 { return &w }

func TestParseDevices(t *testing.T) {
	for name, want := range map[string][]nvidiasmi.GPU{
		"driver-470-devices.csv": {
			{Index: 0, UUID: "GPU-5a5c3f2e-0001-4c4b-9f1e-000000000000", Name: "Tesla V100-SXM2-16GB", TotalMemory: snapshot.MiB(16160), UsedMemory: snapshot.MiB(3), Utilization: per(0), Temperature: per(34), Power: watts(41.2)},
			{Index: 1, UUID: "GPU-5a5c3f2e-0001-4c4b-9f1e-000000000001", Name: "Tesla V100-SXM2-16GB", TotalMemory: snapshot.MiB(16160), UsedMemory: snapshot.MiB(15012), Utilization: per(98), Temperature: per(71), Power: watts(287.55)},
		},
		"driver-535-mig-devices.csv": { // the utilization of a device with instances is not reported
			{Index: 0, UUID: "GPU-5a5c3f2e-0002-4c4b-9f1e-000000000000", Name: "NVIDIA A100-SXM4-80GB", TotalMemory: snapshot.MiB(81920), UsedMemory: snapshot.MiB(87), Temperature: per(-1), Power: watts(52)},
			{Index: 1, UUID: "GPU-5a5c3f2e-0002-4c4b-9f1e-000000000001", Name: "NVIDIA A100-SXM4-80GB", TotalMemory: snapshot.MiB(81920), UsedMemory: snapshot.MiB(4), Utilization: per(0), Temperature: per(30), Power: watts(53.01)},
		},
		"driver-580-unified-devices.csv": { // shares the machine's memory: none of its own
			{Index: 0, UUID: "GPU-5a5c3f2e-0004-4c4b-9f1e-000000000000", Name: "NVIDIA GB10", Utilization: per(3), Temperature: per(45)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := nvidiasmi.ParseDevices(constructed(t, name))
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestValuesThatTheDriverDoesNotReportAreUnknown(t *testing.T) {
	for _, unknown := range []string{
		"[N/A]", "[Not Supported]", "[Insufficient Permissions]", "[Unknown Error]", "[Not Found]",
		"[GPU requires reset]", "[GPU is lost]", "N/A", "", "  [N/A]  ",
	} {
		devices, err := nvidiasmi.ParseDevices([]byte("0," + strings.Repeat(unknown+",", 6) + unknown))
		require.NoError(t, err, unknown)
		require.Equal(t, []nvidiasmi.GPU{{Index: 0}}, devices, unknown)
		require.False(t, devices[0].TotalMemory.Known())

		usage, err := nvidiasmi.ParseApps([]byte("GPU-1, 711, " + unknown))
		require.NoError(t, err, unknown)
		require.Equal(t, nvidiasmi.Usage{Apps: []nvidiasmi.App{{GPU: "GPU-1", PID: 711}}}, usage, unknown)
		require.False(t, usage.Apps[0].Memory.Known())
	}
}

// A broken sensor doesn't prevent enforcing the rules on the host.
func TestWhatNoDeviceCanHaveIsUnknown(t *testing.T) {
	for _, sensors := range []string{"2147483647, -1", "-274, inf", "1001, nan", "65535, 1000000.01"} {
		devices, err := nvidiasmi.ParseDevices([]byte("0, GPU-1, 16160, 3, 0, " + sensors + ", V100"))
		require.NoError(t, err, sensors)
		require.Nil(t, devices[0].Temperature, sensors)
		require.Nil(t, devices[0].Power, sensors)
	}
}

func TestParseDevicesRefuses(t *testing.T) {
	const good = "0, GPU-1, 16160, 3, 0, 31, 70.12, V100"
	for name, text := range map[string]string{
		"a header":            "index, uuid, memory.total [MiB], memory.used [MiB], utilization.gpu [%], temperature.gpu, power.draw [W], name\n" + good,
		"units":               "0, GPU-1, 16160 MiB, 3 MiB, 0 %, 31 C, 70.12 W, V100",
		"a cut line":          good + "\n1, GPU-2, 161",
		"an unknown index":    "[N/A], GPU-1, 16160, 3, 0, 31, 70.12, V100",
		"a negative index":    "-1, GPU-1, 16160, 3, 0, 31, 70.12, V100",
		"a huge index":        "1024, GPU-1, 16160, 3, 0, 31, 70.12, V100",
		"one index twice":     good + "\n" + good,
		"negative memory":     "0, GPU-1, -1, 3, 0, 31, 70.12, V100",
		"endless memory":      "0, GPU-1, 9223372036854775807, 3, 0, 31, 70.12, V100",
		"more than 100%":      "0, GPU-1, 16160, 3, 101, 31, 70.12, V100",
		"no power":            "0, GPU-1, 16160, 3, 0, 31, 70.12 W, V100",
		"no temperature":      "0, GPU-1, 16160, 3, 0, warm, 70.12, V100",
		"an escape in a name": "0, GPU-1, 16160, 3, 0, 31, 70.12, V\x1b[31m100",
		"an escape in an id":  "0, GPU-\x1b[31m1, 16160, 3, 0, 31, 70.12, V100",
		"a message":           "Failed to initialize NVML: Unknown Error",
		"HTML":                "<html><body>It works!</body></html>",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nvidiasmi.ParseDevices([]byte(text))
			require.ErrorIs(t, err, nvidiasmi.ErrGarbled)
			require.NotContains(t, err.Error(), "\x1b")
		})
	}
}

func FuzzParseDevices(f *testing.F) {
	for _, name := range []string{"driver-470-devices.csv", "driver-535-mig-devices.csv", "driver-580-unified-devices.csv"} {
		f.Add(constructed(f, name))
	}
	f.Add([]byte("0, GPU-1, 16160, 3, 0, 31, 70.12, a, b\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		devices, err := nvidiasmi.ParseDevices(data)
		if err != nil {
			require.ErrorIs(t, err, nvidiasmi.ErrGarbled)
			require.Empty(t, devices)
			return
		}
		for _, d := range devices {
			require.True(t, d.Index >= 0 && d.Index < 1024)
			require.GreaterOrEqual(t, d.TotalMemory.Bytes(), int64(0))
			require.NoError(t, snapshot.CheckText("name", d.Name))
		}
	})
}
