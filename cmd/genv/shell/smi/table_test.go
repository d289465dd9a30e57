package smi_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell/smi"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

var busID = regexp.MustCompile(`(?m)^\|\s+(\d+)\s\s+\S.*\b[0-9A-F]{8}:[0-9A-F]{2}:00\.0`)

func TestTableShowsOnlyTheView(t *testing.T) {
	for _, name := range tables {
		t.Run(name, func(t *testing.T) {
			shown := rewrite(t, sample(t, name), view(1, 3))
			var indices []string
			for _, match := range busID.FindAllStringSubmatch(shown, -1) {
				indices = append(indices, match[1])
			}
			require.Equal(t, []string{"1", "3"}, indices)
			require.NotContains(t, shown, "tritonserver")
			require.NotContains(t, shown, "3333")
			require.Equal(t, !strings.Contains(name, "idle"), strings.Contains(shown, " 1111 "))
			require.Equal(t, 1, strings.Count(shown, " 3814MiB |"), "4g is 3814 MiB")
			require.Equal(t, strings.Contains(name, "mig"), strings.Contains(shown, "40448MiB"))
			requireFrame(t, shown)
		})
	}
}

// requireFrame holds that the lines of each part are as wide as they were.
func requireFrame(t *testing.T, shown string) {
	t.Helper()
	widths := map[int]bool{}
	for line := range strings.Lines(shown) {
		if line[0] == '|' || line[0] == '+' {
			widths[len(line)] = true
		}
	}
	require.Len(t, widths, 1, shown)
}

func TestTableOfADevice(t *testing.T) {
	require.Equal(t, `Thu Nov 20 22:00:00 2025       
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   2  NVIDIA H100 80GB HBM3          On  |   00000000:52:00.0 Off |                    0 |
| N/A   32C    P0             72W /  700W |       0MiB /   3814MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
`, rewrite(t, sample(t, "table-580.constructed.txt"), view(2)))
}

func TestTableOfNothing(t *testing.T) {
	for _, name := range tables {
		shown := rewrite(t, sample(t, name), smi.View{})
		require.Empty(t, busID.FindAllString(shown, -1))
		require.Contains(t, shown, "No running processes found")
		requireFrame(t, shown)
	}
}

var usedMemory = regexp.MustCompile(`\s*\d+MiB( / +\d+MiB \|  )`)

func TestTableOfEverythingStays(t *testing.T) {
	for _, name := range tables {
		table := sample(t, name)
		withoutUsed := func(table string) string { return usedMemory.ReplaceAllString(table, "used$1") }
		require.Equal(t, withoutUsed(string(table)), withoutUsed(rewrite(t, table, everything())), name)
	}
}

func TestUsedMemoryIsThatOfTheEnvironment(t *testing.T) {
	table := string(sample(t, "table-580.constructed.txt"))
	used := func(table string, v smi.View) (used []string) {
		for _, match := range regexp.MustCompile(`(\d+)MiB / `).FindAllStringSubmatch(rewrite(t, []byte(table), v), -1) {
			used = append(used, match[1])
		}
		return used
	}
	require.Equal(t, []string{"40512", "0", "70000", "1"}, used(table, everything()))
	require.Equal(t, []string{"40500", "0"}, used(table, view(0, 1)), "2222 is another user's")
	unknown := strings.Replace(table, "python                                40500MiB |", "python                                     N/A |", 1)
	require.NotEqual(t, table, unknown)
	require.Equal(t, []string{"40512", "0"}, used(unknown, view(0, 1)), "what is unknown is not zero")
	require.Equal(t, []string{"0", "0", "0", "0"}, used(string(sample(t, "table-580-idle.constructed.txt")), everything()))
}

func TestTableWithoutGIAndCI(t *testing.T) { // as up to driver 440
	table := strings.ReplaceAll(string(sample(t, "table-470.constructed.txt")), "N/A  N/A", "        ")
	shown := rewrite(t, []byte(table), view(0))
	require.Contains(t, shown, " 1111 ")
	require.NotContains(t, shown, " 2222 ")
}

func TestAnotherTableIsUnchanged(t *testing.T) {
	table := string(sample(t, "table-580.constructed.txt"))
	rows := map[string]string{
		"empty":                "",
		"no driver":            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
		"a lost GPU":           "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost. Reboot the system to recover this GPU\n",
		"cut in a row":         table[:len(table)/2],
		"cut after a row":      before(table, "|   1  "),
		"no index":             strings.Replace(table, "|   1  NVIDIA", "|   ?  NVIDIA", 1),
		"a heading is unknown": strings.Replace(table, "| Processes:", "| Tasks:    ", 1),
		"an unknown process":   strings.Replace(table, "|    2   N/A  N/A ", "|    2   pid is    ", 1),
		"a border is missing":  strings.Replace(table, "+-----------------------------------------+------------------------+----------------------+\n|   2", "|   2", 1),
		"a name with newlines": strings.Replace(table, "python ", "py\nthon", 1),
		"another MIG table":    strings.Replace(string(sample(t, "table-580-mig.constructed.txt")), "|  1    5   0   1  |", "|  1    5       1  |", 1),
	}
	for name, out := range rows {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, table, out)
			unchanged(t, []byte(out), view(1))
		})
	}
}

func FuzzTable(f *testing.F) {
	for _, name := range tables {
		f.Add(sample(f, name), uint8(5))
		f.Add(sample(f, name), uint8(0))
	}
	proctest.ShortenQuickly(f)
	f.Fuzz(func(t *testing.T, out []byte, mask uint8) {
		var indices []snapshot.DeviceIndex
		for i := range snapshot.DeviceIndex(8) {
			if mask&(1<<i) != 0 {
				indices = append(indices, i)
			}
		}
		v := view(indices...)
		call, _ := smi.Parse(nil)
		shown, ok := call.Rewrite(append([]byte{}, out...), v)
		if !ok {
			require.Equal(t, string(out), string(shown))
			return
		}
		for _, match := range busID.FindAllStringSubmatch(string(shown), -1) {
			require.Contains(t, []string{"0", "1", "2", "3", "4", "5", "6", "7"}, match[1])
			require.NotZero(t, mask&(1<<(match[1][0]-'0')), "%s", shown)
		}
	})
}

// guarded is view(1, 3) on a host with a guard: nvidia-smi shows this user these devices as
// 0 and 1. The addresses and UUIDs are those of the samples.
func guarded() smi.View {
	v := view(1, 3)
	v.Renumbered = true
	v.Devices[0].UUID, v.Devices[0].Address = "GPU-10000000-aaaa-bbbb-cccc-000000000001", "0000:43:00.0"
	v.Devices[1].UUID, v.Devices[1].Address = "GPU-30000000-aaaa-bbbb-cccc-000000000003", "0000:61:00.0"
	return v
}

var numberedRow = regexp.MustCompile(`(?m)^(\|\s+)([13])(\s)`)

// renumbered is what a guard leaves of a sample: only GPUs 1 and 3, as 0 and 1, with the processes of all users.
func renumbered(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	v := view(1, 3)
	v.Devices[0].Capacity = snapshot.Memory{}
	v.Owns = func(snapshot.PID) bool { return true }
	shown := rewrite(t, sample(t, name), v, args...)
	number := map[string]string{"1": "0", "3": "1"}
	shown = numberedRow.ReplaceAllStringFunc(shown, func(row string) string {
		m := numberedRow.FindStringSubmatch(row)
		return m[1] + number[m[2]] + m[3]
	})
	return []byte(strings.NewReplacer("GPU 1: ", "GPU 0: ", "GPU 3: ", "GPU 1: ").Replace(shown))
}

func TestRenumberedDevicesAreShownAsTheyAre(t *testing.T) {
	rows := map[string][]string{"list.constructed.txt": {"-L"}}
	for _, name := range tables {
		rows[name] = nil
	}
	for name, args := range rows {
		t.Run(name, func(t *testing.T) {
			guardedOut := renumbered(t, name, args...)
			require.Equal(t, rewrite(t, sample(t, name), view(1, 3), args...), rewrite(t, guardedOut, guarded(), args...))
		})
	}
}

func TestRenumberedWithTwoDigits(t *testing.T) {
	v := guarded()
	v.Devices[0].Index, v.Devices[1].Index = 10, 127
	shown := rewrite(t, renumbered(t, "table-580-mig.constructed.txt"), v)
	require.Contains(t, shown, "|  10  NVIDIA H100")
	require.Contains(t, shown, "| 127  NVIDIA H100")
	require.Contains(t, shown, "|  127   N/A  N/A            1111")
	requireFrame(t, shown)
	require.Regexp(t, `(?m)^\|\s+10\s+1\s+0\s+0\s*\|`, shown)
	list := rewrite(t, renumbered(t, "list.constructed.txt", "-L"), v, "-L")
	require.True(t, strings.HasPrefix(list, "GPU 10: NVIDIA"), list)
	require.Contains(t, list, "\nGPU 127: NVIDIA")
}

// TestNumbersMeanNothing: the guard shows the user a device that isn't attached to this
// environment as number 1, which is the index of one that is.
func TestNumbersMeanNothing(t *testing.T) {
	v := guarded()
	v.Devices = v.Devices[:1] // GPU 1, which nvidia-smi shows as 0
	for name, args := range map[string][]string{"table-580.constructed.txt": nil, "list.constructed.txt": {"-L"}} {
		shown := rewrite(t, renumbered(t, name, args...), v, args...)
		require.Equal(t, rewrite(t, sample(t, name), view(1), args...), shown)
	}
	require.Equal(t, "1, 3814\n", rewrite(t, []byte(v.Devices[0].UUID+", 0, 81559\nGPU-30000000-aaaa-bbbb-cccc-000000000003, 1, 81559\n"), v,
		"--query-gpu=index,memory.total", "--format=csv,noheader,nounits"))
	require.Equal(t, "name\nH100\n", rewrite(t, []byte("uuid, name\n"+v.Devices[0].UUID+", H100\nGPU-x, H200\n"), v, "--query-gpu=name", "--format=csv"))
}

func TestRenumberedWithoutAnAddress(t *testing.T) {
	v := guarded()
	v.Devices[0].Address, v.Devices[0].UUID = "", ""
	shown := rewrite(t, renumbered(t, "table-580.constructed.txt"), v)
	require.NotContains(t, shown, "43:00.0", "it is not known which one it is")
	require.Contains(t, shown, "61:00.0")
	unchanged(t, []byte(strings.ReplaceAll(string(renumbered(t, "table-580.constructed.txt")), "00000000:", "x0000000:")), v)
}

func TestRenumberedSelections(t *testing.T) {
	one, three := string(guarded().Devices[0].UUID), string(guarded().Devices[1].UUID)
	for line, want := range map[string]string{
		"-i 1":                          "-i " + one,
		"-i 01":                         "-i " + one,
		"--id=3":                        "--id=" + three,
		"-i 1,3":                        "-i " + one + "," + three,
		"-i 0,3":                        "-i " + three,
		"-i GPU-x,2":                    "-i GPU-x",
		"--query-gpu=name --format=csv": "--query-gpu=uuid,name --format=csv",
		"":                              "",
	} {
		call, ok := smi.Parse(strings.Fields(line))
		require.True(t, ok, line)
		require.Equal(t, strings.Fields(want), append([]string{}, call.Args(guarded())...), line)
		require.False(t, call.Outside(guarded()), line)
	}
	for _, line := range []string{"-i 0", "-i 2", "-i 0,2"} {
		call, ok := smi.Parse(strings.Fields(line))
		require.True(t, ok, line)
		require.True(t, call.Outside(guarded()), fmt.Sprint(line))
	}
}

// What the shim itself adds to nvidia-smi's own time, besides its start.
func BenchmarkTable(b *testing.B) {
	table, v := sample(b, "table-580-mig.constructed.txt"), view(1, 3)
	call, _ := smi.Parse(nil)
	for b.Loop() {
		if _, ok := call.Rewrite(table, v); !ok {
			b.Fatal("not understood")
		}
	}
}

// The samples in testdata are constructed: laid out as the drivers of their names do, with values of our own. On their
// host are four GPUs; process 1111 is on 0 and 3, 2222 on 0, 3333 on 2; MIG, where it is on, is on 1.
func sample(t testing.TB, name string) []byte {
	t.Helper()
	data := proctest.ReadFile(t, filepath.Join("testdata", name))
	return data
}

var tables = []string{
	"table-470.constructed.txt", "table-470-idle.constructed.txt", "table-535.constructed.txt", "table-550.constructed.txt",
	"table-580.constructed.txt", "table-580-idle.constructed.txt", "table-580-mig.constructed.txt", "table-610.constructed.txt",
}

// view is an environment of the given devices, the first with a capacity of 4g, and of process 1111.
func view(indices ...snapshot.DeviceIndex) smi.View {
	v := smi.View{Owns: func(pid snapshot.PID) bool { return pid == 1111 }}
	for i, index := range indices {
		v.Devices = append(v.Devices, smi.Device{Index: index})
		if i == 0 {
			v.Devices[i].Capacity = snapshot.MustMemory("4g")
		}
	}
	return v
}

func everything() smi.View {
	v := view(0, 1, 2, 3)
	v.Devices[0].Capacity = snapshot.MustMemory("81559mi")
	v.Owns = func(snapshot.PID) bool { return true }
	return v
}

// rewrite is what a call shows of an output.
func rewrite(t testing.TB, out []byte, v smi.View, args ...string) string {
	t.Helper()
	call, ok := smi.Parse(args)
	require.True(t, ok, args)
	shown, ok := call.Rewrite(slices.Clone(out), v)
	require.True(t, ok, "not understood:\n%s", out)
	return string(shown)
}

func unchanged(t testing.TB, out []byte, v smi.View, args ...string) {
	t.Helper()
	call, ok := smi.Parse(args)
	require.True(t, ok, args)
	shown, ok := call.Rewrite(slices.Clone(out), v)
	require.False(t, ok, "%s", shown)
	require.Equal(t, string(out), string(shown))
}

// before is the text up to a mark.
func before(text, mark string) string {
	head, _, _ := strings.Cut(text, mark)
	return head
}
