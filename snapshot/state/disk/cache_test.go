package disk_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
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
	machine := &counting{System: system.New("/proc")}
	cache := disk.NewCache(disk.New(dir, disk.Config{System: machine, Now: func() time.Time { return now }}))
	same := func() {
		t.Helper()
		want, err := other.Read(t.Context())
		require.NoError(t, err)
		for range 3 {
			got, err := cache.Read(t.Context())
			require.NoError(t, err)
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

	got, err := cache.Read(t.Context())
	require.NoError(t, err)
	got.Environments[0].EID = "spoilt"
	same()

	second := device
	second.Index = 1
	put([]snapshot.Environment{env}, []snapshot.Device{device, second})
	same()
	same()

	data, err := os.ReadFile(filepath.Join(dir, "envs.json"))
	require.NoError(t, err)
	changed := []byte(string(data))
	copy(changed[indexOf(t, data, `"eid": "1"`):], `"eid": "2"`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "envs.json"), changed, 0o666))
	require.NoError(t, os.Chtimes(filepath.Join(dir, "envs.json"), time.Now(), time.Now().Add(-time.Hour)))
	same()
	got, err = cache.Read(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, "2", got.Environments[0].EID, "as long and with an old time, and noticed")

	same()
	machine.gone = true
	got, err = cache.Read(t.Context())
	require.NoError(t, err)
	require.Empty(t, got.Environments, "its last process has ended")
}

// counting is a machine on which reads of the files can be counted: each
// asks for the boot id.
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

func indexOf(t *testing.T, data []byte, text string) int {
	for i := range data {
		if i+len(text) <= len(data) && string(data[i:i+len(text)]) == text {
			return i
		}
	}
	t.Fatalf("no %s in %s", text, data)
	return -1
}
