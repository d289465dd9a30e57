package smi_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell/smi"
	"github.com/seed-3119e985/genv/snapshot"
)

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
