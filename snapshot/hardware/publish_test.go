package hardware_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

func list() []hardware.BusDevice {
	return []hardware.BusDevice{
		{Index: 0, UUID: "GPU-a", Minor: new(1), Address: "0000:01:00.0", Name: "A100", Bytes: new(int64(40960 << 20))},
		{Index: 1, UUID: "GPU-b", Minor: new(0), Address: "0000:02:00.0", Name: "A100"},
		{Index: 2, Bytes: new(int64(1000))},
	}
}

func TestPublishAndRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	require.ErrorIs(t, proctest.Try(hardware.Read(dir)).Err, hardware.ErrNotPublished)
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.ErrorIs(t, proctest.Try(hardware.Read(dir)).Err, hardware.ErrNotPublished)

	require.NoError(t, hardware.Publish(dir, list()))
	got := proctest.Try(hardware.Read(dir)).OK(t)
	require.Equal(t, list(), got)
	for path, mode := range map[string]os.FileMode{dir: 0o755 | os.ModeDir, filepath.Join(dir, "devices.json"): 0o644} {
		require.Equal(t, mode, proctest.Try(os.Stat(path)).OK(t).Mode(), path)
	}
	before := proctest.Try(os.Stat(filepath.Join(dir, "devices.json"))).OK(t)
	require.NoError(t, hardware.Publish(dir, list()))
	require.True(t, os.SameFile(before, proctest.Try(os.Stat(filepath.Join(dir, "devices.json"))).OK(t)), "nothing new")
	require.NoError(t, hardware.Publish(dir, list()[:2]))
	got = proctest.Try(hardware.Read(dir)).OK(t)
	require.Equal(t, list()[:2], got)
	require.Len(t, hardware.Devices(got), 2)
}

func TestPublishKeepsTheOldListAfterAnError(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, hardware.Publish(dir, list()))
	require.ErrorIs(t, hardware.Publish(dir, append(list(), list()[0])), hardware.ErrGarbled, "one device twice")
	got := proctest.Try(hardware.Read(dir)).OK(t)
	require.Equal(t, list(), got)
	require.NoError(t, os.Chmod(dir, 0o777)) //nolint:gosec // the test is about it
	require.ErrorIs(t, hardware.Publish(dir, list()[:1]), folder.ErrUnsafe)
}

func TestReadTrustsOnlyRoot(t *testing.T) {
	file := func(dir string) string { return filepath.Join(dir, "devices.json") }
	for name, tamper := range map[string]func(dir string) error{
		"everybody may write the folder": func(dir string) error { return os.Chmod(dir, 0o777) },
		"everybody may write the file":   func(dir string) error { return os.Chmod(file(dir), 0o666) },
		"the group may write the file":   func(dir string) error { return os.Chmod(file(dir), 0o664) },
		"a link": func(dir string) error {
			elsewhere := filepath.Join(t.TempDir(), "other.json")
			if err := os.Rename(file(dir), elsewhere); err != nil {
				return err
			}
			return os.Symlink(elsewhere, file(dir))
		},
		"another user's file":   func(dir string) error { return os.Chown(file(dir), 12345, 12345) },
		"another user's folder": func(dir string) error { return os.Chown(dir, 12345, 12345) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			err := hardware.Publish(dir, list())
			require.NoError(t, err)
			if err = tamper(dir); errors.Is(err, unix.EPERM) {
				t.Skip("only root can give files away")
			}
			require.NoError(t, err)
			require.ErrorIs(t, proctest.Try(hardware.Read(dir)).Err, folder.ErrUnsafe)
		})
	}
}

func TestReadRefusesWhatItDidNotWrite(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "{", "another schema": `{"schema":"genv.hardware/2","devices":[]}`, "no schema": `{"devices":[]}`,
		"an index below zero":   `{"schema":"genv.hardware/1","devices":[{"index":-1}]}`,
		"an index too large":    `{"schema":"genv.hardware/1","devices":[{"index":1024}]}`,
		"an index twice":        `{"schema":"genv.hardware/1","devices":[{"index":1},{"index":1}]}`,
		"a minor twice":         `{"schema":"genv.hardware/1","devices":[{"index":1,"minor":1},{"index":2,"minor":1}]}`,
		"a UUID with a comma":   `{"schema":"genv.hardware/1","devices":[{"index":1,"uuid":"GPU-1,GPU-2"}]}`,
		"a UUID with a quote":   `{"schema":"genv.hardware/1","devices":[{"index":1,"uuid":"GPU-'; reboot"}]}`,
		"a negative memory":     `{"schema":"genv.hardware/1","devices":[{"index":1,"total_memory":-1}]}`,
		"a control character":   `{"schema":"genv.hardware/1","devices":[{"index":1,"name":"\u001b"}]}`,
		"an address of nothing": `{"schema":"genv.hardware/1","devices":[{"index":1,"address":"x"}]}`,
		"more than a MiB":       `{"schema":"genv.hardware/1","devices":[]}` + strings.Repeat(" ", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "devices.json"), []byte(text), 0o600))
			require.Error(t, proctest.Try(hardware.Read(dir)).Err)
		})
	}
}

func TestGuard(t *testing.T) {
	own := proctest.Try(proc.FS{}.Stat(snapshot.PID(os.Getpid()))).OK(t)
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	const (
		ordered = `"order":{"mode":"enforce","lease_ms":60000},"given":"2026-11-22T11:59:30Z"`
		past    = `"order":{"mode":"enforce","lease_ms":60000},"given":"2026-11-22T11:59:00Z"`
		on      = `"until":"2026-11-22T12:00:30Z"`
	)
	for name, tt := range map[string]struct {
		text string
		mode os.FileMode
		want *snapshot.Guard
	}{
		"enforce":           {`{"mode":"enforce",` + on + `,` + ordered + `}`, 0o644, &snapshot.Guard{Mode: snapshot.GuardEnforce}},
		"watch, as ordered": {`{"mode":"watch",` + on + `,"problems":["users: a"]}`, 0o644, &snapshot.Guard{Mode: snapshot.GuardWatch}},
		"watch, although enforce was ordered": {
			`{"mode":"watch",` + on + `,` + ordered + `,"reason":"no room","problems":["users: many"]}`, 0o644,
			&snapshot.Guard{Mode: snapshot.GuardWatch, Reason: "no room; users: many"},
		},
		"unable": {
			`{"mode":"off",` + ordered + `,"reason":"the guard can't be attached","problems":["kernel: no BPF"]}`, 0o644,
			&snapshot.Guard{Mode: snapshot.GuardUnable, Reason: "the guard can't be attached; kernel: no BPF"},
		},
		"its keeper has died":              {`{"mode":"enforce","until":"2026-11-22T11:59:59Z",` + ordered + `}`, 0o644, &snapshot.Guard{Mode: snapshot.GuardUnable, Reason: "the process that kept the guard has ended"}},
		"its keeper and its order ended":   {`{"mode":"enforce","until":"2026-11-22T11:59:59Z",` + past + `}`, 0o644, &snapshot.Guard{Mode: snapshot.GuardOff, Reason: "the process that kept the guard has ended"}},
		"the order has ended":              {`{"mode":"off",` + past + `,"reason":"ended"}`, 0o644, &snapshot.Guard{Mode: snapshot.GuardOff, Reason: "ended"}},
		"without pins":                     {`{"mode":"enforce",` + on + `,"unpinned":true,"keeper":` + fmt.Sprint(os.Getpid()) + `,"keeper_start":` + fmt.Sprint(own.Start) + `}`, 0o644, &snapshot.Guard{Mode: snapshot.GuardEnforce}},
		"without pins, its start unknown":  {`{"mode":"enforce",` + on + `,"unpinned":true,"keeper":` + fmt.Sprint(os.Getpid()) + `}`, 0o644, &snapshot.Guard{Mode: snapshot.GuardEnforce}},
		"another process has its PID":      {`{"mode":"enforce",` + on + `,` + ordered + `,"unpinned":true,"keeper":` + fmt.Sprint(os.Getpid()) + `,"keeper_start":1}`, 0o644, &snapshot.Guard{Mode: snapshot.GuardUnable, Reason: "the process that kept the guard has ended"}},
		"pinned, and its keeper has died":  {`{"mode":"enforce",` + on + `,"keeper":` + fmt.Sprint(os.Getpid()) + `,"keeper_start":1}`, 0o644, &snapshot.Guard{Mode: snapshot.GuardEnforce}},
		"veto":                             {`{"mode":"off","veto":true,` + ordered + `,"reason":"guard.off exists"}`, 0o644, &snapshot.Guard{Mode: snapshot.GuardOff, Reason: "guard.off exists"}},
		"turned off":                       {`{"mode":"off","order":{"mode":"off"},"given":"2026-11-22T11:59:59Z","reason":"by root"}`, 0o644, &snapshot.Guard{Mode: snapshot.GuardOff, Reason: "by root"}},
		"no order":                         {`{"mode":"off","reason":"it has no order"}`, 0o644, &snapshot.Guard{Mode: snapshot.GuardOff}},
		"a mode of the future is unknown":  {`{"mode":"dance",` + on + `}`, 0o644, nil},
		"no mode is unknown":               {`{}`, 0o644, nil},
		"not understood is unknown":        {`{`, 0o644, nil},
		"what others can write is unknown": {`{"mode":"off"}`, 0o666, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, guardedBy(t, tt.text, tt.mode).Guard(now))
		})
	}
	require.Equal(t, &snapshot.Guard{Mode: snapshot.GuardOff}, hardware.Catalog{Run: t.TempDir()}.Guard(now), "none since the machine was started")
	require.Nil(t, hardware.Catalog{}.Guard(now))
}

func guardedBy(t *testing.T, file string, mode os.FileMode) hardware.Catalog {
	dir := t.TempDir()
	path := filepath.Join(dir, "guard.json")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	require.NoError(t, os.Chmod(path, mode))
	return hardware.Catalog{Run: dir}
}

func TestIsGuarded(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		text string
		mode os.FileMode
		want bool
	}{
		"enforce":                {`{"schema":"genv.guard/1","mode":"enforce","until":"2026-11-22T12:00:01Z"}`, 0o644, true},
		"watch":                  {`{"schema":"genv.guard/1","mode":"watch","until":"2026-11-22T12:00:01Z"}`, 0o644, true},
		"another time zone":      {`{"mode":"watch","until":"2026-11-22T13:00:01+01:00"}`, 0o644, true},
		"without an end":         {`{"mode":"watch"}`, 0o644, true},
		"off":                    {`{"schema":"genv.guard/1","mode":"off"}`, 0o644, false},
		"off until then":         {`{"schema":"genv.guard/1","mode":"off","until":"2026-11-22T12:00:01Z"}`, 0o644, false},
		"over":                   {`{"schema":"genv.guard/1","mode":"enforce","until":"2026-11-22T12:00:00Z"}`, 0o644, false},
		"a mode of the future":   {`{"mode":"dance"}`, 0o644, false},
		"not understood":         {`{`, 0o644, true},
		"everybody may write it": {`{"mode":"enforce"}`, 0o666, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, guardedBy(t, tt.text, tt.mode).Guarded(now))
		})
	}
	require.False(t, hardware.Catalog{Run: t.TempDir()}.Guarded(now), "no file")
	require.False(t, hardware.Catalog{Run: filepath.Join(t.TempDir(), "nothing")}.Guarded(now), "no folder")
}

func TestHasNodes(t *testing.T) {
	mknod := func(dir, name string, major uint32) {
		if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o666, int(unix.Mkdev(major, 255))); err != nil {
			t.Skip(err)
		}
	}
	for name, tt := range map[string]struct {
		make func(dir string)
		want bool
	}{
		"no driver":           {func(string) {}, false},
		"NVIDIA's":            {func(dir string) { mknod(dir, "nvidiactl", hardware.NodeMajor) }, true},
		"another major":       {func(dir string) { mknod(dir, "nvidiactl", 1) }, false},
		"a simulation's file": {func(dir string) { require.NoError(t, os.WriteFile(filepath.Join(dir, "nvidiactl"), nil, 0o600)) }, false},
		"Tegra":               {func(dir string) { mknod(dir, "nvidiactl", hardware.NodeMajor); mknod(dir, "nvgpu", 1) }, false},
		"WSL":                 {func(dir string) { mknod(dir, "dxg", 10) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tt.make(dir)
			require.Equal(t, tt.want, hardware.Catalog{Dev: dir}.HasNodes())
		})
	}
}

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
	require.NoError(t, s.Publish(found(3)))
	known := proctest.Try(hardware.Catalog{Run: s.Run, Proc: t.TempDir()}.Known()).OK(t)
	for i, want := range []int{1, 2, 0} {
		require.Equal(t, new(want), known[i].Minor, "the minor is not the index")
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
			require.Equal(t, tt.fails, tt.source.Publish(tt.found) != nil)
			require.NoFileExists(t, filepath.Join(run, "devices.json"))
		})
	}
}

func TestKnownWithoutAPublishedList(t *testing.T) {
	known := proctest.Try(hardware.Catalog{Run: t.TempDir(), Proc: driver(t, 1, 0)}.Known()).OK(t)
	require.Len(t, known, 2)
	require.False(t, known[0].TotalMemory().Known())
	require.ErrorIs(t, proctest.Try(hardware.Catalog{Run: t.TempDir(), Proc: t.TempDir()}.Known()).Err, hardware.ErrNotPublished)
	require.ErrorIs(t, proctest.Try(hardware.Catalog{Proc: t.TempDir()}.Known()).Err, fs.ErrNotExist)
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
