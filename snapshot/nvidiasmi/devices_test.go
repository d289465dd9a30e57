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

// gpus are rows of a table: for each GPU its index, then "ok", "unified", "failed", "unknown"
// (with a problem), or "?" (its identity is in doubt), and the problem.
func gpus(l nvidiasmi.Listing) (rows []string) {
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
		rows = append(rows, strings.TrimSpace(fmt.Sprintf("%d %s %s", g.Index, state, g.Problem)))
	}
	return rows
}

// row is a healthy one.
func row(index int) string {
	return fmt.Sprintf("%d, GPU-%d, 24576, 1, 0, 30, 15.00, NVIDIA GeForce RTX 3090, 550.163.01\n", index, index)
}

const (
	handle  = "Unable to determine the device handle for "
	allOdd  = "[Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error]\n"
	noError = handle + "GPU0000:02:00.0: Unknown Error"
)

// TestEveryGPUByItself: what drivers print about sick GPUs, and what is known then.
func TestEveryGPUByItself(t *testing.T) {
	for name, tt := range map[string]struct {
		stdout, stderr string
		code           int
		want           []string
		warnings       []string
	}{
		"a corrupted infoROM": {
			row(0) + row(1) + "WARNING: infoROM is corrupted at gpu 0000:03:00.0\n", "", 14,
			[]string{"0 ok", "1 ok"},
			[]string{"WARNING: infoROM is corrupted at gpu 0000:03:00.0"},
		},
		"lost, with a row":       {row(0) + noError + "\n" + allOdd + row(2), "", 15, []string{"0 ok", "1 failed " + noError, "2 ok"}, nil},
		"lost, without a row":    {row(0) + noError + "\n" + row(2), "", 0, []string{"0 ok", "1 failed " + noError, "2 ok"}, nil},
		"lost, the last":         {row(0) + row(1) + noError, "", 0, []string{"0 ok", "1 ok", "2 failed " + noError}, nil},
		"lost, on stderr":        {row(0) + row(2), handle + "GPU1: 0000:02:00.0: Unknown Error\n", 0, []string{"0 ok", "1 failed " + handle + "GPU1: 0000:02:00.0: Unknown Error", "2 ok"}, nil},
		"lost, the index alone":  {row(0) + row(1), handle + "gpu 3: Unknown Error\n", 0, []string{"0 ok", "1 ok", "2 failed nvidia-smi lists later GPUs, and not this one", "3 failed " + handle + "gpu 3: Unknown Error"}, nil},
		"lost, on both":          {row(0) + noError + "\n" + row(2), noError + "\n", 0, []string{"0 ok", "1 failed " + noError, "2 ok"}, nil},
		"lost, with a row of it": {row(0) + row(1), handle + "GPU1: 0000:02:00.0: Unknown Error\n", 0, []string{"0 ok", "1 failed " + handle + "GPU1: 0000:02:00.0: Unknown Error"}, nil},
		"two lost":               {row(1) + noError + "\n" + handle + "GPU0000:04:00.0: Unknown Error\n" + row(3), "", 0, []string{"0 failed " + noError, "1 ok", "2 failed " + handle + "GPU0000:04:00.0: Unknown Error", "3 ok"}, nil},
		"a row of errors alone":  {row(0) + allOdd, "", 0, []string{"0 ok", "1 failed UUID, total memory, used memory, utilization, temperature, power, index: Unknown Error"}, nil},
		"a gap":                  {row(0) + row(2), "", 0, []string{"0 ok", "1 failed nvidia-smi lists later GPUs, and not this one", "2 ok"}, nil},
		"reset":                  {"0, GPU-0, 81559, 0, [GPU requires reset], [GPU requires reset], [GPU requires reset], H100\n" + row(1), "", 0, []string{"0 failed utilization, temperature, power: GPU requires reset", "1 ok"}, nil},
		"off the bus":            {"0, GPU-0, 81559, 0, 0, [GPU is lost], 15.0, H100\n", "", 0, []string{"0 failed temperature: GPU is lost"}, nil},
		"no UUID":                {"0, [Unknown Error], 81559, 0, 0, 30, 15.0, H100\n", "", 0, []string{"0 failed UUID: Unknown Error"}, nil},
		"no memory":              {"0, GPU-0, [Unknown Error], 0, 0, 30, 15.0, H100\n", "", 0, []string{"0 failed total memory: Unknown Error"}, nil},
		"no used memory":         {"0, GPU-0, 81559, [Unknown Error], 0, 30, 15.0, H100\n", "", 0, []string{"0 failed used memory: Unknown Error"}, nil},
		"some values":            {"0, GPU-0, 49140, 6, [Unknown Error], 32, [Unknown Error], A6000\n", "", 0, []string{"0 unknown utilization, power: Unknown Error"}, nil},
		"values not supported":   {"0, GPU-0, 49140, 6, [N/A], [Not Supported], [Insufficient Permissions], A6000\n", "", 0, []string{"0 ok"}, nil},
		"unified memory":         {"0, GPU-0, [N/A], [N/A], 37, 52, 11.00, GB10\n", "", 0, []string{"0 unified"}, nil},
		"nothing but unified":    {"0, ddae-1, [N/A], [N/A], [N/A], [N/A], [N/A], Orin (nvgpu)\n", "", 0, []string{"0 unified"}, nil},
		"memory is not for us": {
			"0, GPU-0, [Insufficient Permissions], [Insufficient Permissions], [N/A], 47, 60.00, A100\n", "", 0,
			[]string{"0 ok"},
			[]string{"0, GPU-0, [Insufficient Permissions], [Insufficient Permissions], [N/A], 47, 60.00, A100"},
		},
		"impossible values":       {"0, GPU-0, 49140, 6, 808334905, 2147483647, -1, A6000\n1, GPU-1, 49140, 6, 101, warm, nan, A6000\n", "", 0, []string{"0 ok", "1 ok"}, nil},
		"impossible memory":       {"0, GPU-0, -1, 9223372036854775807, 0, 30, 15.0, A6000\n", "", 0, []string{"0 unknown total memory: -1; used memory: 9223372036854775807"}, nil},
		"units":                   {"0, GPU-0, 16160 MiB, 3 MiB, 0 %, 31, 70.12 W, V100\n", "", 0, []string{"0 unknown total memory: 16160 MiB; used memory: 3 MiB"}, nil},
		"one index twice":         {row(0) + row(1) + row(1), "", 0, []string{"0 ok", "1 ? nvidia-smi lists GPU 1 twice"}, nil},
		"one UUID twice":          {row(0) + "1, GPU-0, 24576, 1, 0, 30, 15.00, X\n" + row(2), "", 0, []string{"0 ? nvidia-smi lists the UUID GPU-0 twice", "1 ? nvidia-smi lists the UUID GPU-0 twice", "2 ok"}, nil},
		"a cut row":               {row(0) + "1, GPU-1, 245", "", 0, []string{"0 ok", `1 ? unexpected row: "1, GPU-1, 245"`}, nil},
		"other lines":             {"hello, world\n" + row(0), "a message\n", 3, []string{"0 ok"}, []string{"a message", "nvidia-smi exited with 3", "hello, world"}},
		"an escape in a UUID":     {"0, GPU-\x1b[31m0, 81559, 0, 0, 30, 15.0, H100\n", "", 0, []string{`0 unknown UUID: GPU-\x1b[31m0`}, nil},
		"an escape in a name":     {"0, GPU-0, 81559, 0, 0, 30, 15.0, V\x1b[31m100\n", "", 0, []string{"0 ok"}, nil},
		"an index that is beyond": {row(0) + "1024, GPU-1, 1, 1, 1, 1, 1, X\n", "", 0, []string{"0 ok"}, []string{"1024, GPU-1, 1, 1, 1, 1, 1, X"}},
		"far gaps":                {row(0) + row(900), "", 0, []string{"0 ok", "1 failed nvidia-smi lists later GPUs, and not this one", "2 failed nvidia-smi lists later GPUs, and not this one", "900 ok"}, nil},
	} {
		got, err := nvidiasmi.ParseDevices(nvidiasmi.RunResult{Stdout: []byte(tt.stdout), Stderr: []byte(tt.stderr), ExitCode: tt.code})
		require.NoError(t, err, name)
		require.Equal(t, tt.want, gpus(got), name)
		require.Equal(t, tt.warnings, got.Warnings, name)
		for _, g := range got.GPUs {
			require.True(t, g.Utilization == nil || *g.Utilization <= 100, name)
			require.True(t, g.Temperature == nil || *g.Temperature < 100, name)
			require.False(t, strings.Contains(g.Name, "\x1b"), name)
		}
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
