package nvidiasmi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestParseDevices(t *testing.T) {
	for name, want := range map[string][]snapshot.Device{
		"driver-470-devices.csv": {
			{Index: 0, UUID: "GPU-5a5c3f2e-0001-4c4b-9f1e-000000000000", Name: "Tesla V100-SXM2-16GB", TotalMemory: snapshot.MiB(16160), UsedMemory: snapshot.MiB(3), Utilization: new(0), Temperature: new(34), Power: new(41.2)},
			{Index: 1, UUID: "GPU-5a5c3f2e-0001-4c4b-9f1e-000000000001", Name: "Tesla V100-SXM2-16GB", TotalMemory: snapshot.MiB(16160), UsedMemory: snapshot.MiB(15012), Utilization: new(98), Temperature: new(71), Power: new(287.55)},
		},
		"driver-535-mig-devices.csv": { // the utilization of a device with instances is not reported
			{Index: 0, UUID: "GPU-5a5c3f2e-0002-4c4b-9f1e-000000000000", Name: "NVIDIA A100-SXM4-80GB", TotalMemory: snapshot.MiB(81920), UsedMemory: snapshot.MiB(87), Temperature: new(-1), Power: new(52.0)},
			{Index: 1, UUID: "GPU-5a5c3f2e-0002-4c4b-9f1e-000000000001", Name: "NVIDIA A100-SXM4-80GB", TotalMemory: snapshot.MiB(81920), UsedMemory: snapshot.MiB(4), Utilization: new(0), Temperature: new(30), Power: new(53.01)},
		},
		"driver-580-unified-devices.csv": { // shares the machine's memory: none of its own
			{Index: 0, UUID: "GPU-5a5c3f2e-0004-4c4b-9f1e-000000000000", Name: "NVIDIA GB10", Unified: true, Utilization: new(3), Temperature: new(45)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := proctest.Try(nvidiasmi.ParseDevices(stdout(string(constructed(t, name))))).OK(t)
			require.Equal(t, nvidiasmi.Listing{GPUs: described(want)}, got)
		})
	}
}

// described are GPUs of which only that is known.
func described(list []snapshot.Device) (gpus []nvidiasmi.GPU) {
	for _, d := range list {
		gpus = append(gpus, nvidiasmi.GPU{Device: d})
	}
	return gpus
}

// gpus are for each GPU its index, then "ok", "unified", "failed", "unknown" (with a problem), or "?" (its identity is
// in doubt), and the problem.
func gpus(l nvidiasmi.Listing) string {
	var list []string
	for _, g := range l.GPUs {
		state := "ok"
		switch {
		case g.Failed:
			state = "failed"
		case g.Unidentified && g.ProcessesUnknown && !g.Judged():
			state = "?"
		case g.Problem != "":
			state = "unknown"
		case g.Unified:
			state = "unified"
		}
		list = append(list, strings.TrimSpace(fmt.Sprintf("%d %s %s", g.Index, state, g.Problem)))
	}
	return strings.Join(list, ", ")
}

// row is a healthy one.
func row(index int) string {
	return fmt.Sprintf("%d, GPU-%d, 24576, 1, 0, 30, 15.00, NVIDIA GeForce RTX 3090, 550.163.01\n", index, index)
}

// What drivers print about a lost GPU: in place of its row or beside it, with its bus address or its index.
const (
	handle  = "Unable to determine the device handle for "
	noError = handle + "GPU0000:02:00.0: Unknown Error"
	later   = handle + "GPU0000:04:00.0: Unknown Error"
	gpu1    = handle + "GPU1: 0000:02:00.0: Unknown Error"
	gpu3    = handle + "gpu 3: Unknown Error"
	odd     = "[Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error], "
	allOdd  = odd + odd + "\n"
	infoROM = "WARNING: infoROM is corrupted at gpu 0000:03:00.0"
	denied  = "0, GPU-0, [Insufficient Permissions], [Insufficient Permissions], [N/A], 47, 60.00, A100"
	gap     = "failed nvidia-smi lists later GPUs, and not this one"
)

// TestEveryGPUByItself: what drivers print about sick GPUs, and what is known then.
func TestEveryGPUByItself(t *testing.T) {
	for name, tt := range map[string]struct {
		out, err string // of nvidia-smi
		code     int
		want     string
		warnings []string
	}{
		"a corrupted infoROM":    {out: row(0) + row(1) + infoROM + "\n", code: 14, want: "0 ok, 1 ok", warnings: []string{infoROM}},
		"lost, with a row":       {out: row(0) + noError + "\n" + allOdd + row(2), code: 15, want: "0 ok, 1 failed " + noError + ", 2 ok"},
		"lost, without a row":    {out: row(0) + noError + "\n" + row(2), want: "0 ok, 1 failed " + noError + ", 2 ok"},
		"lost, the last":         {out: row(0) + row(1) + noError, want: "0 ok, 1 ok, 2 failed " + noError},
		"lost, on stderr":        {out: row(0) + row(2), err: gpu1 + "\n", want: "0 ok, 1 failed " + gpu1 + ", 2 ok"},
		"lost, the index alone":  {out: row(0) + row(1), err: gpu3 + "\n", want: "0 ok, 1 ok, 2 " + gap + ", 3 failed " + gpu3},
		"lost, on both":          {out: row(0) + noError + "\n" + row(2), err: noError + "\n", want: "0 ok, 1 failed " + noError + ", 2 ok"},
		"lost, with a row of it": {out: row(0) + row(1), err: gpu1 + "\n", want: "0 ok, 1 failed " + gpu1},
		"two lost":               {out: row(1) + noError + "\n" + later + "\n" + row(3), want: "0 failed " + noError + ", 1 ok, 2 failed " + later + ", 3 ok"},
		"a gap":                  {out: row(0) + row(2), want: "0 ok, 1 " + gap + ", 2 ok"},
		"far gaps":               {out: row(0) + row(900), want: "0 ok, 1 " + gap + ", 2 " + gap + ", 900 ok"},
		"a row of errors alone": {
			out: row(0) + allOdd, want: "0 ok, 1 failed UUID, total memory, used memory, utilization, temperature, power, index: Unknown Error",
		},
		"one index twice":         {out: row(0) + row(1) + row(1), want: "0 ok, 1 ? nvidia-smi lists GPU 1 twice"},
		"a cut row":               {out: row(0) + "1, GPU-1, 245", want: `0 ok, 1 ? unexpected row: "1, GPU-1, 245"`},
		"memory is not for us":    {out: denied + "\n", want: "0 ok", warnings: []string{denied}},
		"an index that is beyond": {out: row(0) + "1024, GPU-1, 1, 1, 1, 1, 1, X\n", want: "0 ok", warnings: []string{"1024, GPU-1, 1, 1, 1, 1, 1, X"}},
		"one UUID twice": {
			out:  row(0) + "1, GPU-0, 24576, 1, 0, 30, 15.00, X\n" + row(2),
			want: "0 ? nvidia-smi lists the UUID GPU-0 twice, 1 ? nvidia-smi lists the UUID GPU-0 twice, 2 ok",
		},
		"other lines": {
			out: "hello, world\n" + row(0), err: "a message\n", code: 3,
			want: "0 ok", warnings: []string{"a message", "nvidia-smi exited with 3", "hello, world"},
		},
	} {
		requireGPUs(t, name, nvidiasmi.RunResult{Stdout: []byte(tt.out), Stderr: []byte(tt.err), ExitCode: tt.code}, tt.want, tt.warnings)
	}
}

// TestValuesOfAGPU: the values of GPU 0 after its UUID, and what is known then.
func TestValuesOfAGPU(t *testing.T) {
	for values, want := range map[string]string{
		"81559, 0, 0, [GPU is lost], 15.0, H100":     "failed temperature: GPU is lost",
		"[Unknown Error], 0, 0, 30, 15.0, H100":      "failed total memory: Unknown Error",
		"81559, [Unknown Error], 0, 30, 15.0, H100":  "failed used memory: Unknown Error",
		"81559, 0, 0, 30, 15.0, V\x1b[31m100":        "ok",
		"49140, 6, 808334905, 2147483647, -1, A6000": "ok",
		"49140, 6, 101, warm, nan, A6000":            "ok",
		"[N/A], [N/A], 37, 52, 11.00, GB10":          "unified",
		"-1, 9223372036854775807, 0, 30, 15.0, A100": "unknown total memory: -1; used memory: 9223372036854775807",
		"16160 MiB, 3 MiB, 0 %, 31, 70.12 W, V100":   "unknown total memory: 16160 MiB; used memory: 3 MiB",

		"49140, 6, [Unknown Error], 32, [Unknown Error], A6000":                            "unknown utilization, power: Unknown Error",
		"49140, 6, [N/A], [Not Supported], [Insufficient Permissions], A6000":              "ok",
		"81559, 0, [GPU requires reset], [GPU requires reset], [GPU requires reset], H100": "failed utilization, temperature, power: GPU requires reset",
	} {
		requireGPUs(t, values, stdout("0, GPU-0, "+values+"\n"), "0 "+want, nil)
	}
	for row, want := range map[string]string{
		"0, [Unknown Error], 81559, 0, 0, 30, 15.0, H100":            "0 failed UUID: Unknown Error",
		"0, GPU-\x1b[31m0, 81559, 0, 0, 30, 15.0, H100":              `0 unknown UUID: GPU-\x1b[31m0`,
		"0, ddae-1, [N/A], [N/A], [N/A], [N/A], [N/A], Orin (nvgpu)": "0 unified",
	} {
		requireGPUs(t, row, stdout(row+"\n"), want, nil)
	}
}

func requireGPUs(t *testing.T, name string, printed nvidiasmi.RunResult, want string, warnings []string) {
	t.Helper()
	got := proctest.Try(nvidiasmi.ParseDevices(printed)).OK(t, name)
	require.Equal(t, want, gpus(got), name)
	require.Equal(t, warnings, got.Warnings, name)
	for _, g := range got.GPUs {
		require.True(t, g.Utilization == nil || *g.Utilization <= 100, name)
		require.True(t, g.Temperature == nil || *g.Temperature < 100, name)
		require.False(t, strings.Contains(g.Name, "\x1b"), name)
	}
}

// TestDriver: a name may contain commas, and the version of the driver comes after it.
func TestDriver(t *testing.T) {
	for fields, want := range map[string][2]string{
		"H100, 550.163.01":   {"H100", "550.163.01"},
		"Orin, nvgpu, 540.4": {"Orin, nvgpu", "540.4"},
		"H100, [N/A]\r":      {"H100", ""},
		"H100":               {"H100", ""},
		"Orin, nvgpu":        {"Orin, nvgpu", ""},
		"H100, 5\x1b[2J":     {"", ""},
	} {
		got := proctest.Try(nvidiasmi.ParseDevices(stdout("0, GPU-0, 24576, 1, 0, 30, 15.00, " + fields + "\n"))).OK(t)
		require.Equal(t, want, [2]string{got.GPUs[0].Name, got.GPUs[0].Driver}, fields)
	}
}

func TestParseModes(t *testing.T) {
	const values = "81559, 0, 0, 30, 15.0, H100, "
	got, err := nvidiasmi.ParseDevices(stdout("0, GPU-0, "+values+"550.163.01, Enabled\n1, GPU-1, "+values+"550.163.01, Disabled\n"+
		"2, GPU-2, "+values+"[N/A], [N/A]\r\n3, GPU-3, "+values+"\x1b[2J, Maybe\nUnable to determine the device handle for GPU4: 0000:05:00.0: Unknown Error\n"), "persistence_mode")
	require.NoError(t, err)
	var persistence []*bool
	var drivers []string
	for _, g := range got.GPUs {
		persistence, drivers = append(persistence, g.Persistence), append(drivers, g.Driver)
	}
	require.Equal(t, []*bool{new(true), new(false), nil, nil, nil}, persistence)
	require.Equal(t, []string{"550.163.01", "550.163.01", "", "", ""}, drivers)
	require.True(t, got.GPUs[4].Failed)
	require.Equal(t, snapshot.GPUUUID("GPU-1"), got.GPUs[1].UUID)
}

// TestNoRow: an answer without any row of a GPU is an error.
func TestNoRow(t *testing.T) {
	for _, text := range []string{"<html><body>It works!</body></html>", allOdd, "index, uuid, memory.total [MiB]", "-1, GPU-1, 16160, 3, 0, 31, 70.12, V100"} {
		require.ErrorIs(t, proctest.Try(nvidiasmi.ParseDevices(stdout(text))).Err, nvidiasmi.ErrGarbled, text)
	}
}

func FuzzParseDevices(f *testing.F) {
	for _, name := range []string{"driver-470-devices.csv", "driver-535-mig-devices.csv", "driver-580-unified-devices.csv"} {
		f.Add(constructed(f, name))
	}
	f.Add([]byte("0, GPU-1, 16160, 3, 0, 31, 70.12, a, b\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		listing, err := nvidiasmi.ParseDevices(stdout(string(data)))
		if err != nil {
			require.Empty(t, listing.GPUs)
			return
		}
		seen := map[snapshot.DeviceIndex]bool{}
		for _, d := range listing.GPUs {
			require.False(t, seen[d.Index])
			seen[d.Index] = true
			require.True(t, d.Index >= 0 && d.Index < 1024)
			require.GreaterOrEqual(t, d.TotalMemory.Bytes(), int64(0))
			require.NoError(t, snapshot.CheckText("name", d.Name))
		}
	})
}

func TestParseList(t *testing.T) {
	for name, want := range map[string][]snapshot.Device{
		"driver-470-list.txt": {{Index: 0, UUID: "GPU-5a5c3f2e-0001-4c4b-9f1e-000000000000"}, {Index: 1, UUID: "GPU-5a5c3f2e-0001-4c4b-9f1e-000000000001"}},
		"driver-535-mig-list.txt": {
			{Index: 0, UUID: "GPU-5a5c3f2e-0002-4c4b-9f1e-000000000000", Instances: []snapshot.Instance{
				{UUID: "MIG-a0000000-0001-5fef-9c87-000000000001", Profile: "1g.10gb"},
				{UUID: "MIG-a0000000-0001-5fef-9c87-000000000002", Profile: "1g.10gb+me"},
			}},
			{Index: 1, UUID: "GPU-5a5c3f2e-0002-4c4b-9f1e-000000000001"},
		},
		"driver-450-mig-list.txt": {
			{Index: 0, UUID: "GPU-5a5c3f2e-0003-4c4b-9f1e-000000000000", Instances: []snapshot.Instance{
				{UUID: "MIG-GPU-5a5c3f2e-0003-4c4b-9f1e-000000000000/1/0", Profile: "3g.20gb"},
				{UUID: "MIG-GPU-5a5c3f2e-0003-4c4b-9f1e-000000000000/2/0", Profile: "3g.20gb"},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, want, proctest.Try(nvidiasmi.ParseList(stdout(string(constructed(t, name))))).OK(t))
		})
	}
}

func TestParseListIgnoresOtherLines(t *testing.T) {
	for text, want := range map[string][]snapshot.Device{
		"GPU 0: X (UUID: GPU-1)\n  (No MIG devices)\n  MIG 1g.5gb Device 0: (UUID: MIG-1)\n  MIG \x1b Device 1: (UUID: MIG-2)\n":                                                                                               {{UUID: "GPU-1", Instances: []snapshot.Instance{{UUID: "MIG-1", Profile: "1g.5gb"}, {UUID: "MIG-2"}}}},
		"GPU 0: X (UUID: GPU-1)\nUnable to determine the device handle for gpu 0000:02:00.0: GPU is lost.\n  MIG 1g.5gb Device 0: (UUID: MIG-1)\nGPU 1: X (UU\n  MIG 1g.5gb Device 0: (UUID: MIG-2)\nGPU 2: X (UUID: GPU-3)\n": {{UUID: "GPU-1", Instances: []snapshot.Instance{{UUID: "MIG-1", Profile: "1g.5gb"}}}, {Index: 2, UUID: "GPU-3"}},
	} {
		require.Equal(t, want, proctest.Try(nvidiasmi.ParseList(stdout(text))).OK(t))
	}
}

func TestParseListRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                      "",
		"an instance without a device": "  MIG 1g.5gb Device 0: (UUID: MIG-1)\n",
		"a message":                    "Something is wrong with GPU 1\n",
		"a huge index":                 "GPU 1024: X (UUID: GPU-1)\n",
		"a negative index":             "GPU -1: X (UUID: GPU-1)\n",
		"an empty id":                  "GPU 0: X (UUID: )\n",
		"CSV":                          "0, GPU-1",
		"an escape in an id":           "GPU 0: X (UUID: GPU-\x1b1)\n",
	} {
		require.ErrorIs(t, proctest.Try(nvidiasmi.ParseList(stdout(text))).Err, nvidiasmi.ErrGarbled, name)
	}
}

func FuzzParseList(f *testing.F) {
	for _, name := range []string{"driver-470-list.txt", "driver-535-mig-list.txt", "driver-450-mig-list.txt"} {
		f.Add(constructed(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		devices, err := nvidiasmi.ParseList(stdout(string(data)))
		if err != nil {
			require.Empty(t, devices)
			return
		}
		require.NotEmpty(t, devices)
		for _, d := range devices {
			require.NotEmpty(t, d.UUID)
		}
	})
}

func TestFailure(t *testing.T) {
	for name, row := range map[string]struct {
		stdout, stderr string
		code           int
		want           error
	}{
		"version mismatch":   {"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n", "", 18, nvidiasmi.ErrVersionMismatch},
		"no driver":          {"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n", "", 9, nvidiasmi.ErrNoDriver},
		"no supported GPU":   {"Failed to initialize NVML: No supported GPUs were found\n", "", 255, nvidiasmi.ErrNoDevices},
		"no devices":         {"No devices were found\n", "", 6, nvidiasmi.ErrNoDevices},
		"no devices, code 0": {"No devices were found\n", "", 0, nvidiasmi.ErrNoDevices},
		"after a warning":    {"WARNING: something\nFailed to initialize NVML: Unknown Error\n", "", 255, nvidiasmi.ErrFailed},
		"a message":          {"Something is wrong\n", "", 0, nvidiasmi.ErrGarbled},
		"GPU lost":           {"Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost. Reboot the system to recover this GPU\n", "", 15, nvidiasmi.ErrGPULost},
		"on stderr":          {"", "Failed to initialize NVML: Driver Not Loaded\n", 9, nvidiasmi.ErrNoDriver},
		"not allowed":        {"Failed to initialize NVML: Insufficient Permissions\n", "", 4, nvidiasmi.ErrPermission},
		"code alone":         {"", "", 15, nvidiasmi.ErrGPULost},
		"who knows":          {"Segmentation fault\n", "", 139, nvidiasmi.ErrFailed},
		"a signal":           {"", "", -1, nvidiasmi.ErrFailed},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nvidiasmi.ParseDevices(nvidiasmi.RunResult{Stdout: []byte(row.stdout), Stderr: []byte(row.stderr), ExitCode: row.code})
			require.ErrorIs(t, err, row.want)
			var failed *nvidiasmi.ExitError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, row.code, failed.ExitCode)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestErrorTextsAreEscaped(t *testing.T) {
	_, err := nvidiasmi.ParseDevices(nvidiasmi.RunResult{Stdout: []byte("\x1b]0;owned\x07"), ExitCode: 1})
	require.ErrorIs(t, err, nvidiasmi.ErrFailed)
	require.NotContains(t, err.Error(), "\x1b")
}
