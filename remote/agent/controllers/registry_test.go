package controllers_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/agent/controllers"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// machine is a host whose clocks a test sets.
type machine struct {
	t    *testing.T
	path string
	boot string
	up   time.Duration
	now  time.Time
}

func newMachine(t *testing.T) *machine {
	return &machine{t: t, path: filepath.Join(t.TempDir(), "run", "controllers.json"), boot: "b1", up: time.Hour, now: noon}
}

// registry is that of a conversation with a controller.
func (m *machine) registry() *controllers.Registry {
	return controllers.NewRegistry(controllers.Options{
		Path: m.path, BootID: m.boot, Login: "admin",
		Now: func() time.Time { return m.now }, SinceBoot: func() (time.Duration, error) { return m.up, nil },
	})
}

func (m *machine) after(d time.Duration) { m.up, m.now = m.up+d, m.now.Add(d) }

// contact are the ids of the others.
func (m *machine) contact(r *controllers.Registry, c controllers.Controller) string {
	m.t.Helper()
	others, err := r.Contact(c, false)
	require.NoError(m.t, err)
	var ids []string
	for _, o := range others {
		ids = append(ids, o.ID)
	}
	return strings.Join(ids, " ")
}

func named(id string) controllers.Controller {
	return controllers.Controller{ID: id, Hostname: "jump", Account: "genv", PID: 1, Started: noon, Policy: "p", IntervalMS: 1000}
}

func TestTwoControllersKnowOfEachOther(t *testing.T) {
	m := newMachine(t)
	a, b := m.registry(), m.registry()
	require.Empty(t, m.contact(a, named("a")))
	m.after(time.Minute / 4)
	require.Equal(t, "a", m.contact(b, named("b")))
	require.Equal(t, "b", m.contact(a, named("a")), "with the next request")
	others, err := b.Contact(named("b"), false)
	require.NoError(t, err)
	require.Equal(t, []controllers.Seen{{Controller: named("a"), Login: "admin", Since: noon}}, others)

	changed := named("a")
	changed.Policy = "another"
	m.contact(a, changed)
	others, err = b.Contact(named("b"), false)
	require.NoError(t, err)
	require.Equal(t, "another", others[0].Policy)
	require.Equal(t, noon, others[0].Since)

	require.NoError(t, a.Leave())
	require.Empty(t, m.contact(b, named("b")))
	require.NoError(t, m.registry().Leave(), "it never was in contact")
}

// The host lets one controller act and refuses the one before it, which acts no more: neither
// of them hears of the other. Who isn't fenced, such as one on the host itself, goes on.
func TestAControllerThatWasReplaced(t *testing.T) {
	m := newMachine(t)
	m.contact(m.registry(), named("local"))
	_, err := m.registry().Contact(named("first"), true)
	require.NoError(t, err)
	second := m.registry()
	others, err := second.Contact(named("second"), true)
	require.NoError(t, err)
	require.Len(t, others, 1)
	require.Equal(t, "local", others[0].ID)
	require.Equal(t, "second", m.contact(m.registry(), named("local")))
	others, err = m.registry().Contact(named("first"), true) // it was let in again
	require.NoError(t, err)
	require.Len(t, others, 1)
	require.Equal(t, "local first", m.contact(m.registry(), named("another")))
}

func TestAControllerIsForgotten(t *testing.T) {
	for name, row := range map[string]struct {
		interval time.Duration
		kept     time.Duration
	}{
		"often":       {time.Second, 20 * time.Second},
		"every 10 s":  {10 * time.Second, 30 * time.Second},
		"every hour":  {time.Hour, 3 * time.Hour},
		"a single go": {0, 20 * time.Second},
	} {
		m := newMachine(t)
		a, b := m.registry(), m.registry()
		c := named("a")
		c.IntervalMS = row.interval.Milliseconds()
		m.contact(a, c)
		m.after(row.kept)
		require.Equal(t, "a", m.contact(b, named("b")), name)
		m.after(time.Second)
		require.Empty(t, m.contact(b, named("b")), name)
		require.Equal(t, "b", m.contact(a, c), "it is back")
	}
}

// What must not end an entry: a clock that is set, a restart, a name for the same machine.
func TestWhatIsNoOtherController(t *testing.T) {
	m := newMachine(t)
	a, b := m.registry(), m.registry()
	m.contact(a, named("a"))
	m.now = m.now.Add(-24 * time.Hour)
	require.Equal(t, "a", m.contact(b, named("b")))
	m.now = m.now.Add(48 * time.Hour)
	require.Equal(t, "a", m.contact(b, named("b")))
	again := named("a")
	again.PID, again.Started = 2, noon.Add(time.Hour)
	require.Equal(t, "b", m.contact(m.registry(), again), "it was restarted")
	require.Equal(t, "a", m.contact(b, named("b")), "once")
	alias := m.registry()
	require.Equal(t, "b", m.contact(alias, again), "the machine has two names")
}

func TestAnotherBoot(t *testing.T) {
	m := newMachine(t)
	m.contact(m.registry(), named("a"))
	m.boot = "b2"
	require.Empty(t, m.contact(m.registry(), named("b")))
	m.boot, m.up = "", time.Second
	require.Empty(t, m.contact(m.registry(), named("c")), "the boot is not known, but the time since")
}

// Contacts cost a look at the file, and seldom a write.
func TestContactsWriteSeldom(t *testing.T) {
	m := newMachine(t)
	r := m.registry()
	writes, last := 0, uint64(0)
	for range 100 {
		m.contact(r, named("a"))
		var st unix.Stat_t
		require.NoError(t, unix.Stat(m.path, &st))
		if id := st.Ino ^ uint64(st.Ctim.Nano()); id != last { //nolint:gosec // any number will do
			writes, last = writes+1, id
		}
		m.after(time.Second)
	}
	require.LessOrEqual(t, writes, 21)
	require.GreaterOrEqual(t, writes, 19)
}

func TestAnOlderController(t *testing.T) {
	m := newMachine(t)
	require.NoError(t, m.registry().Note())
	b := m.registry()
	others, err := b.Contact(named("b"), false)
	require.NoError(t, err)
	require.Len(t, others, 1)
	require.Equal(t, "admin", others[0].Account)
	require.Empty(t, others[0].Policy)
	require.NoError(t, others[0].Check())
	m.after(9 * time.Minute)
	require.NotEmpty(t, m.contact(b, named("b")))
	m.after(2 * time.Minute)
	require.Empty(t, m.contact(b, named("b")))
}

func TestTheListIsBounded(t *testing.T) {
	m := newMachine(t)
	for i := range 200 {
		c := named(fmt.Sprint("c", i))
		c.Account = strings.Repeat("\x00", 200)
		m.contact(m.registry(), c)
		m.after(time.Millisecond)
	}
	info, err := os.Stat(m.path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(64<<10))
	require.EqualValues(t, 0o600, info.Mode())
	others, err := m.registry().Contact(named("me"), false)
	require.NoError(t, err)
	require.Len(t, others, controllers.MaxOthers)
	for _, c := range []controllers.Controller{
		{},
		{ID: strings.Repeat("x", 65)},
		{ID: "x", Hostname: strings.Repeat("x", 257)},
		{ID: "x", Policy: strings.Repeat("x", 65)},
		{ID: "x", IntervalMS: -1},
		{ID: "x", IntervalMS: 1 << 40},
	} {
		_, err := m.registry().Contact(c, false)
		require.Error(t, err)
	}
}

// Whatever is in the place of the file: nothing is followed, and the error says that others
// are not known.
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
		"huge":                   {func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) }, true},
		"others may write there": {func(path string) error { return os.Chmod(filepath.Dir(path), 0o777) }, true},
	} {
		m := newMachine(t)
		require.NoError(t, os.Mkdir(filepath.Dir(m.path), 0o755))
		require.NoError(t, row.put(m.path))
		_, err := m.registry().Contact(named("a"), false)
		require.Equal(t, row.fails, err != nil, "%s: %v", name, err)
	}
}

func TestALockThatIsHeld(t *testing.T) {
	m := newMachine(t)
	m.contact(m.registry(), named("a"))
	held, err := os.OpenFile(m.path+".lock", os.O_RDWR, 0)
	require.NoError(t, err)
	defer held.Close()
	require.NoError(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
	_, err = m.registry().Contact(named("b"), false)
	require.ErrorContains(t, err, "which controllers enforce this host is not known")
}

// Many at a time lose nothing.
func TestManyAtATime(t *testing.T) {
	m := newMachine(t)
	var all sync.WaitGroup
	for i := range controllers.MaxOthers {
		all.Go(func() {
			r := m.registry()
			for range 20 {
				_, err := r.Contact(named(fmt.Sprint("c", i)), false)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	others, err := m.registry().Contact(named("me"), false)
	require.NoError(t, err)
	require.Len(t, others, controllers.MaxOthers)
}

func TestPath(t *testing.T) {
	env := map[string]string{}
	path := func() string { return controllers.Path(func(name string) string { return env[name] }) }
	require.Equal(t, "/run/genv/controllers.json", path())
	env["GENV_TMPDIR"] = "/var/tmp/genv/"
	require.Equal(t, "/run/genv/controllers.json", path())
	env["GENV_TMPDIR"], env["GENV_ROOT_DIR"] = "/tmp/x", "/tmp/root"
	require.Regexp(t, `^/tmp/root/run/controllers\.[0-9a-f]{16}\.json$`, path())
}

// Whatever a host says: what is kept of it is bounded.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"controllers":[{"id":"a","hostname":"b","account":"c","pid":-1,"started":"2026-11-20T12:00:00Z","policy":"p","interval_ms":1}]}`))
	f.Add([]byte(`{"controllers":[{},{"id":"x"}],"controllers_unknown":"\u001b[2J"}`))
	f.Add([]byte(`{"noted":{"source":"folder:a","epoch":1,"controller":"b","name":"c","since":"2026-11-20T12:00:00Z","former":[{"source":"x"}]}}`))
	f.Add([]byte(`{"noted":{"source":"?","epoch":0},"noted_unknown":"why"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var a controllers.Answer
		if json.Unmarshal(data, &a) != nil {
			return
		}
		b := a.Bounded()
		if len(b.Others) > controllers.MaxOthers || len(b.Unknown) > 256 || len(b.NotedUnknown) > 256 {
			t.Fatal(b)
		}
		if b.Noted != nil && (b.Noted.Check() != nil || len(b.Noted.Former) > 0) {
			t.Fatal(b.Noted)
		}
		for i := range b.Others {
			if err := b.Others[i].Check(); err != nil || len(b.Others[i].String()) > 300 || strings.Contains(b.Others[i].String(), "\x1b") {
				t.Fatal(b.Others[i], err)
			}
		}
	})
}
