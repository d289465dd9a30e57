package smi_test

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell/smi"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestQuery(t *testing.T) {
	out := sample(t, "query-550.constructed.txt")
	require.Equal(t, string(out), rewrite(t, out, everything(), "-q"), "all is seen: all stays")
	shown := rewrite(t, out, view(0, 2), "-q")
	require.Contains(t, shown, "Attached GPUs                                     : 2\nGPU 00000000:1B:00.0\n")
	require.Contains(t, shown, "GPU 00000000:52:00.0\n")
	require.NotContains(t, shown, "GPU 00000000:43:00.0")
	require.NotContains(t, shown, "GPU 00000000:61:00.0")
	require.Equal(t, 1, strings.Count(shown, "Process ID                                : 1111\n"))
	require.NotContains(t, shown, "2222")
	require.NotContains(t, shown, "3333")
	require.Contains(t, shown, `    Processes                                     : None
    Capabilities
`)
	require.Equal(t, 1, strings.Count(shown, "        Total                                     : 3814 MiB\n"))
	require.Equal(t, 1, strings.Count(shown, "        Total                                     : 81559 MiB\n"))
	require.Equal(t, 2, strings.Count(shown, "        Total                                     : 131072 MiB\n"), "BAR1 is not the memory")
}

func TestQueryOfOlderDriversProcesses(t *testing.T) { // "Process ID" comes first
	var old strings.Builder
	for line := range strings.Lines(string(sample(t, "query-550.constructed.txt"))) {
		if !strings.Contains(line, "instance ID") {
			old.WriteString(line)
		}
	}
	shown := rewrite(t, []byte(old.String()), view(0), "-q")
	require.Contains(t, shown, ": 1111\n")
	require.NotContains(t, shown, "2222")
	require.NotContains(t, shown, "tritonserver")
}

func TestQueryOfASelection(t *testing.T) {
	all := string(sample(t, "query-550.constructed.txt"))
	head, rest, _ := strings.Cut(all, "GPU 00000000:1B")
	third := rest[strings.Index(rest, "GPU 00000000:52"):strings.Index(rest, "GPU 00000000:61")]
	shown := rewrite(t, []byte(head+third), view(2), "-q", "-i", "2")
	require.Contains(t, shown, ": 3814 MiB")
	require.Contains(t, shown, "GPU 00000000:52:00.0\n")
	unchanged(t, []byte(all), view(2), "-q", "-i", "2")
}

func TestXMLQuery(t *testing.T) {
	out := sample(t, "query-550.constructed.xml")
	require.Equal(t, string(out), rewrite(t, out, everything(), "-q", "-x"))
	shown := rewrite(t, out, view(3, 0), "-x", "-q")
	var log struct {
		Attached int `xml:"attached_gpus"`
		GPUs     []struct {
			ID     string   `xml:"id,attr"`
			Memory string   `xml:"fb_memory_usage>total"`
			BAR1   string   `xml:"bar1_memory_usage>total"`
			PIDs   []string `xml:"processes>process_info>pid"`
		} `xml:"gpu"`
	}
	require.NoError(t, xml.Unmarshal([]byte(shown), &log))
	require.Equal(t, 2, log.Attached)
	require.Len(t, log.GPUs, 2)
	require.Equal(t, "00000000:1B:00.0", log.GPUs[0].ID)
	require.Equal(t, "81559 MiB", log.GPUs[0].Memory)
	require.Equal(t, []string{"1111"}, log.GPUs[0].PIDs)
	require.Equal(t, "00000000:61:00.0", log.GPUs[1].ID)
	require.Equal(t, "3814 MiB", log.GPUs[1].Memory)
	require.Equal(t, "131072 MiB", log.GPUs[1].BAR1)
}

func TestAnotherQueryIsUnchanged(t *testing.T) {
	text := string(sample(t, "query-550.constructed.txt"))
	doc := string(sample(t, "query-550.constructed.xml"))
	for name, out := range map[string]string{
		"empty":          "",
		"no driver":      "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
		"a section less": strings.Replace(text, "GPU 00000000:43:00.0", "    00000000:43:00.0", 1),
		"no count":       strings.Replace(text, "Attached GPUs", "Connected    ", 1),
		"no PID":         strings.Replace(text, "Process ID    ", "Program ID    ", 1),
		"cut":            before(text, "GPU 00000000:61"),
	} {
		t.Run(name, func(t *testing.T) { unchanged(t, []byte(out), view(0), "-q") })
	}
	for name, out := range map[string]string{
		"empty":  "",
		"no PID": strings.Replace(doc, "<pid>1111</pid>", "", 1),
		"open":   strings.ReplaceAll(doc, "</process_info>", ""),
		"cut":    before(doc, "00000000:61"),
	} {
		t.Run("xml "+name, func(t *testing.T) { unchanged(t, []byte(out), view(0, 1, 2, 3), "-q", "-x") })
	}
}

func FuzzSections(f *testing.F) {
	f.Add(sample(f, "query-550.constructed.txt"), false, false)
	f.Add(sample(f, "query-550.constructed.xml"), true, false)
	f.Fuzz(func(t *testing.T, out []byte, xml, selected bool) {
		args := []string{"-q"}
		if xml {
			args = append(args, "-x")
		}
		if selected {
			args = append(args, "-i", "1")
		}
		call, ok := smi.Parse(args)
		require.True(t, ok)
		original := string(out)
		shown, ok := call.Rewrite(out, view(1))
		if !ok {
			require.Equal(t, original, string(shown))
		}
		if start := "\nGPU 00000000:"; ok && !xml {
			require.LessOrEqual(t, strings.Count(string(shown), start), 1, "one device is in the view")
		}
	})
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

// The samples in testdata are constructed: laid out as the drivers of their
// names do, with values of our own. On their host are four GPUs; process 1111
// is on 0 and 3, 2222 on 0, 3333 on 2; MIG, where it is on, is on 1.
func sample(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return data
}

var tables = []string{
	"table-470.constructed.txt", "table-470-idle.constructed.txt", "table-535.constructed.txt", "table-550.constructed.txt",
	"table-580.constructed.txt", "table-580-idle.constructed.txt", "table-580-mig.constructed.txt", "table-610.constructed.txt",
}

// view is an environment of the given devices, the first with a capacity of 4g,
// and of process 1111.
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
