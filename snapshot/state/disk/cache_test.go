package disk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// TestCache: a Cache returns what a Store would read.
func TestCache(t *testing.T) {
	dir := t.TempDir()
	self := snapshot.PID(os.Getpid())
	env := snapshot.Environment{EID: "1", UID: snapshot.UID(os.Getuid()), Creation: snapshot.DateOf(time.Now()), PIDs: []snapshot.PID{self}}
	device := snapshot.Device{Index: 0, TotalMemory: snapshot.MiB(100), Attachments: []snapshot.Attachment{}}
	other := disk.New(dir, disk.Config{})
	put := func(envs []snapshot.Environment, devices []snapshot.Device) {
		require.NoError(t, other.Update(t.Context(), func(b *state.Files) error {
			b.Environments, b.Devices = envs, devices
			return nil
		}))
	}
	put([]snapshot.Environment{env}, []snapshot.Device{device})
	now := time.Now() // within the tick in which the files were written
	machine := &counting{System: system.New(proc.FS{}, nss.Passwd{})}
	cache := disk.NewCache(disk.New(dir, disk.Config{System: machine, Now: func() time.Time { return now }}))
	same := func() {
		t.Helper()
		want := read(t, other)
		for range 3 {
			got := read(t, cache)
			want.At = got.At
			require.Equal(t, want, got)
		}
	}
	before := machine.boots
	same()
	require.Greater(t, machine.boots, before, "files that may be written again within the tick are not trusted")
	now = now.Add(time.Hour)
	same()
	before = machine.boots
	same()
	require.Equal(t, before, machine.boots, "nothing changed, so the files were not read")

	got := read(t, cache)
	got.Environments[0].EID = "spoilt"
	same()

	second := device
	second.Index = 1
	put([]snapshot.Environment{env}, []snapshot.Device{device, second})
	same()
	same()

	data := proctest.ReadFile(t, filepath.Join(dir, "envs.json"))
	changed := strings.Replace(string(data), `"eid": "1"`, `"eid": "2"`, 1)
	require.NotEqual(t, string(data), changed)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "envs.json"), []byte(changed), 0o666))
	require.NoError(t, os.Chtimes(filepath.Join(dir, "envs.json"), time.Now(), time.Now().Add(-time.Hour)))
	same()
	got = read(t, cache)
	require.EqualValues(t, "2", got.Environments[0].EID, "as long and with an old time, and noticed")

	same()
	machine.gone = true
	got = read(t, cache)
	require.Empty(t, got.Environments, "its last process has ended")
}

// The files stay as they are when root's note alone learns which GPUs are registered, as after a boot.
func TestCacheReadsWhatWasRegistered(t *testing.T) {
	dir, options := filepath.Join(t.TempDir(), "genv"), disk.Config{RootDir: t.TempDir(), Now: func() time.Time { return time.Now().Add(time.Hour) }}
	store, found := disk.New(dir, options), gpus(1)
	proctest.Try(store.RegisterDevices(t.Context(), found)).OK(t)
	cache := disk.NewCache(disk.New(dir, options))
	for _, uuid := range []snapshot.GPUUUID{"", "GPU-1"} {
		found[0].UUID = uuid
		proctest.Try(cache.RegisterDevices(t.Context(), found)).OK(t)
		for range 2 {
			require.Equal(t, uuid, read(t, cache).Devices[0].UUID)
		}
	}
}

// counting is a machine on which reads of the files can be counted: each asks for the boot id.
type counting struct {
	system.System
	boots int
	gone  bool
}

func (c *counting) BootID() string {
	c.boots++
	return c.System.BootID()
}

func (c *counting) Process(pid snapshot.PID) system.ProcessStatus {
	if c.gone {
		return system.ProcessStatus{Liveness: system.Gone}
	}
	return c.System.Process(pid)
}

// busyFolder is a state folder with as many environments of this process as asked for, and eight devices.
func busyFolder(b *testing.B, environments int) string {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "genv")
	store := disk.New(dir, disk.Config{})
	proctest.Try(store.RegisterDevices(b.Context(), gpus(8))).OK(b)
	require.NoError(b, store.Update(b.Context(), func(files *state.Files) error {
		for i := range environments {
			files.Environments = append(files.Environments, snapshot.Environment{
				EID: snapshot.EnvID(rune('a'+i%26)) + snapshot.EnvID(rune('0'+i/26)), UID: snapshot.UID(os.Getuid()),
				Creation: at("12:00:00"), PIDs: []snapshot.PID{snapshot.PID(os.Getpid())},
			})
		}
		return nil
	}))
	return dir
}

func BenchmarkRead(b *testing.B) {
	store := disk.New(busyFolder(b, 20), benchOptions(b))
	for b.Loop() {
		proctest.Try(store.Read(b.Context())).OK(b)
	}
}

func BenchmarkCachedRead(b *testing.B) {
	options := benchOptions(b)
	options.Now = func() time.Time { return time.Now().Add(time.Hour) } // the files are old
	cache := disk.NewCache(disk.New(busyFolder(b, 20), options))
	for b.Loop() {
		proctest.Try(cache.Read(b.Context())).OK(b)
	}
}

func BenchmarkUpdate(b *testing.B) {
	store, n := disk.New(busyFolder(b, 20), benchOptions(b)), 0
	for b.Loop() {
		n++
		require.NoError(b, store.Update(b.Context(), func(files *state.Files) error {
			files.Environments[0].Config.GPUs = &n
			return nil
		}))
	}
}

// benchOptions are those of root's genv, which keeps notes and a copy.
func benchOptions(b *testing.B) disk.Config {
	b.Helper()
	root := filepath.Join(b.TempDir(), "root")
	require.NoError(b, os.Mkdir(root, 0o755))
	return disk.Config{RootDir: root}
}
