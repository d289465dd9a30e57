package notify_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// terminal is a new terminal of this test's user, and its name.
func terminal(t *testing.T) string {
	t.Helper()
	screen, tty, err := pty.Open()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = screen.Close(), tty.Close() })
	require.NoError(t, os.Chown(tty.Name(), os.Geteuid(), -1))
	return strings.TrimPrefix(tty.Name(), "/dev/")
}

// typedOn has something typed on a terminal at a time.
func typedOn(t *testing.T, name string, at time.Time) {
	require.NoError(t, os.Chtimes("/dev/"+name, at, time.Time{}))
}

// shell is a shell on a new terminal, which shows its user's notices.
type shell struct{ notify.Inbox }

func newShell(t *testing.T, box notify.Box, path string) *shell {
	return &shell{notify.Inbox{Box: box, UID: own(), Path: path, Terminal: terminal(t)}}
}

func (s *shell) shows(t *testing.T, at time.Time) (shown []string) {
	t.Helper()
	require.NoError(t, s.Show(false, at, func(list []notify.KeptMessage) error { shown = texts(list); return nil }))
	return shown
}

// pending says what a shell sees from outside: whether there is something to do.
func (s *shell) pending(t *testing.T) bool {
	t.Helper()
	box := proctest.Try(os.Stat(s.Box.Path(own()))).OK(t)
	mine, err := os.Stat(s.Path)
	return err != nil || box.ModTime().After(mine.ModTime())
}

func TestANoticeIsShownUntilItIsRead(t *testing.T) {
	box, path := newBox(t), filepath.Join(t.TempDir(), "a", "b", "read")
	login := newShell(t, box, path)
	now := time.Now() // the terminal was opened before
	require.Empty(t, login.shows(t, now))
	require.NoFileExists(t, path, "nothing is written for a user without notices")
	require.NoError(t, box.Keep(own(), "warning", nil, now))
	require.True(t, login.pending(t))
	require.Equal(t, []string{"warning"}, login.shows(t, now))
	require.Empty(t, login.shows(t, now), "it is on this terminal")
	require.True(t, login.pending(t))

	pane := newShell(t, box, path)
	require.Equal(t, []string{"warning"}, pane.shows(t, now.Add(time.Hour)), "no one has typed since")
	require.NoError(t, box.Keep(own(), "ended", nil, now.Add(time.Hour)))
	command := newShell(t, box, path)
	command.Terminal = ""
	for range 2 {
		require.Equal(t, []string{"warning", "ended"}, command.shows(t, now.Add(time.Hour)), "without a terminal it may have no reader")
	}
	require.Equal(t, []string{"ended"}, pane.shows(t, now.Add(time.Hour)))
	later := newShell(t, box, path)
	require.Equal(t, []string{"warning", "ended"}, later.shows(t, now.Add(2*time.Hour)), "both, in order")

	typedOn(t, later.Terminal, now.Add(2*time.Hour+time.Second))
	require.Equal(t, []string{"warning", "ended"}, newShell(t, box, path).shows(t, now.Add(3*time.Hour)), "the terminal may have answered by itself")
	typedOn(t, later.Terminal, now.Add(4*time.Hour))
	require.Empty(t, later.shows(t, now.Add(4*time.Hour)), "a prompt after something was typed")
	require.False(t, later.pending(t))
	require.Empty(t, newShell(t, box, path).shows(t, now.Add(5*time.Hour)))
	all := proctest.Try(box.Notices(own(), now)).OK(t)
	require.Equal(t, []string{"warning", "ended"}, texts(all))

	broken := errors.New("the terminal is gone")
	require.NoError(t, box.Keep(own(), "third", nil, now.Add(6*time.Hour)))
	require.True(t, later.pending(t))
	require.ErrorIs(t, later.Show(false, now, func([]notify.KeptMessage) error { return broken }), broken)
	require.Equal(t, []string{"third"}, later.shows(t, now.Add(6*time.Hour)), "what could not be shown is shown again")
	require.NoError(t, os.WriteFile(path, []byte(`["cut o`), 0o600))
	require.Len(t, later.shows(t, now), 3, "a lost memory shows them again")
}

// TestNoticesOfTerminals: what root showed on a terminal is read if something was typed there since.
func TestNoticesOfTerminals(t *testing.T) {
	for name, tt := range map[string]struct {
		typed time.Duration // after the message
		gone  bool
		want  []string
	}{
		"typed since":                     {typed: time.Minute},
		"typed before":                    {typed: -time.Minute, want: []string{"x"}},
		"closed":                          {typed: time.Minute, gone: true, want: []string{"x"}},
		"one answered a question at once": {typed: time.Second, want: []string{"x"}},
	} {
		t.Run(name, func(t *testing.T) {
			box, path, now := newBox(t), filepath.Join(t.TempDir(), "read"), time.Now().Add(time.Minute) // the terminals are older
			first := newShell(t, box, path)
			typedOn(t, first.Terminal, now.Add(tt.typed))
			if tt.gone {
				first.Terminal = "pts/999999"
			}
			require.NoError(t, box.Keep(own(), "x", []string{first.Terminal}, now))
			second := newShell(t, box, path)
			require.Equal(t, tt.want, second.shows(t, now.Add(time.Hour)))
			require.Equal(t, tt.gone, first.shows(t, now.Add(time.Hour)) != nil, "where it is there already")
		})
	}
	t.Run("the number was given to another terminal", func(t *testing.T) {
		box, path, then := newBox(t), filepath.Join(t.TempDir(), "read"), time.Now().Add(-time.Hour)
		again := newShell(t, box, path)
		require.NoError(t, box.Keep(own(), "x", []string{again.Terminal}, then))
		require.Equal(t, []string{"x"}, again.shows(t, time.Now()))
	})
	t.Run("what waits for a login stays longest", func(t *testing.T) {
		box := newBox(t)
		require.NoError(t, box.Keep(own(), "waits", nil, noon))
		for range 30 {
			require.NoError(t, box.Keep(own(), "shown", []string{"pts/1"}, noon))
		}
		all := proctest.Try(box.Notices(own(), noon)).OK(t)
		require.Len(t, all, 20)
		require.Equal(t, "waits", all[0].Text)
	})
}

// Of the panes of one tmux server that open at once, one shows the notices.
func TestShellsThatStartAtOnce(t *testing.T) {
	box, path, now := newBox(t), filepath.Join(t.TempDir(), "read"), time.Now()
	login := newShell(t, box, path)
	require.NoError(t, box.Keep(own(), "x", nil, now))
	require.NotEmpty(t, login.shows(t, now), "the shell from which tmux starts")
	var shown atomic.Int64
	var shells sync.WaitGroup
	for range 20 {
		pane := newShell(t, box, path)
		pane.Window = "/tmp/tmux-1000/default,1,0"
		shells.Go(func() {
			err := pane.Show(false, now, func([]notify.KeptMessage) error { shown.Add(1); return nil })
			if err != nil {
				t.Error(err)
			}
		})
	}
	shells.Wait()
	require.EqualValues(t, 1, shown.Load())
	require.NoError(t, box.Keep(own(), "ended", nil, now))
	pane := newShell(t, box, path)
	pane.Window = "/tmp/tmux-1000/default,1,0"
	require.Equal(t, []string{"x", "ended"}, pane.shows(t, now.Add(time.Second)), "both, in order")
}

// A home that can't be written shows them in each shell: better than in none.
func TestAHomeThatCannotBeWritten(t *testing.T) {
	box, shown := newBox(t), 0
	require.NoError(t, box.Keep(own(), "x", nil, noon))
	for _, path := range []string{"", "/proc/no/such/folder/seen", "/dev/null/seen"} {
		err := newShell(t, box, path).Show(false, noon, func(list []notify.KeptMessage) error { shown += len(list); return nil })
		require.ErrorIs(t, err, notify.ErrNotRemembered)
	}
	require.Equal(t, 3, shown)
}

// What is remembered of many terminals in long windows is read again.
func TestManyAppearances(t *testing.T) {
	box, path := newBox(t), filepath.Join(t.TempDir(), "read")
	name, now := terminal(t), time.Now()
	for i := range 12 {
		require.NoError(t, box.Keep(own(), "warning "+strconv.Itoa(i), nil, now))
	}
	shows := func(window int, at time.Time) (n int) {
		s := notify.Inbox{Box: box, UID: own(), Path: path, Terminal: name, Window: "/run/user/1001/vscode-ipc-" + strconv.Itoa(window) + strings.Repeat("-0123456789", 6) + ".sock"}
		require.NoError(t, s.Show(true, at, func(list []notify.KeptMessage) error { n = len(list); return nil }))
		return n
	}
	last := &shell{notify.Inbox{Box: box, UID: own(), Path: path, Terminal: name}}
	for window := range 35 {
		shows(window, now.Add(time.Duration(window)*time.Second))
		require.Empty(t, last.shows(t, now.Add(time.Minute)), "they are on this terminal")
	}
}
