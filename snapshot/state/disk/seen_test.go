package disk_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// clocked is a machine whose clocks a test sets, with a store of root's on it.
type clocked struct {
	*fakeSystem
	dir, root string
	wall      time.Time
}

func newClocked(t *testing.T) *clocked {
	return &clocked{&fakeSystem{boot: "1", uptime: 5000}, sharedDir(t), filepath.Join(t.TempDir(), "root"), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
}

func (c *clocked) store() *disk.Store {
	return disk.New(c.dir, disk.Config{System: c, RootDir: c.root, Now: func() time.Time { return c.wall }})
}

func (c *clocked) pass(d time.Duration) {
	c.wall, c.uptime = c.wall.Add(d), c.uptime+snapshot.StartTime(d/(10*time.Millisecond))
}

// since is when the age of the attachment to device 0 begins, as a look now shows it.
func (c *clocked) since(t *testing.T, s *disk.Store) string {
	t.Helper()
	f := read(t, s)
	since := f.Devices[0].Attachments[0].Since
	if since == 0 {
		return ""
	}
	return c.wall.Add(-c.uptime.Sub(since)).Format(time.TimeOnly)
}

// attach is what 1.4.3, or a user's genv, does, with a time in whatever zone.
func (c *clocked) attach(t *testing.T, written string) {
	t.Helper()
	users := disk.New(c.dir, disk.Config{System: c})
	require.NoError(t, users.Update(t.Context(), func(f *state.Files) error {
		if f.Devices == nil {
			f.MergeDevices(gpus(1))
		}
		f.Detach("7")
		if f.Environment("7") == nil {
			require.NoError(t, f.Activate(state.Activation{EID: "7", UID: snapshot.UID(os.Getuid()), PID: snapshot.PID(os.Getpid()), At: at(written)}))
		}
		_, err := f.Attach(state.AttachRequest{EID: "7", Count: 1, At: at(written)})
		return err
	}))
}

func TestRootsLooksBoundAges(t *testing.T) {
	c := newClocked(t)
	s := c.store()
	_, err := s.Read(t.Context())
	require.ErrorIs(t, err, state.ErrNoDevices)
	c.pass(10 * time.Second)
	c.attach(t, "04:00:10") // with TZ=America/Los_Angeles
	c.pass(10 * time.Second)
	require.Equal(t, "12:00:00", c.since(t, s), "not before the last look without it")
	c.pass(time.Hour)
	require.Equal(t, "12:00:00", c.since(t, c.store()), "after a restart")
	c.pass(time.Second)
	c.attach(t, "21:00:21") // with TZ=Asia/Tokyo
	c.pass(time.Second)
	require.Equal(t, "13:00:22", c.since(t, s), "not after the first look with it")
}

// The time of the last look is written once a minute, and is known better by who looks.
func TestTheNoteOfLooksIsWrittenRarely(t *testing.T) {
	c := newClocked(t)
	c.attach(t, "11:59:00")
	s := c.store()
	require.Equal(t, "12:00:00", c.since(t, s))
	notes, err := filepath.Glob(filepath.Join(c.root, "*", "seen.json"))
	require.NoError(t, err)
	require.Len(t, notes, 1)
	written := readFile(t, notes[0])
	c.pass(59 * time.Second)
	require.Equal(t, "12:00:00", c.since(t, s))
	require.Equal(t, written, readFile(t, notes[0]))
	c.pass(time.Second)
	require.Equal(t, "12:00:00", c.since(t, s))
	require.NotEqual(t, written, readFile(t, notes[0]))
}

// Who can't write the note only reads it, and without a note nothing is known of ages.
func TestOtherUsersOnlyReadTheNote(t *testing.T) {
	proctest.NeedRoot(t)
	c := newClocked(t)
	require.NoError(t, os.Chmod(filepath.Dir(c.root), 0o755)) //nolint:gosec // users enter it
	c.attach(t, "11:59:00")
	f, err := disk.New(c.dir, disk.Config{System: c, Now: func() time.Time { return c.wall }}).Read(t.Context())
	require.NoError(t, err)
	require.Zero(t, f.Devices[0].Attachments[0].Since)
	require.Equal(t, "12:00:00", c.since(t, c.store()))
	notes, err := filepath.Glob(filepath.Join(c.root, "*", "seen.json"))
	require.NoError(t, err)
	st, err := os.Stat(notes[0])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), st.Mode().Perm())
}

// The ages stay when root takes the state over, and when it gives it back.
func TestAgesOutliveATakeover(t *testing.T) {
	proctest.NeedRoot(t)
	c := newClocked(t)
	c.attach(t, "11:59:00")
	s := c.store()
	require.Equal(t, "12:00:00", c.since(t, s))
	c.pass(time.Hour)
	_, _, err := s.TakeOver(t.Context(), nil)
	require.NoError(t, err)
	c.pass(time.Hour)
	require.Equal(t, "12:00:00", c.since(t, s))
	_, err = s.HandOver(t.Context(), nil)
	require.NoError(t, err)
	c.pass(time.Hour)
	require.Equal(t, "12:00:00", c.since(t, s))
}
