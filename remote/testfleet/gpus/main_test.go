package gpus_test

import (
	"bytes"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// lab is a host with three devices, one of them in MIG mode, one broken.
func lab() gpus.Driver {
	h := gpus.Driver{Devices: gpus.Devices("lab", 3, "NVIDIA H100 80GB HBM3", 81559)}
	h.Devices[1].MIG = []gpus.MIG{{Profile: "1g.10gb", UUID: "MIG-11111111-2222-3333-4444-555555555555"}}
	h.Devices[2].Fault = gpus.Broken
	return h
}

func mib(n int64) *int64 { return &n }

// smi runs the stand-in in this process.
func smi(t *testing.T, h gpus.Driver, fault string, args ...string) (out string, code int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gpus.json")
	require.NoError(t, h.Write(path))
	var stdout, stderr bytes.Buffer
	code = gpus.Main(args, &stdout, &stderr, func(name string) string {
		return map[string]string{gpus.EnvFile: path, gpus.EnvFault: fault}[name]
	})
	return stdout.String() + stderr.String(), code
}

func TestQueries(t *testing.T) {
	h, me := lab(), os.Getpid()
	h.Apps = []gpus.App{
		{PID: me, Device: 0, UsedMiB: mib(5000), Name: "/usr/bin/python3"},
		{PID: me, Device: 2, Name: "silent, and with a comma"},
		{PID: me, UUID: h.Devices[1].MIG[0].UUID, UsedMiB: mib(70), Name: "small"},
		{PID: me, UUID: "GPU-unlisted", UsedMiB: mib(1), Name: "lost"},
	}
	pid := strconv.Itoa(me)
	ids := [3]string{h.Devices[0].UUID, h.Devices[1].UUID, h.Devices[2].UUID}
	for _, c := range []struct {
		args []string
		want string
	}{
		{
			[]string{"--query-gpu=index,uuid,memory.total", "--format=csv"},
			"index, uuid, memory.total [MiB]\n0, " + ids[0] + ", 81559 MiB\n1, " + ids[1] + ", 81559 MiB\n2, " + ids[2] + ", [Unknown Error]\n",
		},
		{[]string{"--query-gpu=memory.total", "--format=csv,noheader,nounits"}, "81559\n81559\n[Unknown Error]\n"},
		{
			[]string{"--format=csv,nounits", "--query-gpu=name, memory.used,utilization.gpu"},
			"name, memory.used [MiB], utilization.gpu [%]\nNVIDIA H100 80GB HBM3, 5000, 97\nNVIDIA H100 80GB HBM3, 70, [N/A]\nNVIDIA H100 80GB HBM3, [Unknown Error], [Unknown Error]\n",
		},
		{[]string{"--query-gpu=mig.mode.current,driver_version,count", "--format=csv,noheader"}, "Disabled, 550.163.01, 3\nEnabled, 550.163.01, 3\n[Unknown Error], 550.163.01, 3\n"},
		{
			[]string{"--query-compute-apps=pid,gpu_uuid,used_memory,process_name", "--format=csv"},
			"pid, gpu_uuid, used_gpu_memory [MiB], process_name\n" +
				pid + ", " + ids[0] + ", 5000 MiB, /usr/bin/python3\n" +
				pid + ", " + ids[2] + ", [N/A], silent, and with a comma\n" +
				pid + ", " + ids[1] + ", 70 MiB, small\n" +
				pid + ", GPU-unlisted, 1 MiB, lost\n",
		},
		{[]string{"--query-compute-apps=gpu_bus_id,name", "--format=csv,noheader,nounits"}, "00000000:01:00.0, /usr/bin/python3\n00000000:03:00.0, silent, and with a comma\n00000000:02:00.0, small\n[N/A], lost\n"},
		{
			[]string{"-L"},
			"GPU 0: NVIDIA H100 80GB HBM3 (UUID: " + ids[0] + ")\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: " + ids[1] + ")\n" +
				"  MIG 1g.10gb     Device  0: (UUID: MIG-11111111-2222-3333-4444-555555555555)\nGPU 2: NVIDIA H100 80GB HBM3 (UUID: " + ids[2] + ")\n",
		},
	} {
		got, code := smi(t, h, "", c.args...)
		require.Zero(t, code, got)
		require.Equal(t, c.want, got, c.args)
	}
}

func TestWhatTheRealProgramRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--nonsense"},
		{"-l", "1"},
		{"foo"},
		{"--query-gpu=index"},
		{"--format=csv"},
		{"--query-gpu=bogus", "--format=csv"},
		{"--query-gpu=", "--format=csv"},
		{"--query-gpu=pid", "--format=csv"},
		{"--query-compute-apps=index", "--format=csv"},
		{"--query-gpu=index", "--format=json"},
		{"--query-gpu=index", "--query-compute-apps=pid", "--format=csv"},
		{"-L", "-q", "-x"},
		{"-x"},
	} {
		out, code := smi(t, lab(), "", args...)
		require.Equal(t, 2, code, args)
		require.NotEmpty(t, out)
	}
}

func TestFaults(t *testing.T) {
	for fault, want := range map[string]struct {
		code int
		text string
	}{
		gpus.FaultMismatch: {18, "Driver/library version mismatch"},
		gpus.FaultNoDriver: {9, "couldn't communicate with the NVIDIA driver"},
		gpus.FaultLost:     {15, "GPU is lost"},
		"mispelt":          {255, "not a simulated fault"},
	} {
		out, code := smi(t, lab(), fault, "-L")
		require.Equal(t, want.code, code, fault)
		require.Contains(t, out, want.text)
	}
	out, code := smi(t, gpus.Driver{}, "", "-L")
	require.Equal(t, 6, code)
	require.Equal(t, "No devices were found\n", out)
}

func TestTheFileMustBeThere(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, 255, gpus.Main(nil, &stdout, &stderr, func(string) string { return "" }))
	require.Contains(t, stderr.String(), gpus.EnvFile)
	stderr.Reset()
	require.Equal(t, 255, gpus.Main(nil, &stdout, &stderr, func(name string) string { return map[string]string{gpus.EnvFile: "/nonexistent"}[name] }))
	require.Contains(t, stderr.String(), "/nonexistent")
	require.Empty(t, stdout.String())
}

func TestTableIsAsWideAsARealOne(t *testing.T) {
	h := lab()
	for _, apps := range [][]gpus.App{nil, {
		{PID: os.Getpid(), Device: 0, UsedMiB: mib(81559), Name: strings.Repeat("long/", 20) + "python3"},
		{PID: os.Getpid(), Device: 1, Name: "x"},
	}} {
		h.Apps = apps
		out, code := smi(t, h, "")
		require.Zero(t, code)
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		for _, line := range lines[1:] { // the first is the date
			require.Len(t, line, map[bool]int{true: 89, false: 91}[strings.TrimSpace(line) == ""], line)
		}
		require.Equal(t, len(apps) == 0, strings.Contains(out, "No running processes found"))
	}
}

// TestDevicesThatFail: each row of the table is what the list of two devices is, if the first one has a fault.
func TestDevicesThatFail(t *testing.T) {
	const row = "0, 81559, 3, 0\n"
	for fault, want := range map[gpus.Fault]struct {
		out  string
		code int
	}{
		"":               {row + "1, 81559, 0, 0\n", 0},
		gpus.Lost:        {"Unable to determine the device handle for GPU0000:01:00.0: Unknown Error\n[Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error]\n1, 81559, 0, 0\n", 15},
		gpus.LostBetween: {"Unable to determine the device handle for GPU0000:01:00.0: Unknown Error\n1, 81559, 0, 0\n", 0},
		gpus.LostStderr:  {"1, 81559, 0, 0\nUnable to determine the device handle for GPU0: 0000:01:00.0: Unknown Error\n", 0},
		gpus.LostAll:     {"Unable to determine the device handle for GPU 0000:01:00.0: Unknown Error\n", 255},
		gpus.Gap:         {"1, 81559, 0, 0\n", 0},
		gpus.Drained:     {"0, 81559, 0, 0\n", 0},
		gpus.OffBus:      {"0, [GPU is lost], [GPU is lost], [GPU is lost]\n1, 81559, 0, 0\n", 0},
		gpus.NeedsReset:  {"0, 81559, 0, [GPU requires reset]\n1, 81559, 0, 0\n", 0},
		gpus.Partial:     {"0, 81559, 3, [Unknown Error]\n1, 81559, 0, 0\n", 0},
		gpus.Broken:      {"0, [Unknown Error], [Unknown Error], [Unknown Error]\n1, 81559, 0, 0\n", 0},
	} {
		h := gpus.Driver{Devices: gpus.H100s("lab", 2)}
		h.Devices[0].Fault, h.Devices[0].LeakedMiB = fault, 3
		out, code := smi(t, h, "", "--query-gpu=index,memory.total,memory.used,utilization.gpu", "--format=csv,noheader,nounits")
		require.Equal(t, want.out, out, fault)
		require.Equal(t, want.code, code, fault)
	}
}

func TestWarningsComeAfterTheRows(t *testing.T) {
	h := gpus.Driver{Devices: gpus.H100s("lab", 1), Warnings: []string{"WARNING: infoROM is corrupted at gpu 0000:01:00.0"}}
	h.Devices[0].Unified = true
	out, code := smi(t, h, "", "--query-gpu=index,memory.total", "--format=csv,noheader")
	require.Equal(t, "0, [N/A]\nWARNING: infoROM is corrupted at gpu 0000:01:00.0\n", out)
	require.Equal(t, 14, code)
}

// TestTypesAndInstances: the compute list has neither, and no process of type G.
func TestTypesAndInstances(t *testing.T) {
	h := gpus.Driver{Devices: gpus.H100s("lab", 2)}
	h.Devices[0].Display = true
	h.Devices[1].MIG = []gpus.MIG{{Profile: "3g.40gb", UUID: "MIG-a", GI: 2}, {Profile: "1c.3g.40gb", UUID: "MIG-b", GI: 2, CI: 1}}
	h.Apps = []gpus.App{
		{PID: 1 << 30, Foreign: true, Device: 0, Type: "C+G", UsedMiB: mib(25), Name: "desktop"},
		{PID: os.Getpid(), Device: 0, Type: "G", UsedMiB: mib(3), Name: "screen"},
		{PID: os.Getpid(), UUID: "MIG-b", UsedMiB: mib(70), Name: "job"},
	}
	out, _ := smi(t, h, "", "--query-compute-apps=gpu_uuid,process_name", "--format=csv,noheader")
	require.Equal(t, h.Devices[0].UUID+", desktop\n"+h.Devices[1].UUID+", job\n", out)
	details, _ := smi(t, h, "", "-q", "-x")
	document, _ := smi(t, h, "", "-q")
	for _, want := range []string{"<display_active>Enabled", "<type>C+G<", "<type>G<", "<gpu_instance_id>2</gpu_instance_id>\n\t\t\t\t<compute_instance_id>1</compute_instance_id>\n\t\t\t\t<pid>", "<total>40448 MiB</total>\n\t\t\t\t\t<used>70 MiB"} {
		require.Contains(t, details, want)
	}
	for _, want := range []string{"Display Active                        : Enabled", "Type                          : C+G", "Compute instance ID               : 1"} {
		require.Contains(t, document, want)
	}
}

func TestXMLTellsDevicesAndProcesses(t *testing.T) {
	h := lab()
	h.Apps = []gpus.App{{PID: os.Getpid(), Device: 1, UsedMiB: mib(12), Name: "a<b>"}}
	out, _ := smi(t, h, "", "-q", "-x")
	require.Contains(t, out, "<process_name>a<b></process_name>", "a name may be anything")
	h.Apps[0].Name = "job"
	out, code := smi(t, h, "", "-q", "-x")
	require.Zero(t, code)
	var log struct {
		Attached int `xml:"attached_gpus"`
		GPUs     []struct {
			UUID      string `xml:"uuid"`
			Used      string `xml:"fb_memory_usage>used"`
			Processes []struct {
				PID  int    `xml:"pid"`
				Name string `xml:"process_name"`
				Used string `xml:"used_memory"`
			} `xml:"processes>process_info"`
		} `xml:"gpu"`
	}
	require.NoError(t, xml.Unmarshal([]byte(out), &log))
	require.Equal(t, 3, log.Attached)
	require.Equal(t, h.Devices[1].UUID, log.GPUs[1].UUID)
	require.Equal(t, "12 MiB", log.GPUs[1].Used)
	require.Empty(t, log.GPUs[0].Processes)
	require.Equal(t, os.Getpid(), log.GPUs[1].Processes[0].PID)
	require.Equal(t, "job", log.GPUs[1].Processes[0].Name)
}

func TestOnlyTheLivingUseGPUs(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	require.NoError(t, cmd.Start())
	stat := proctest.Try(proc.FS{}.Stat(snapshot.PID(cmd.Process.Pid))).OK(t)
	start := uint64(stat.Start)
	h := lab()
	h.Apps = []gpus.App{
		{PID: cmd.Process.Pid, Start: start, Name: "it"},
		{PID: cmd.Process.Pid, Name: "whichever"},
		{PID: cmd.Process.Pid, Start: start + 1, Name: "another with its PID"},
		{PID: 1 << 30, Name: "nobody"},
	}
	names := func() (names []string) {
		for _, a := range h.Living("/proc").Apps {
			names = append(names, a.Name)
		}
		return names
	}
	require.Equal(t, []string{"it", "whichever"}, names())
	require.Len(t, h.Apps, 4) // Living changes nothing of the host itself
	require.NoError(t, cmd.Process.Kill())
	require.Eventually(t, func() bool { return names() == nil }, patience, tick, "a zombie holds no GPU") // not reaped yet
	require.Error(t, cmd.Wait())
	require.Nil(t, names())
}

func TestDevicesAreTheSameForTheSameHostAndDifferFromOthers(t *testing.T) {
	a, b := gpus.Devices("gpu-01", 8, "A100", 40960), gpus.Devices("gpu-02", 8, "A100", 40960)
	require.Equal(t, a, gpus.Devices("gpu-01", 8, "A100", 40960))
	seen := map[string]bool{}
	for _, d := range append(a, b...) {
		require.Regexp(t, `^GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`, d.UUID)
		require.False(t, seen[d.UUID])
		seen[d.UUID] = true
	}
}

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
		require.Equal(t, h, proctest.Try(gpus.Read(path)).OK(t))
	}
	require.Len(t, proctest.Try(os.ReadDir(dir)).OK(t), 1, "a temporary file is left")
	info := proctest.Try(os.Stat(path)).OK(t)
	require.Equal(t, os.FileMode(0o644), info.Mode())
	require.Error(t, h.Write(filepath.Join(dir, "nowhere", "gpus.json")))
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	require.ErrorContains(t, proctest.Try(gpus.Read(path)).Err, path)
}

func TestTheProgramItself(t *testing.T) {
	dir := t.TempDir()
	program, file := filepath.Join(dir, "nvidia-smi"), filepath.Join(dir, "gpus.json")
	require.NoError(t, testfleet.InstallProgram("remote/testfleet/gpus/nvidia-smi", program))
	require.NoError(t, lab().Write(file))
	cmd := exec.Command(program, "--query-gpu=index", "--format=csv,noheader")
	cmd.Env = []string{gpus.EnvFile + "=" + file}
	require.Equal(t, "0\n1\n2\n", string(proctest.Try(cmd.Output()).OK(t)))
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
	list := proctest.Try(hardware.FromDriver(proc)).OK(t)
	require.Len(t, list, 4)
	for i, d := range list {
		require.Equal(t, h.Devices[i].UUID, string(d.UUID))
		require.Equal(t, h.Devices[i].MinorNumber(), *d.Minor)
		require.True(t, hardware.SameAddress(h.Devices[i].BusID(), d.Address))
	}
}
