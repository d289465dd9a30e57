package ending_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// host is a host with a register, and the time since its boot.
type host struct {
	*ending.Register
	t  *testing.T
	up time.Duration
}

func newHost(t *testing.T) *host {
	h := &host{t: t, up: time.Hour}
	h.Register = &ending.Register{
		Path: filepath.Join(t.TempDir(), "run", "asked.json"), BootID: "b1",
		SinceBoot: func() (time.Duration, error) { return h.up, nil },
	}
	return h
}

// ask asks a process for a minute, and reports whether it was asked.
func (h *host) ask(by string, p proc.ID) bool {
	h.t.Helper()
	end, earlier, err := h.Begin(ending.EndRequest{By: by, Grace: time.Minute}, []proc.ID{p})
	require.NoError(h.t, err)
	if earlier[0] != nil {
		return false
	}
	require.NoError(h.t, end([]proc.ID{p}))
	return true
}

func TestRegister(t *testing.T) {
	h := newHost(t)
	p := proc.ID{PID: 7, Start: 100}
	require.True(t, h.ask("a", p))
	require.False(t, h.ask("b", p))
	require.True(t, h.ask("b", proc.ID{PID: 7, Start: 101}), "the PID was reused")
	require.True(t, h.ask("b", proc.ID{PID: 8, Start: 100}))

	h.up += 10 * time.Second
	end, earlier, err := h.Begin(ending.EndRequest{By: "b", Grace: time.Hour}, []proc.ID{p, {PID: 9}})
	require.NoError(t, err)
	require.Equal(t, []*ending.Earlier{{Ago: 10 * time.Second, Left: 50 * time.Second, Sent: true}, nil}, earlier)
	require.NoError(t, end(nil), "neither got a signal")
	require.True(t, h.ask("c", proc.ID{PID: 9}))
	require.False(t, h.ask("c", p), "it is still that of the first one")
	h.BootID = "b2"
	require.True(t, h.ask("b", p), "another boot")
}

// Of many orders about a process, one asks it.
func TestManyAtATime(t *testing.T) {
	h := newHost(t)
	h.Path = filepath.Join(proctest.MemoryDir(t), "run", "asked.json") // where no disk makes the lock's holders slow
	var all sync.WaitGroup
	var got atomic.Int32
	for _, by := range []string{"a", "b", "", "d", "e"} {
		all.Go(func() {
			for pid := range snapshot.PID(20) {
				if h.ask(by, proc.ID{PID: pid}) {
					got.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 20, got.Load())
}

// However much is asked, and by whatever ids, the file stays small, and what is over is forgotten.
func TestTheListIsBounded(t *testing.T) {
	h := newHost(t)
	var processes []proc.ID
	for pid := range snapshot.PID(20_000) {
		processes = append(processes, proc.ID{PID: pid, Start: 1 << 62})
	}
	request := ending.EndRequest{By: strings.Repeat("\x00", 1<<16), Order: strings.Repeat("x", 1<<16), Grace: time.Hour}
	end, _, err := h.Begin(request, processes)
	require.NoError(t, err)
	require.NoError(t, end(processes))
	size := func() int64 {
		info := proctest.Try(os.Stat(h.Path)).OK(t)
		require.EqualValues(t, 0o600, info.Mode())
		return info.Size()
	}
	require.Less(t, size(), int64(2<<20))
	require.False(t, h.ask("b", processes[0]), "it can still be read")
	h.up += 2 * time.Hour
	require.True(t, h.ask("b", processes[0]))
	require.Less(t, size(), int64(1<<10))
}

// What can't be read is an error, after which the caller goes on; what is damaged is replaced.
func TestWhatIsInThePlaceOfTheFile(t *testing.T) {
	for name, row := range map[string]struct {
		put   func(path string) error
		fails bool
	}{
		"damaged":                {func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) }, false},
		"another version":        {func(path string) error { return os.WriteFile(path, []byte(`{"schema":"x"}`), 0o600) }, false},
		"a link":                 {func(path string) error { return os.Symlink("/etc/passwd", path) }, true},
		"a FIFO":                 {func(path string) error { return unix.Mkfifo(path, 0o600) }, true},
		"a folder":               {func(path string) error { return os.Mkdir(path, 0o700) }, true},
		"others may write there": {func(path string) error { return os.Chmod(filepath.Dir(path), 0o777) }, true},
	} {
		h := newHost(t)
		require.NoError(t, os.Mkdir(filepath.Dir(h.Path), 0o755))
		require.NoError(t, row.put(h.Path))
		_, earlier, err := h.Begin(ending.EndRequest{By: "a"}, []proc.ID{{PID: 7}})
		require.Equal(t, row.fails, err != nil, "%s: %v", name, err)
		require.Equal(t, []*ending.Earlier{nil}, earlier, name)
	}
}

func TestPath(t *testing.T) {
	env := map[string]string{"GENV_ROOT_DIR": "/r"}
	get := func(name string) string { return env[name] }
	require.Equal(t, "/r/run/asked.json", ending.Path(get))
	require.NotEqual(t, service.AskedNote.Name, filepath.Base(ending.Path(get)), "the service's note is in the same folder")
	env["GENV_TMPDIR"] = "/other"
	require.NotEqual(t, "/r/run/asked.json", ending.Path(get))
}
