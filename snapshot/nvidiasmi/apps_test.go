package nvidiasmi_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestParseApps(t *testing.T) {
	const gpu = "GPU-5a5c3f2e-0002-4c4b-9f1e-000000000000"
	for name, want := range map[string]nvidiasmi.Usage{
		"driver-470-apps.csv": {Apps: []nvidiasmi.App{
			{GPU: "GPU-5a5c3f2e-0001-4c4b-9f1e-000000000001", PID: 4021, Memory: snapshot.MiB(14999)},
		}},
		"driver-535-mig-apps.csv": {Apps: []nvidiasmi.App{
			{GPU: gpu, PID: 34965, Memory: snapshot.MiB(14195)}, // on an instance, which isn't named
			{GPU: gpu, PID: 46505},
		}},
		"driver-580-geforce-apps.csv": {
			Apps:      []nvidiasmi.App{{GPU: "GPU-5a5c3f2e-0005-4c4b-9f1e-000000000001", PID: 711}},
			NotListed: []snapshot.GPUUUID{"GPU-5a5c3f2e-0005-4c4b-9f1e-000000000000"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, want, proctest.Try(nvidiasmi.ParseApps(stdout(string(constructed(t, name))))).OK(t))
		})
	}
	require.Equal(t, nvidiasmi.Usage{}, proctest.Try(nvidiasmi.ParseApps(stdout("\n"))).OK(t), "no process computes")
}

// TestOddRowsOfApps: any process may be meant, on the GPU that the row names, or on any. An
// answer without a row is no answer.
func TestOddRowsOfApps(t *testing.T) {
	good := nvidiasmi.App{GPU: "GPU-1", PID: 711, Memory: snapshot.MiB(5)}
	for odd, want := range map[string]nvidiasmi.Usage{
		"GPU-2, 71":            {NotListed: []snapshot.GPUUUID{"GPU-2"}, Warnings: []string{"GPU-2, 71"}},
		"GPU-2, 0, 5":          {NotListed: []snapshot.GPUUUID{"GPU-2"}, Warnings: []string{"GPU-2, 0, 5"}},
		"GPU-2, -711, 5":       {NotListed: []snapshot.GPUUUID{"GPU-2"}, Warnings: []string{"GPU-2, -711, 5"}},
		"GPU-2, 2147483648, 5": {NotListed: []snapshot.GPUUUID{"GPU-2"}, Warnings: []string{"GPU-2, 2147483648, 5"}},
		"GPU-2, [N/A], [N/A]":  {NotListed: []snapshot.GPUUUID{"GPU-2"}},
		"GPU-2, [Insufficient Permissions], [Insufficient Permissions]": {
			NotListed: []snapshot.GPUUUID{"GPU-2"}, Warnings: []string{"GPU-2, [Insufficient Permissions], [Insufficient Permissions]"},
		},
		"[N/A], [N/A], 5":         {NotListed: []snapshot.GPUUUID{""}},
		"GPU-2, 712, 5 MiB":       {Apps: []nvidiasmi.App{{GPU: "GPU-2", PID: 712}}},
		"GPU-2, 712, -1":          {Apps: []nvidiasmi.App{{GPU: "GPU-2", PID: 712}}},
		"GPU 2, 712, 5":           {NotListed: []snapshot.GPUUUID{""}, Warnings: []string{"GPU 2, 712, 5"}},
		"Unable to \x1b reach it": {NotListed: []snapshot.GPUUUID{""}, Warnings: []string{`Unable to \x1b reach it`}},
		"WARNING: infoROM is corrupted at gpu 0000:03:00.0":                           {Warnings: []string{"WARNING: infoROM is corrupted at gpu 0000:03:00.0"}},
		"Unable to determine the device handle for GPU2: 0000:04:00.0: Unknown Error": {Lost: 1},
	} {
		want.Apps = append([]nvidiasmi.App{good}, want.Apps...)
		got := proctest.Try(nvidiasmi.ParseApps(stdout("GPU-1, 711, 5\n"+odd+"\n"))).OK(t, odd)
		require.Equal(t, want, got, odd)
	}
	for _, text := range []string{"GPU 2, 712, 5", "a message", "gpu_uuid [x], pid"} {
		require.ErrorIs(t, proctest.Try(nvidiasmi.ParseApps(stdout(text))).Err, nvidiasmi.ErrGarbled, text)
	}
}

// TestExitCodesOfApps: after other codes than those of warnings and lost GPUs, the list may be cut.
func TestExitCodesOfApps(t *testing.T) {
	for code, complete := range map[int]bool{0: true, 14: true, 15: true, 1: false, 255: false} {
		usage := proctest.Try(nvidiasmi.ParseApps(nvidiasmi.RunResult{Stdout: []byte("GPU-1, 711, 5\n"), ExitCode: code})).OK(t)
		require.Len(t, usage.Apps, 1)
		require.Equal(t, complete, len(usage.NotListed) == 0, code)
		_, err := nvidiasmi.ParseApps(nvidiasmi.RunResult{ExitCode: code})
		require.Equal(t, complete, err == nil, code)
	}
	lost := "Unable to determine the device handle for GPU 0000:09:00.0: Unknown Error\n"
	usage := proctest.Try(nvidiasmi.ParseApps(nvidiasmi.RunResult{Stdout: []byte(lost), ExitCode: 255})).OK(t)
	require.Equal(t, []snapshot.GPUUUID{""}, usage.NotListed, "an old driver lists nothing then")
}

func FuzzParseApps(f *testing.F) {
	for _, name := range []string{"driver-470-apps.csv", "driver-535-mig-apps.csv", "driver-580-geforce-apps.csv"} {
		f.Add(constructed(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		usage, err := nvidiasmi.ParseApps(stdout(string(data)))
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

// TestProcessesOfInstances: the MIG instances of a device count for it, each once.
func TestProcessesOfInstances(t *testing.T) {
	mib := snapshot.MiB
	usage := nvidiasmi.Usage{
		Apps: []nvidiasmi.App{
			{GPU: "GPU-0", PID: 7, Memory: mib(150), Instance: "MIG-1"},
			{GPU: "GPU-0", PID: 7, Memory: mib(150), Instance: "MIG-2"},
			{GPU: "GPU-1", PID: 7, Memory: mib(5)},
			{GPU: "GPU-0", PID: 9},
			{GPU: "GPU-gone", PID: 11},
		},
		NotListed: []snapshot.GPUUUID{"GPU-2"},
	}
	list, warnings := usage.Processes(map[snapshot.GPUUUID]snapshot.DeviceIndex{"GPU-0": 0, "GPU-1": 1})
	require.Equal(t, []snapshot.Process{
		{PID: 7, Usage: []snapshot.DeviceUsage{{Index: 0, Memory: mib(150)}, {Index: 1, Memory: mib(5)}}, Instances: []snapshot.GPUUUID{"MIG-1", "MIG-2"}},
		{PID: 9, Usage: []snapshot.DeviceUsage{{Index: 0}}},
	}, list)
	require.Equal(t, []string{
		"the driver does not report which processes use GPU-2: there may be any",
		"process 11 uses GPU-gone, which the driver does not list: it is attributed to no GPU",
	}, warnings)
}

// TestDevicesWithoutAListOfProcesses: they are not unused.
func TestDevicesWithoutAListOfProcesses(t *testing.T) {
	devices := []snapshot.Device{{Index: 0, UUID: "GPU-0"}, {Index: 1, UUID: "GPU-1"}, {Index: 2}}
	for unlisted, want := range map[string][]snapshot.DeviceIndex{"GPU-0": {0}, "GPU-9": {0, 1, 2}, "": {0, 1, 2}, "GPU-1 GPU-0": {0, 1}} {
		var usage nvidiasmi.Usage
		for gpu := range strings.SplitSeq(unlisted, " ") {
			usage.NotListed = append(usage.NotListed, snapshot.GPUUUID(gpu))
		}
		require.Equal(t, want, usage.Unreported(devices), unlisted)
	}
	require.Empty(t, new(nvidiasmi.Usage).Unreported(devices))
}
