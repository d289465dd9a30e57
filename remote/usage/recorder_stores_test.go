package usage_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// lab has the options of the real databases.
var lab = store.Options{Fleet: "lab", In: time.UTC}

func opening(place string) func() (usage.Store, error) {
	return func() (usage.Store, error) { return store.Open(context.Background(), place, lab) }
}

// keptIn is what a database has.
func keptIn(t *testing.T, place string) (usage.Mark, *usage.Report) {
	s := proctest.Try(store.OpenToRead(t.Context(), place, lab)).OK(t)
	defer s.Close()
	mark := proctest.Try(s.Mark(t.Context())).OK(t)
	r := proctest.Try(s.Report(t.Context(), usage.Query{By: usage.ByDay, Until: mark.Until})).OK(t)
	return mark, r
}

// With the real database, and with the time of the machine.
func TestDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), store.FileName)
	r := start(t, opening(path), 0)
	round := controller.Round{Number: 1, Cluster: snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: new(snapshot.Snapshot)}}}}
	r.Consume(round.AtEnd(), nil)
	r.Close()
	mark, _ := keptIn(t, path)
	require.True(t, mark.Ended)
	require.InDelta(t, time.Now().Unix(), mark.Until, 60)
	r.requireSaid()
}

// A full disk delays no cycle; with room again, nothing is missing in the real database.
func TestAFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=512k"); err != nil {
		t.Skipf("only root can mount a small file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, 0)) })
	path, ballast := filepath.Join(disk, store.FileName), filepath.Join(disk, "ballast")
	synctest.Test(t, func(t *testing.T) {
		r := start(t, opening(path), 0)
		r.cycles(30)
		synctest.Wait()
		_ = os.WriteFile(ballast, make([]byte, 1<<20), 0o600) // as much as fits
		r.cyclesSay(400, "can't be written: it is tried again")
		require.NoError(t, os.Remove(ballast))
		r.cyclesSay(20, "can't be written", "is written again: nothing is missing")
		r.Close()
	})
	_, kept := keptIn(t, path)
	require.Equal(t, int64(4500), kept.Total.Attached)
}

// A database that is damaged when the controller starts is said and stays as it is. The controller
// goes on; when the file is moved aside, a new one has what waited.
func TestADamagedDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), store.FileName)
	require.NoError(t, proctest.Try(opening(path)()).OK(t).Close())
	damaged := proctest.ReadFile(t, path)
	copy(damaged, bytes.Repeat([]byte("damaged "), 512))
	require.NoError(t, os.WriteFile(path, damaged, 0o600))
	synctest.Test(t, func(t *testing.T) {
		r := start(t, opening(path), 0)
		r.cyclesSay(30, usage.ErrDamaged.Error())
		require.Equal(t, damaged, proctest.ReadFile(t, path))
		require.NoError(t, os.Rename(path, path+".aside"))
		r.cyclesSay(20, usage.ErrDamaged.Error(), "nothing is missing")
		r.Close()
	})
	_, kept := keptIn(t, path)
	require.Equal(t, int64(500), kept.Total.Attached)
}

// A real server is killed: that delays no cycle, and is said; once it is back nothing is missing.
func TestAServerThatIsLost(t *testing.T) {
	server := servers.StartPostgres(t, "")
	step, done := make(chan func(), 1), make(chan struct{})
	go func() { // with the time of the machine
		for do := range step {
			do()
			done <- struct{}{}
		}
	}()
	defer close(step)
	outside := func(do func()) { step <- do; <-done }
	synctest.Test(t, func(*testing.T) {
		r := start(t, opening(server.URL()), 0)
		r.cyclesSay(30)
		outside(func() { server.Kill() })
		r.cyclesSay(400, "can't be written: it is tried again")
		outside(func() { server.Restart() })
		r.cyclesSay(20, "can't be written", "is written again: nothing is missing")
		r.Close()
	})
	_, kept := keptIn(t, server.URL())
	require.Equal(t, int64(4500), kept.Total.Attached)
	require.Zero(t, kept.Missing)
}
