package disk_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

func uidOf(n snapshot.UID) *snapshot.UID { return &n }

func started(ticks snapshot.StartTime) system.ProcessStatus {
	return system.ProcessStatus{Liveness: system.Alive, Start: ticks}
}

func TestAProcessIsIdentifiedByItsStartTime(t *testing.T) {
	unseen := system.ProcessStatus{Liveness: system.Unknown}
	tests := []struct {
		name  string
		then  system.ProcessStatus
		now   system.ProcessStatus
		boot  string
		other func(t *testing.T, dir string) // what happened in between
		lives bool
	}{
		{"the same process", started(100), started(100), "boot-1", nil, true},
		{"another process with its PID", started(100), started(200), "boot-1", nil, false},
		{"the same numbers after a reboot", started(100), started(100), "boot-2", nil, false},
		{"a start time that is no longer known", started(100), unseen, "boot-1", nil, true},
		{"a start time that was unknown then", unseen, started(200), "boot-1", nil, true},
		{"an unknown boot", started(100), started(100), "", nil, true},
		{"another process, registered by 1.4.3", started(100), started(200), "boot-1", rewrite, true},
		{"1.4.3 after a reboot", started(100), started(100), "boot-2", rewrite, true},
		{"identities that are lost", started(100), started(200), "boot-1", removeIdentities, true},
		{"identities that are garbage", started(100), started(200), "boot-1", garbleIdentities, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := sharedDir(t)
			machine := &fakeSystem{boot: "boot-1", processes: map[snapshot.PID]system.ProcessStatus{7: tt.then}}
			store := disk.New(dir, disk.Config{System: machine})
			_, err := store.RegisterDevices(t.Context(), gpus(2))
			require.NoError(t, err)
			require.NoError(t, store.Update(t.Context(), enter(7)))
			if tt.other != nil {
				tt.other(t, dir)
			}
			machine.processes[7], machine.boot = tt.now, tt.boot
			files, err := store.Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, tt.lives, files.Environment("7") != nil)
			require.Equal(t, tt.lives, len(files.AttachedTo("7")) == 1)
		})
	}
}

// rewrite writes envs.json in place with the same content, as 1.4.3 may.
func rewrite(t *testing.T, dir string) {
	path := filepath.Join(dir, "envs.json")
	data := []byte(readFile(t, path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, writeInPlace(path, data))
	// The clock of a file system ticks in milliseconds; a test is faster.
	later := info.ModTime().Add(5e6)
	require.NoError(t, os.Chtimes(path, later, later))
}

func removeIdentities(t *testing.T, dir string) {
	require.NoError(t, os.Remove(filepath.Join(dir, "genv.identities.json")))
}

func garbleIdentities(t *testing.T, dir string) {
	put(t, dir, "genv.identities.json", `{"start_times": {"7": "no number"}}`)
}

func TestAReusedPIDIsAnotherProcess(t *testing.T) {
	machine := &fakeSystem{boot: "boot-1", processes: map[snapshot.PID]system.ProcessStatus{7: started(100)}}
	store := disk.New(sharedDir(t), disk.Config{System: machine})
	_, err := store.RegisterDevices(t.Context(), gpus(2))
	require.NoError(t, err)
	require.NoError(t, store.Update(t.Context(), enter(7)))
	machine.processes[7] = started(200)
	require.NoError(t, store.Update(t.Context(), enter(7)), "the old one is gone, so this is a new environment")
	files, err := store.Read(t.Context())
	require.NoError(t, err)
	require.NotNil(t, files.Environment("7"))
}

func TestStartTimesOfProcessesOf143AreRecorded(t *testing.T) {
	dir := recordedFolder(t)
	machine := &fakeSystem{boot: "boot-1", processes: map[snapshot.PID]system.ProcessStatus{
		25936: started(1), 25937: started(2), 25938: started(3),
	}}
	store := disk.New(dir, disk.Config{System: machine})
	_, err := store.Read(t.Context())
	require.NoError(t, err)
	maps.Copy(machine.processes, map[snapshot.PID]system.ProcessStatus{25938: started(30)})
	files, err := store.Read(t.Context())
	require.NoError(t, err)
	require.NotNil(t, files.Environment("1667"))
	require.Nil(t, files.Environment("2020"))
}

func TestAReadThatChangesNothingWritesNothing(t *testing.T) {
	dir := recordedFolder(t)
	store := disk.New(dir, disk.Config{System: &fakeSystem{boot: "boot-1"}})
	_, err := store.Read(t.Context())
	require.NoError(t, err)
	before := stats(t, dir)
	_, err = store.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, stats(t, dir))
}

func stats(t *testing.T, dir string) string {
	t.Helper()
	var b bytes.Buffer
	for _, name := range namesIn(t, dir) {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		b.WriteString(name + info.ModTime().String() + "\n")
	}
	return b.String()
}
