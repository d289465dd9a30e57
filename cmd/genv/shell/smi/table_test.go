package smi_test

import (
	"flag"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell/smi"
	"github.com/seed-3119e985/genv/snapshot"
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
	idle := string(sample(t, "table-580-idle.constructed.txt"))
	require.Equal(t, []string{"0", "0", "0", "0"}, used(idle, everything()))
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

// shortenQuickly has Go try little to shorten each new input, unless the command
// line says how much: by default it takes up to a minute, in which no case counts.
func shortenQuickly(f *testing.F) {
	f.Helper()
	const name = "test.fuzzminimizetime"
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if !given {
		require.NoError(f, flag.Set(name, "10x"))
	}
}

func FuzzTable(f *testing.F) {
	for _, name := range tables {
		f.Add(sample(f, name), uint8(5))
		f.Add(sample(f, name), uint8(0))
	}
	shortenQuickly(f)
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
