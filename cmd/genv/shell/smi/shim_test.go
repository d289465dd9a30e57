package smi_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell/smi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// harness has a shell script in the real nvidia-smi's place. What it is asked
// for beyond its rows is an error, and so is a hand-over that no row expects.
type harness struct {
	shim   smi.Shim
	stdout bytes.Buffer
	stderr bytes.Buffer
	handed [][]string
}

const program = `#!/bin/sh
case "$*" in
  "") cat "$SAMPLES/table-580.constructed.txt"; echo noise >&2;;
  -L) echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18;;
  "-L -i 1") echo "something new";;
  "--query-gpu=index,name --format=csv,noheader") printf '0, H100\n1, H200\n';;
  "--query-gpu=index,foo --format=csv") echo 'Field "foo" is not a valid field to query.'; exit 2;;
  "--query-gpu=index,uuid --format=csv,noheader") printf '0, GPU-0\n1, GPU-1\nUnable to determine the device handle for GPU0000:03:00.0: Unknown Error\n[Unknown Error], [Unknown Error]\n'; exit 15;;
  "-i 1") kill -9 $$;;
  *) echo "unexpected: $*"; exit 99;;
esac
`

func newHarness(t *testing.T, args ...string) *harness {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "nvidia-smi")
	require.NoError(t, proctest.WriteProgram(path, []byte(program)))
	samples := proctest.Try(filepath.Abs("testdata")).OK(t)
	h := &harness{}
	h.shim = smi.Shim{
		Real: path, Args: args, Environ: []string{"PATH=/usr/bin:/bin", "SAMPLES=" + samples},
		View:   func() (smi.View, error) { return view(1), nil },
		Stdout: &h.stdout, Stderr: &h.stderr,
		Exec: func(_ string, argv, _ []string) error {
			h.handed = append(h.handed, argv[1:])
			return nil
		},
	}
	return h
}

// TestShimWithALostGPU: what nvidia-smi says about it comes after the rows of the view.
func TestShimWithALostGPU(t *testing.T) {
	h := newHarness(t, "--query-gpu=uuid", "--format=csv,noheader")
	require.Equal(t, 15, proctest.Try(h.shim.Run(context.Background())).OK(t))
	require.Equal(t, "GPU-1\nUnable to determine the device handle for GPU0000:03:00.0: Unknown Error\n", h.stdout.String())
	require.Empty(t, h.handed)
}

func TestShimShowsTheView(t *testing.T) {
	h := newHarness(t)
	status := proctest.Try(h.shim.Run(context.Background())).OK(t)
	require.Zero(t, status)
	require.Equal(t, rewrite(t, sample(t, "table-580.constructed.txt"), view(1)), h.stdout.String())
	require.Equal(t, "noise\n", h.stderr.String())
	require.Empty(t, h.handed)

	h = newHarness(t, "--query-gpu=name", "--format=csv,noheader")
	status = proctest.Try(h.shim.Run(context.Background())).OK(t)
	require.Zero(t, status)
	require.Equal(t, "H200\n", h.stdout.String())
}

func TestShimKeepsTheStatus(t *testing.T) {
	rows := []struct {
		args   []string
		stdout string
		status int
	}{
		{[]string{"-L"}, "Failed to initialize NVML: Driver/library version mismatch\n", 18},
		{[]string{"-L", "-i", "1"}, "something new\n", 0},
		{[]string{"-i", "1"}, "", 137},
		{[]string{"-i", "0"}, "No devices were found\n", 6},
	}
	for _, row := range rows {
		h := newHarness(t, row.args...)
		require.Equal(t, row.status, proctest.Try(h.shim.Run(context.Background())).OK(t), row.args)
		require.Equal(t, row.stdout, h.stdout.String())
		require.Empty(t, h.handed)
	}
}

func TestShimHandsOver(t *testing.T) {
	rows := map[string]*harness{
		"not understood":  newHarness(t, "dmon", "-c", "1"),
		"-q":              newHarness(t, "-q", "-x"),
		"a refused field": newHarness(t, "--query-gpu=foo", "--format=csv"),
		"bypass":          newHarness(t, "-L"),
		"no books":        newHarness(t, "-L"),
	}
	rows["bypass"].shim.Bypass = true
	rows["no books"].shim.View = func() (smi.View, error) { return smi.View{}, errors.New("envs.json is corrupt") }
	for name, h := range rows {
		require.Zero(t, proctest.Try(h.shim.Run(context.Background())).OK(t, name), name)
		require.Empty(t, h.stdout.String(), name)
		require.Equal(t, [][]string{h.shim.Args}, h.handed, name)
	}
	require.Equal(t, "genv: showing all GPUs of this host: envs.json is corrupt\n", rows["no books"].stderr.String())
	require.Empty(t, rows["bypass"].stderr.String())
}

func TestShimWithoutAProgram(t *testing.T) {
	h := newHarness(t)
	h.shim.Real = "/nonexistent/nvidia-smi"
	require.ErrorIs(t, proctest.Try(h.shim.Run(context.Background())).Err, os.ErrNotExist)
	h.shim.Bypass = true
	h.shim.Exec = func(string, []string, []string) error { return os.ErrPermission }
	require.ErrorIs(t, proctest.Try(h.shim.Run(context.Background())).Err, os.ErrPermission)
}

func TestCallsThatAreUnderstood(t *testing.T) {
	for line, want := range map[string]string{
		"":            "",
		"-i 0":        "-i 0",
		"--id=0,2":    "--id=0,2",
		"-L":          "-L",
		"--list-gpus": "--list-gpus",
		"--query-gpu=name,memory.total --format=csv":      "--query-gpu=index,name,memory.total --format=csv",
		"--format=csv,noheader --query-compute-apps=name": "--format=csv,noheader --query-compute-apps=pid,name",
	} {
		call, ok := smi.Parse(strings.Fields(line))
		require.True(t, ok, line)
		require.Equal(t, strings.Fields(want), append([]string{}, call.Args(smi.View{})...), line)
	}
}

// Whatever loops, changes something, writes elsewhere or is new goes to the real program.
func TestCallsThatAreNot(t *testing.T) {
	for _, line := range []string{
		"-h", "--help", "--version", "-l", "-l 5", "-l5", "-q", "--query", "-q -x", "-x -q -i 1", "-q -i 3", "-q -d MEMORY", "--loop=1", "-lms 100", "-q -l 1", "-f /tmp/x", "-q -f /tmp/x", "--filename=x",
		"dmon", "pmon -i 0", "topo -m", "mig -lgi", "nvlink -s", "clocks", "vgpu", "daemon", "-r", "--gpu-reset -i 0", "-pm 1", "-pl 300 -i 0", "-c 0",
		"-x", "-L -q", "-d MEMORY", "--format=csv", "--query-gpu=name", "--query-gpu=name --format=xml", "--query-gpu= --format=csv",
		"--query-gpu=name --query-compute-apps=pid --format=csv", "--query-accounted-apps=pid --format=csv", "--query-supported-clocks=mem --format=csv",
		"-i", "-i 0 -i 1", "-q -i 0,1", "-q -i GPU-123", "-L extra", "-q=1", "--id 0", "-u", "-a", "--debug=x", "-", "--",
	} {
		_, ok := smi.Parse(strings.Fields(line))
		require.False(t, ok, line)
	}
}

func TestSelectionOutsideTheView(t *testing.T) {
	for line, outside := range map[string]bool{"-i 0": true, "-L -i 2": true, "-i 1": false, "": false, "-i 01": false, "-i 0,1": false, "-i GPU-x": false} {
		call, ok := smi.Parse(strings.Fields(line))
		require.True(t, ok)
		require.Equal(t, outside, call.Outside(view(1)), line)
	}
}

func TestList(t *testing.T) {
	out := sample(t, "list.constructed.txt")
	require.Equal(t, string(out), rewrite(t, out, everything(), "-L"))
	require.Equal(t, `GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-10000000-aaaa-bbbb-cccc-000000000001)
  MIG 1g.10gb     Device  0: (UUID: MIG-11111111-aaaa-bbbb-cccc-000000000001)
  MIG 1g.10gb     Device  1: (UUID: MIG-22222222-aaaa-bbbb-cccc-000000000002)
GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-30000000-aaaa-bbbb-cccc-000000000003)
`, rewrite(t, out, view(1, 3), "-L"))
	require.Empty(t, rewrite(t, out, smi.View{}, "-L"))
	for _, other := range []string{"", "No devices were found\n", "  MIG 1g.10gb\n" + string(out), string(out) + "GPU x\n", string(out) + "\n"} {
		unchanged(t, []byte(other), view(1), "-L")
	}
}

const gpuRows = `index, index, name, memory.total [MiB], memory.used [MiB]
0, 0, NVIDIA H100 80GB HBM3, 81559 MiB, 40512 MiB
1, 1, NVIDIA H100 80GB HBM3, 81559 MiB, 1 MiB
12, 12, NVIDIA H100 80GB HBM3, [N/A], 1 MiB
`

func TestQueriedGPUs(t *testing.T) {
	query := "--query-gpu=index,name,memory.total,memory.used"
	require.Equal(t, `index, name, memory.total [MiB], memory.used [MiB]
1, NVIDIA H100 80GB HBM3, 3814 MiB, 1 MiB
12, NVIDIA H100 80GB HBM3, [N/A], 1 MiB
`, rewrite(t, []byte(gpuRows), view(1, 12), query, "--format=csv"))
	require.Equal(t, "index, name, memory.total [MiB], memory.used [MiB]\n", rewrite(t, []byte(gpuRows), smi.View{}, query, "--format=csv"))
	require.Equal(t, "3814\n81559\n", rewrite(t, []byte("0, 81559\n1, 81559\n2, 81559\n"), view(0, 1), "--query-gpu=memory.total", "--format=csv,noheader,nounits"))
	for _, other := range []string{
		"", "No devices were found\n", gpuRows + "GPU is lost\n", strings.TrimPrefix(gpuRows, "index, "), gpuRows + "x, 1\n",
		"Field \"foo\" is not a valid field to query.\n",
	} {
		unchanged(t, []byte(other), view(1), query, "--format=csv")
	}
}

func TestQueriedApps(t *testing.T) {
	out := "pid, process_name, used_gpu_memory [MiB]\n1111, python, 40500 MiB\n2222, a, b, 12 MiB\n1111, python, 1 MiB\n"
	require.Equal(t, "process_name, used_gpu_memory [MiB]\npython, 40500 MiB\npython, 1 MiB\n",
		rewrite(t, []byte(out), view(0), "--query-compute-apps=name,used_memory", "--format=csv"))
	require.Empty(t, rewrite(t, nil, view(0), "--query-compute-apps=name", "--format=csv,noheader"))
	unchanged(t, []byte("No running processes found\n"), view(0), "--query-compute-apps=name", "--format=csv,noheader")
}

func FuzzCSV(f *testing.F) {
	f.Add(gpuRows, true)
	f.Add("0, x\n3, \n", false)
	f.Fuzz(func(t *testing.T, out string, header bool) {
		format := map[bool]string{true: "--format=csv", false: "--format=csv,noheader"}[header]
		call, _ := smi.Parse([]string{"--query-gpu=name,memory.total", format})
		shown, ok := call.Rewrite([]byte(out), view(1))
		if !ok {
			require.Equal(t, out, string(shown))
		}
		if !ok || !strings.HasSuffix(out, "\n") {
			return
		}
		want := strings.Count("\n"+out, "\n1, ")
		if header {
			want++
		}
		require.Len(t, slices.Collect(strings.Lines(string(shown))), want)
	})
}
