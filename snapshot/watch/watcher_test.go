package watch

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a machine to watch: regular files stand in for device nodes, since opening them
// is reported in the same way.
type machine struct {
	*Watcher
	t          *testing.T
	dev, state string
	run        string // empty for none

	mu   sync.Mutex
	said []string
}

// ways are the ways to watch opens.
var ways = []string{"fanotify", "inotify"}

func watched(t *testing.T, way string, change func(*Config)) *machine {
	t.Helper()
	if way == "fanotify" {
		requireFanotify(t)
	}
	m := &machine{t: t, dev: t.TempDir(), state: t.TempDir()}
	for i := range 2 {
		m.makeNode(i)
	}
	config := Config{DevDir: m.dev, StateDirs: []string{m.state}, noFanotify: way == "inotify", Debug: func(text string, err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.said = append(m.said, fmt.Sprint(text, " ", err))
	}}
	if change != nil {
		change(&config)
	}
	m.Watcher = Open(config)
	t.Cleanup(m.Close)
	m.pace = newPace() // as if watching had begun long ago
	m.look()
	return m
}

// requireFanotify skips a test where fanotify doesn't tell who opened a file.
func requireFanotify(t *testing.T) {
	t.Helper()
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_REPORT_FID|unix.FAN_UNLIMITED_QUEUE, 0)
	if err != nil {
		t.Skipf("fanotify with the PIDs of all processes needs Linux 5.1 and CAP_SYS_ADMIN: %v", err)
	}
	require.NoError(t, unix.Close(fd))
}

func (m *machine) node(i int) string { return filepath.Join(m.dev, fmt.Sprintf("nvidia%d", i)) }

func (m *machine) makeNode(i int) { require.NoError(m.t, os.WriteFile(m.node(i), nil, 0o600)) }

// look looks at the machine, on which these processes use devices.
func (m *machine) look(pids ...snapshot.PID) {
	done := m.Look()
	s := &snapshot.Snapshot{}
	for _, pid := range pids {
		s.Processes = append(s.Processes, snapshot.Process{PID: pid})
	}
	done(s)
}

const (
	soon  = 30 * time.Second
	never = 200 * time.Millisecond
)

func (m *machine) wakes(within time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return m.Wait(ctx) == nil
}

func (m *machine) requireWake(want bool) {
	m.t.Helper()
	require.Equal(m.t, want, m.wakes(map[bool]time.Duration{true: soon, false: never}[want]))
}

// opened starts a process that opens a file and keeps it open.
func opened(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `exec 3<"$0"; echo; read _`, path) // no exec, which would change the program
	_, out := proctest.StartPiped(t, cmd)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	proctest.Try(bufio.NewReader(out).ReadString('\n')).OK(t)
	return cmd
}

func TestWhatWakes(t *testing.T) {
	for _, way := range ways {
		for name, row := range map[string]struct {
			do   func(m *machine)
			want bool
		}{
			"nothing":                    {func(*machine) {}, false},
			"a device is opened":         {func(m *machine) { opened(m.t, m.node(1)) }, true},
			"nvidiactl is opened":        {func(m *machine) { opened(m.t, m.file(m.dev, "nvidiactl")) }, false},
			"a device's status is asked": {func(m *machine) { _, _ = os.Stat(m.node(1)) }, false},
			"a node is made":             {func(m *machine) { m.makeNode(7) }, true},
			"another file is made":       {func(m *machine) { m.file(m.dev, "shm") }, false},
			"a state file is written":    {func(m *machine) { m.file(m.state, "envs.json") }, true},
			"a state file is replaced": {func(m *machine) {
				m.file(m.state, "x")
				require.NoError(m.t, os.Rename(filepath.Join(m.state, "x"), filepath.Join(m.state, "devices.json")))
			}, true},
			"the lock is taken": {func(m *machine) { m.file(m.state, "genv.lock") }, false},
			"the state folder is made again": {func(m *machine) {
				require.NoError(m.t, os.RemoveAll(m.state))
				require.True(m.t, m.wakes(soon))
				require.NoError(m.t, os.Mkdir(m.state, 0o700))
				m.look()
				m.file(m.state, "envs.json")
			}, true},
			"a process that used a device ends": {func(m *machine) {
				p := opened(m.t, os.DevNull)
				m.look(snapshot.PID(p.Process.Pid))
				require.NoError(m.t, p.Process.Kill())
			}, true},
			"another process ends": {func(m *machine) {
				p := opened(m.t, os.DevNull)
				m.look(snapshot.PID(p.Process.Pid))
				m.look()
				require.NoError(m.t, p.Process.Kill())
			}, false},
		} {
			t.Run(way+"/"+name, func(t *testing.T) {
				t.Parallel()
				m := watched(t, way, nil)
				row.do(m)
				m.requireWake(row.want)
			})
		}
	}
}

func (m *machine) file(dir, name string) string {
	path := filepath.Join(dir, name)
	require.NoError(m.t, os.WriteFile(path, nil, 0o600))
	return path
}

// A mark ends with its node.
func TestANodeThatIsMadeAgainIsWatched(t *testing.T) {
	m := watched(t, "fanotify", nil)
	require.NoError(t, os.Remove(m.node(1)))
	m.makeNode(1)
	require.True(t, m.wakes(soon))
	p := opened(t, m.node(1))
	require.Eventually(t, func() bool { return m.knows(snapshot.PID(p.Process.Pid)) }, soon, time.Millisecond)
}

// knows reports whether a process is known to have opened a device.
func (m *machine) knows(pid snapshot.PID) bool {
	m.Watcher.mu.Lock()
	defer m.Watcher.mu.Unlock()
	for s := range m.pace.reasons {
		if s.pid == pid {
			return true
		}
	}
	return false
}

// The nvidia-smi of a look opens all devices, and doesn't lead to another look.
func TestALookDoesNotWakeItself(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			m := watched(t, way, nil)
			for range 3 {
				done := m.Look()
				require.NoError(t, exec.Command("/bin/sh", "-c", `exec 3<"$0"`, m.node(0)).Run())
				done(&snapshot.Snapshot{})
				require.False(t, m.wakes(never))
			}
		})
	}
}

// Neither does that of another genv, or one that cron runs.
func TestRootsNvidiaSMIIsNoReason(t *testing.T) {
	for name, row := range map[string]struct {
		smi  string
		want bool
	}{"nvidia-smi": {"/bin/sh", false}, "another program": {"/bin/cat", true}, "there is none": {"", true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := watched(t, "fanotify", func(c *Config) { c.SMI = func() string { return row.smi } })
			opened(t, m.node(0))
			require.Equal(t, row.want, m.wakes(never))
		})
	}
}

func TestAnOpenDuringALookIsNotLost(t *testing.T) {
	m := watched(t, "fanotify", nil)
	done := m.Look()
	opened(t, m.node(0))
	done(&snapshot.Snapshot{})
	require.True(t, m.wakes(soon))
}

// A process that can't be judged yet, as in the middle of execve(2), is looked at again.
func TestAnOpenerThatCannotBeJudged(t *testing.T) {
	for unknown, again := range map[bool]bool{true: true, false: false} {
		m := watched(t, "fanotify", nil)
		p := opened(t, m.node(0))
		require.True(t, m.wakes(soon))
		m.Look()(&snapshot.Snapshot{Processes: []snapshot.Process{{PID: snapshot.PID(p.Process.Pid), EnvUnknown: unknown}}})
		require.Equal(t, again, m.wakes(never))
	}
}

func TestFailedLooksAreNoEndlessReason(t *testing.T) {
	m := watched(t, "inotify", nil)
	m.file(m.state, "envs.json")
	require.True(t, m.wakes(soon))
	m.Look()(nil)
	require.False(t, m.wakes(never))
}

func TestAFloodOfOpens(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			m := watched(t, way, nil)
			stop := make(chan struct{})
			var flood sync.WaitGroup
			flood.Go(func() {
				for tick := time.NewTicker(time.Millisecond); ; {
					select {
					case <-stop:
						tick.Stop()
						return
					case <-tick.C:
						for range 10 {
							require.NoError(t, proctest.Try(os.Open(m.node(0))).OK(t).Close())
						}
					}
				}
			})
			looks := 0
			for end := time.Now().Add(time.Second); time.Now().Before(end); looks++ {
				m.wakes(time.Until(end))
				m.look()
			}
			close(stop)
			flood.Wait()
			require.LessOrEqual(t, looks, 11)
			require.GreaterOrEqual(t, looks, 2)
		})
	}
}

func (m *machine) debug() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.said, "\n")
}

func TestWhatCannotBeWatchedIsSaid(t *testing.T) {
	require.Equal(t, "opens of GPUs are watched by inotify, without the PIDs fanotify_init: function not implemented", watched(t, "inotify", nil).debug())
	require.Equal(t, "opens of GPUs are watched by fanotify <nil>", watched(t, "fanotify", nil).debug())
}

func TestCloseEndsWaits(t *testing.T) {
	m := watched(t, "inotify", nil)
	ended := make(chan error)
	go func() { ended <- m.Wait(context.Background()) }()
	m.Close()
	require.ErrorIs(t, <-ended, ErrClosed)
}

func TestACallerWhoDoesNotLookDoesNotSpin(t *testing.T) {
	m := watched(t, "inotify", nil)
	m.file(m.state, "envs.json")
	waits := 0
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); waits++ {
		m.wakes(time.Until(end))
	}
	require.LessOrEqual(t, waits, 5)
}

func FuzzOpens(f *testing.F) {
	f.Add([]byte{24, 0, 0, 0, 3, 0, 24, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 43, 126, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		pids := make(map[snapshot.PID]bool)
		parseOpens(b, pids)
		require.LessOrEqual(t, len(pids), len(b)/fanMetadata)
	})
}

// Who waits for the first time looks at once, and some more times: a process may have
// opened a device before, and use it only now.
func TestWhatWasOpenedBefore(t *testing.T) {
	w := Open(Config{DevDir: t.TempDir(), StateDirs: []string{t.TempDir()}})
	defer w.Close()
	m := &machine{Watcher: w, t: t}
	for range 2 {
		require.True(t, m.wakes(soon))
		m.look()
	}
}
