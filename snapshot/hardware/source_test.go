package hardware_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// driver makes the driver's /proc folder of GPUs "GPU-0" and so on, with the given minors.
func driver(t *testing.T, minors ...int) string {
	t.Helper()
	proc := t.TempDir()
	for i, minor := range minors {
		dir := filepath.Join(proc, fmt.Sprintf("driver/nvidia/gpus/0000:%02x:00.0", i+1))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "information"), fmt.Appendf(nil, "GPU UUID: GPU-%d\nDevice Minor: %d\n", i, minor), 0o600))
	}
	return proc
}

func found(n int) []snapshot.Device {
	devices := make([]snapshot.Device, n)
	for i := range devices {
		devices[i] = snapshot.Device{Index: snapshot.DeviceIndex(i), UUID: snapshot.GPUUUID(fmt.Sprintf("GPU-%d", i)), TotalMemory: snapshot.MiB(100)}
	}
	return devices
}

func TestPublishFromARootProcess(t *testing.T) {
	s := hardware.Catalog{Run: filepath.Join(t.TempDir(), "run"), Proc: driver(t, 1, 2, 0), Root: true}
	changed, err := s.Publish(found(3))
	require.NoError(t, err)
	require.True(t, changed)
	known, err := hardware.Catalog{Run: s.Run, Proc: t.TempDir()}.Known()
	require.NoError(t, err)
	for i, want := range []int{1, 2, 0} {
		require.Equal(t, minor(want), known[i].Minor, "the minor is not the index")
	}
}

func TestPublishFromOthers(t *testing.T) {
	run, proc := filepath.Join(t.TempDir(), "run"), driver(t, 1, 0)
	other := []snapshot.Device{{UUID: "GPU-simulated"}}
	for name, tt := range map[string]struct {
		source hardware.Catalog
		found  []snapshot.Device
		fails  bool
	}{
		"a user":               {hardware.Catalog{Run: run, Proc: proc}, found(2), false},
		"no run folder":        {hardware.Catalog{Proc: proc, Root: true}, found(2), false},
		"no driver":            {hardware.Catalog{Run: run, Proc: t.TempDir(), Root: true}, found(2), true},
		"GPUs of a simulation": {hardware.Catalog{Run: run, Proc: proc, Root: true}, other, true},
	} {
		t.Run(name, func(t *testing.T) {
			changed, err := tt.source.Publish(tt.found)
			require.Equal(t, tt.fails, err != nil, err)
			require.False(t, changed)
			require.NoFileExists(t, filepath.Join(run, "devices.json"))
		})
	}
}

func TestKnownWithoutAPublishedList(t *testing.T) {
	known, err := hardware.Catalog{Run: t.TempDir(), Proc: driver(t, 1, 0)}.Known()
	require.NoError(t, err)
	require.Len(t, known, 2)
	require.False(t, known[0].TotalMemory().Known())
	_, err = hardware.Catalog{Run: t.TempDir(), Proc: t.TempDir()}.Known()
	require.ErrorIs(t, err, hardware.ErrNotPublished)
	_, err = hardware.Catalog{Proc: t.TempDir()}.Known()
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestListsAll(t *testing.T) {
	require.True(t, hardware.Catalog{Proc: t.TempDir()}.ListsAll(1), "no driver's folder")
	s := hardware.Catalog{Proc: driver(t, 2, 1, 0)}
	for n, want := range map[int]bool{0: false, 1: false, 2: false, 3: true, 4: true} {
		require.Equal(t, want, s.ListsAll(n), n)
	}
	file := filepath.Join(s.Proc, "driver/nvidia/gpus/0000:02:00.0/information")
	require.NoError(t, os.WriteFile(file, []byte("Device Minor: 1\nGPU Excluded: Yes\n"), 0o600))
	require.True(t, s.ListsAll(2), "nvidia-smi doesn't list one that is excluded")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.False(t, s.ListsAll(2), "unknown is not excluded")
}

func TestRestricted(t *testing.T) {
	run, now := t.TempDir(), time.Now()
	require.False(t, hardware.Catalog{Run: run}.Restricted(now))
	require.NoError(t, os.WriteFile(filepath.Join(run, "guard.json"), []byte(`{"mode":"enforce"}`), 0o600))
	require.True(t, hardware.Catalog{Run: run}.Restricted(now))
	require.False(t, hardware.Catalog{Run: run, Root: true}.Restricted(now))
	require.True(t, hardware.Catalog{Run: run, Root: true}.Guarded(now))
	require.False(t, hardware.Catalog{}.Guarded(now))
}

// TestWithMissing: GPUs of nvidia-smi are written as INDEX:UUID, with "!" if they have failed and
// "@ADDRESS" where that is all that is known; those of the driver as UUID@ADDRESS, in the order of the bus.
func TestWithMissing(t *testing.T) {
	for _, row := range []struct{ listed, driver, want string }{
		{"0:a 1:b", "a@1 b@2", "0:a 1:b"},
		{"0:a 1:b", "", "0:a 1:b"},
		{"0:a 1:!@2 2:c", "a@1 b@2 c@3", "0:a 1:!b 2:c"},
		{"0:a 1:! 2:c", "a@1 b@2 c@3", "0:a 1:!b 2:c"},
		{"0:a 1:! 2:! 3:d", "a@1 b@2 c@3 d@4", "0:a 1:!b 2:!c 3:d"},
		{"0:a 1:! 2:c", "a@1 ?@2 c@3", "0:a 1:! 2:c"},
		{"0:a 1:c", "a@1 b@2 c@3", "0:a 1:c 2:!b"},
		{"0:c", "a@1 b@2 c@3", "0:c 1:!a 2:!b"},
		{"0:a 1:c", "?@1 ?@2 ?@3", "0:a 1:c 2:!"},
		{"0:a 1:!@9", "a@1 b@2", "0:a 1:!@9"},
	} {
		var listed []nvidiasmi.GPU
		for i, word := range strings.Fields(row.listed) {
			_, uuid, _ := strings.Cut(word, ":")
			uuid, address, _ := strings.Cut(uuid, "@")
			uuid, failed := strings.CutPrefix(uuid, "!")
			g := nvidiasmi.GPU{Device: snapshot.Device{Index: snapshot.DeviceIndex(i), UUID: snapshot.GPUUUID(uuid), Failed: failed}}
			if address != "" {
				g.Address = fmt.Sprintf("00000000:0%s:00.0", address)
			}
			listed = append(listed, g)
		}
		var driver []hardware.BusDevice
		for _, word := range strings.Fields(row.driver) {
			uuid, address, _ := strings.Cut(word, "@")
			driver = append(driver, hardware.BusDevice{UUID: snapshot.GPUUUID(strings.Trim(uuid, "?")), Address: fmt.Sprintf("0000:0%s:00.0", address)})
		}
		var got []string
		for _, g := range hardware.WithMissing(listed, driver) {
			word := fmt.Sprintf("%d:", g.Index)
			if g.Failed {
				word += "!"
			}
			if word += string(g.UUID); g.UUID == "" && g.Address != "" {
				word += "@" + g.Address[10:11]
			}
			got = append(got, word)
		}
		require.Equal(t, row.want, strings.Join(got, " "), row)
	}
}
