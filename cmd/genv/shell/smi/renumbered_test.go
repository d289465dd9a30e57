package smi_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell/smi"
	"github.com/seed-3119e985/genv/snapshot"
)

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

// renumbered is what a guard leaves of a sample: only GPUs 1 and 3, as 0 and 1, with the
// processes of all users.
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
	rows := map[string][]string{
		"list.constructed.txt": {"-L"}, "query-550.constructed.txt": {"-q"}, "query-550.constructed.xml": {"-q", "-x"},
	}
	for _, name := range tables {
		rows[name] = nil
	}
	for name, args := range rows {
		t.Run(name, func(t *testing.T) {
			guardedOut := renumbered(t, name, args...)
			want := rewrite(t, sample(t, name), view(1, 3), args...)
			require.Equal(t, want, rewrite(t, guardedOut, guarded(), args...))
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
	for name, args := range map[string][]string{"table-580.constructed.txt": nil, "list.constructed.txt": {"-L"}, "query-550.constructed.xml": {"-q", "-x"}} {
		shown := rewrite(t, renumbered(t, name, args...), v, args...)
		want := rewrite(t, sample(t, name), view(1), args...)
		require.Equal(t, want, shown)
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
		"-q -i 3":                       "-q -i " + three,
		"--query-gpu=name --format=csv": "--query-gpu=uuid,name --format=csv",
		"":                              "",
	} {
		call, ok := smi.Parse(strings.Fields(line))
		require.True(t, ok, line)
		require.Equal(t, strings.Fields(want), append([]string{}, call.Args(guarded())...), line)
		require.False(t, call.Outside(guarded()), line)
	}
	for _, line := range []string{"-i 0", "-i 2", "-i 0,2", "-q -i 0"} {
		call, ok := smi.Parse(strings.Fields(line))
		require.True(t, ok, line)
		require.True(t, call.Outside(guarded()), fmt.Sprint(line))
	}
}
