package disk_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// requireFree requires that no process holds the lock of the state files.
func requireFree(t *testing.T, dir string) {
	t.Helper()
	lock, err := os.Open(filepath.Join(dir, "genv.lock"))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	require.NoError(t, err)
	defer lock.Close()
	require.NoError(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}

// What users can make slow is not read with the lock held, whatever it is needed for.
func TestProcessesAreReadWithoutTheLock(t *testing.T) {
	gone := dead(1102)
	roots := map[snapshot.PID]system.ProcessStatus{1102: {Liveness: system.Alive, Owner: new(snapshot.UID)}}
	look := func(ctx context.Context, s *disk.Store) error {
		_, err := s.Read(ctx)
		return err
	}
	takeOver := func(ctx context.Context, s *disk.Store) error {
		_, _, err := s.TakeOver(ctx, nil)
		return err
	}
	for name, tt := range map[string]struct {
		first, does func(context.Context, *disk.Store) error
		processes   map[snapshot.PID]system.ProcessStatus
	}{
		"what remains": {processes: gone, does: look},
		"of root":      {processes: roots, does: look},
		"who leaves": {does: func(ctx context.Context, s *disk.Store) error {
			return s.Update(ctx, func(f *state.Files) error { f.Deactivate(1102); return nil })
		}},
		"taken over": {processes: gone, does: takeOver},
		"handed over": {first: takeOver, processes: gone, does: func(ctx context.Context, s *disk.Store) error {
			_, err := s.HandOver(ctx, nil)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			store, machine, dir, root := kept(t)
			if tt.first != nil {
				require.NoError(t, tt.first(t.Context(), store))
			}
			machine.processes, machine.running = tt.processes, []system.RunningProcess{job(50, alice, "1102")}
			readings := 0
			machine.onRead = func() {
				readings++
				requireFree(t, dir)
				requireFree(t, filepath.Join(root, "host"))
			}
			require.NoError(t, tt.does(t.Context(), store))
			require.Positive(t, readings)
			require.LessOrEqual(t, readings, 4)
			files := read(t, store)
			require.Equal(t, []snapshot.PID{50}, files.Environment("1102").PIDs)
			require.Equal(t, indices{0}, files.AttachedTo("1102"))
		})
	}
}

// Between the reading and the transaction, others change the files: an environment that got a process
// meanwhile stays until the next look.
func TestTheFilesChangeAfterTheReading(t *testing.T) {
	store, machine, dir, _ := kept(t)
	machine.processes = dead(1102)
	machine.onRead = func() {
		machine.onRead = nil
		require.NoError(t, everyoneLives(dir).Update(t.Context(), func(b *state.Files) error {
			return b.Activate(state.Activation{EID: "2020", UID: alice, PID: 2020, At: at("12:00:00")})
		}))
		machine.processes[2020] = system.ProcessStatus{Liveness: system.Gone}
	}
	files := read(t, store)
	require.Nil(t, files.Environment("1102"))
	require.NotNil(t, files.Environment("2020"), "its job may have begun after the reading")
	machine.running = []system.RunningProcess{job(50, alice, "2020")}
	files = read(t, store)
	require.Equal(t, []snapshot.PID{50}, files.Environment("2020").PIDs)
}

// A PID that another process has got since the reading doesn't keep an environment.
func TestAProcessEndsAfterTheReading(t *testing.T) {
	store, machine, _, _ := kept(t)
	machine.processes = map[snapshot.PID]system.ProcessStatus{1102: {Liveness: system.Gone}, 50: {Liveness: system.Alive, Start: 6000, Owner: new(alice)}}
	machine.running = []system.RunningProcess{job(50, alice, "1102")} // its start time is 50
	files := read(t, store)
	require.Equal(t, []snapshot.PID{50}, files.Environment("1102").PIDs)
	machine.running = nil
	files = read(t, store)
	require.Nil(t, files.Environment("1102"))
}

// lockFree is a System that requires the lock of a state folder to be free while processes are looked for.
type lockFree struct {
	system.System
	t     *testing.T
	dir   string
	walks int
}

func (l *lockFree) Running(wanted func(snapshot.UID) bool) ([]system.RunningProcess, bool) {
	l.walks++
	requireFree(l.t, l.dir)
	list, _ := l.System.Running(wanted)
	return list, true // the rest of this machine may have uids of unknown accounts
}

// A process that the file system of its user holds is not waited for with the lock held.
func TestAStalledProcessIsReadWithoutTheLock(t *testing.T) {
	pid, uid := proctest.Stall(t, false)
	reader := &proc.ReaderProcess{Command: []string{"/proc/self/exe", "read"}}
	defer reader.Close()
	dir := sharedDir(t)
	machine := &lockFree{System: system.New(proc.FS{Reader: reader}, nss.Passwd{}), t: t, dir: dir}
	store := disk.New(dir, disk.Config{System: machine})
	register(t, store, 1)
	shell := sleeper(t, nil)
	require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
		if err := b.Activate(state.Activation{EID: "1", UID: uid, PID: pid, At: at("12:00:00")}); err != nil {
			return err
		}
		return b.Activate(state.Activation{EID: "2", UID: uid, PID: shell.pid, At: at("12:00:00")})
	}))
	shell.end()
	began := time.Now()
	files := read(t, store)
	require.NotNil(t, files.Environment("1"))
	require.Nil(t, files.Environment("2"))
	require.NoError(t, store.Update(t.Context(), func(b *state.Files) error { b.Deactivate(pid); return nil }))
	files = read(t, store)
	require.Nil(t, files.Environment("1"), "what can't be read does not hold who leaves")
	require.Equal(t, 2, machine.walks)
	require.Less(t, time.Since(began), 3*time.Second)
}
