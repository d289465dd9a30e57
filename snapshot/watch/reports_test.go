package watch

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// What the guard says counts, through whatever node a device was opened.
func TestTheGuardsReports(t *testing.T) {
	for name, row := range map[string]struct {
		do   func(m *machine, log *OpenLog)
		want bool
	}{
		"a process that runs opened a device": {func(m *machine, log *OpenLog) {
			log.Add(snapshot.PID(opened(m.t, os.DevNull).Process.Pid))
		}, true},
		"the opener is not known": {func(_ *machine, log *OpenLog) { log.Add(0) }, true},
		"the opener has ended": {func(m *machine, log *OpenLog) {
			p := opened(m.t, os.DevNull)
			require.NoError(m.t, p.Process.Kill())
			_ = p.Wait()
			log.Add(snapshot.PID(p.Process.Pid))
		}, false},
		"another file in the folder": {func(m *machine, _ *OpenLog) {
			m.file(m.run, "x")
			require.NoError(m.t, os.Rename(filepath.Join(m.run, "x"), filepath.Join(m.run, "guard.json")))
		}, false},
		"others may write the folder": {func(m *machine, _ *OpenLog) {
			require.NoError(m.t, os.Chmod(m.run, 0o777))
			m.file(m.run, "x")
			require.NoError(m.t, os.WriteFile(filepath.Join(m.run, "x"), []byte(`{"schema":"genv.guard-opens/1","epoch":"e","last":1,"pids":[0]}`), 0o600))
			require.NoError(m.t, os.Rename(filepath.Join(m.run, "x"), filepath.Join(m.run, OpenLogFile)))
		}, false},
	} {
		for _, way := range ways {
			t.Run(way+"/"+name, func(t *testing.T) {
				t.Parallel()
				run := t.TempDir()
				require.NoError(t, os.Chmod(run, 0o755))
				m := watched(t, way, func(c *Config) { c.RunDir = run })
				m.run = run
				row.do(m, logIn(t, run))
				within := soon
				if !row.want {
					within = never
				}
				require.Equal(t, row.want, m.wakes(within))
			})
		}
	}
}

// What an earlier guard left says nothing, and a run folder that is made later counts.
func TestTheRunFolderChanges(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.Mkdir(run, 0o755))
	logIn(t, run).Add(0)
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(run, OpenLogFile)); return err == nil }, soon, time.Millisecond)
	m := watched(t, "inotify", func(c *Config) { c.RunDir = run })
	require.False(t, m.wakes(never))

	require.NoError(t, os.RemoveAll(run))
	require.NoError(t, os.Mkdir(run, 0o755))
	m.look()
	logIn(t, run).Add(0)
	require.True(t, m.wakes(soon))
}

// logIn is a running Log.
func logIn(t *testing.T, dir string) *OpenLog {
	t.Helper()
	log := NewOpenLog(dir)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); log.Run(ctx, func(error) {}) }()
	t.Cleanup(func() { cancel(); <-ended })
	return log
}

func TestHowOpensAreWatched(t *testing.T) {
	dev := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dev, "nvidia0"), nil, 0o600))
	method, err := methodOf(dev, true)
	require.ErrorIs(t, err, unix.ENOSYS)
	require.Equal(t, ByInotify, method)
	if f, err := openFanotify(false, nil); err != nil {
		t.Skipf("this process has no fanotify: %v", err)
	} else {
		_ = unix.Close(f.fd)
	}
	method, err = MethodOf(dev)
	require.NoError(t, err)
	require.Equal(t, ByFanotify, method)
}

// A file system that fanotify can't watch counts as no fanotify; a node that is gone doesn't.
func TestNodesThatFanotifyCannotWatch(t *testing.T) {
	requireFanotify(t)
	dev := t.TempDir()
	node := filepath.Join(dev, "nvidia0")
	require.NoError(t, os.WriteFile(node, nil, 0o600))
	f, err := openFanotify(false, []string{filepath.Join(dev, "gone"), node})
	require.NoError(t, err)
	_ = unix.Close(f.fd)
	_, err = openFanotify(false, []string{node, filepath.Join(node, "in a file")})
	require.ErrorIs(t, err, unix.ENOTDIR)
}
