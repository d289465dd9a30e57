package nvidiasmi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

func TestParseApps(t *testing.T) {
	const first, second = "MIG-a0000000-0001-5fef-9c87-000000000001", "MIG-a0000000-0001-5fef-9c87-000000000002"
	for name, want := range map[string]nvidiasmi.Usage{
		"driver-470-apps.csv": {Apps: []nvidiasmi.App{
			{GPU: "GPU-5a5c3f2e-0001-4c4b-9f1e-000000000001", PID: 4021, Memory: snapshot.MiB(14999)},
		}},
		"driver-535-mig-apps.csv": {Apps: []nvidiasmi.App{
			{GPU: first, PID: 34965, Memory: snapshot.MiB(14195)},
			{GPU: second, PID: 34965, Memory: snapshot.MiB(149)},
			{GPU: second, PID: 46505},
		}},
		"driver-580-geforce-apps.csv": {
			Apps:      []nvidiasmi.App{{GPU: "GPU-5a5c3f2e-0005-4c4b-9f1e-000000000001", PID: 711}},
			NotListed: []snapshot.GPUUUID{"GPU-5a5c3f2e-0005-4c4b-9f1e-000000000000"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := nvidiasmi.ParseApps(constructed(t, name))
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
	usage, err := nvidiasmi.ParseApps([]byte("\n"))
	require.NoError(t, err)
	require.Equal(t, nvidiasmi.Usage{}, usage, "no process computes")
}

func TestParseAppsRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a header":       "gpu_uuid, pid, used_gpu_memory [MiB]\nGPU-1, 711, 5",
		"units":          "GPU-1, 711, 5 MiB",
		"a cut line":     "GPU-1, 711, 5\nGPU-1, 71",
		"PID 0":          "GPU-1, 0, 5",
		"a negative PID": "GPU-1, -711, 5",
		"a huge PID":     "GPU-1, 2147483648, 5",
		"a name for PID": "GPU-1, python, 5",
		"one more field": "GPU-1, 711, 5, python",
		"no id":          "GPU 1, 711, 5",
		"a message":      "Unable to reach the GPU",
	} {
		t.Run(name, func(t *testing.T) {
			usage, err := nvidiasmi.ParseApps([]byte(text))
			require.ErrorIs(t, err, nvidiasmi.ErrGarbled)
			require.Equal(t, nvidiasmi.Usage{}, usage)
		})
	}
}

func FuzzParseApps(f *testing.F) {
	for _, name := range []string{"driver-470-apps.csv", "driver-535-mig-apps.csv", "driver-580-geforce-apps.csv"} {
		f.Add(constructed(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		usage, err := nvidiasmi.ParseApps(data)
		if err != nil {
			require.ErrorIs(t, err, nvidiasmi.ErrGarbled)
			require.Empty(t, usage.Apps)
			return
		}
		for _, app := range usage.Apps {
			require.Positive(t, app.PID)
			require.GreaterOrEqual(t, app.Memory.Bytes(), int64(0))
		}
	})
}
