package watch

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func runDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

func next(t *testing.T, r *OpenLogReader) []snapshot.PID {
	t.Helper()
	return proctest.Try(r.Next()).OK(t)
}

func add(t *testing.T, l *OpenLog, pids ...snapshot.PID) {
	t.Helper()
	for _, pid := range pids {
		l.Add(pid)
	}
	require.NoError(t, l.write())
}

func TestAReaderGetsEachOpenOnce(t *testing.T) {
	dir := runDir(t)
	early := NewOpenLogReader(dir)
	require.Empty(t, next(t, early), "there is no file")
	l := NewOpenLog(dir)
	add(t, l, 11, 12, 11)
	late := NewOpenLogReader(dir)
	require.Equal(t, []snapshot.PID{11, 12}, next(t, early))
	require.Empty(t, next(t, early))
	require.Empty(t, next(t, late), "what was there before counts for nothing")

	add(t, l, 11)
	add(t, l, 13, 0)
	for _, r := range []*OpenLogReader{early, late} {
		require.Equal(t, []snapshot.PID{11, 13, 0}, next(t, r), "two versions later")
	}
	add(t, NewOpenLog(dir), 14)
	for _, r := range []*OpenLogReader{early, late} {
		require.Equal(t, []snapshot.PID{14}, next(t, r), "another writer")
	}
	require.NoError(t, os.Remove(filepath.Join(dir, OpenLogFile)))
	require.Empty(t, next(t, early))
}

// TestTooMany: the file doesn't grow, and a reader notices that it missed some.
func TestTooMany(t *testing.T) {
	dir := runDir(t)
	r, l := NewOpenLogReader(dir), NewOpenLog(dir)
	for pid := range snapshot.PID(10000) {
		l.Add(4190000 + pid)
	}
	require.LessOrEqual(t, len(l.pending), maxOpens)
	add(t, l, 7)
	info := proctest.Try(os.Stat(filepath.Join(dir, OpenLogFile))).OK(t)
	require.Less(t, info.Size(), int64(maxFile/2))
	require.Equal(t, os.FileMode(0o600), info.Mode())
	pids := next(t, r)
	require.Len(t, pids, maxOpens+1)
	require.Equal(t, []snapshot.PID{7, 0}, pids[maxOpens-1:])
	require.Empty(t, next(t, r))
}

func TestWhatOthersCouldHaveWrittenCountsForNothing(t *testing.T) {
	const good = `{"schema":"genv.guard-opens/1","epoch":"e","last":1,"pids":[1]}`
	for name, row := range map[string]struct {
		data         string
		folder, file os.FileMode
		ok           bool
	}{
		"root's":                         {good, 0o755, 0o600, true},
		"a folder that others may write": {good, 0o777, 0o600, false},
		"a file that others may write":   {good, 0o755, 0o622, false},
		"no JSON":                        {"{", 0o755, 0o600, false},
		"another schema":                 {`{"schema":"genv.guard-opens/2","epoch":"e","last":1,"pids":[1]}`, 0o755, 0o600, false},
		"no epoch":                       {`{"schema":"genv.guard-opens/1","last":1,"pids":[1]}`, 0o755, 0o600, false},
		"more than were counted":         {`{"schema":"genv.guard-opens/1","epoch":"e","last":1,"pids":[1,2]}`, 0o755, 0o600, false},
		"a PID below zero":               {`{"schema":"genv.guard-opens/1","epoch":"e","last":1,"pids":[-1]}`, 0o755, 0o600, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := runDir(t)
			r, path := NewOpenLogReader(dir), filepath.Join(dir, OpenLogFile)
			require.NoError(t, os.WriteFile(path, []byte(row.data), 0o600))
			require.NoError(t, os.Chmod(path, row.file))
			require.NoError(t, os.Chmod(dir, row.folder))
			pids, err := r.Next()
			require.Equal(t, row.ok, err == nil, err)
			require.Equal(t, row.ok, len(pids) == 1)
		})
	}
}

// TestRun: the first open is written at once, those of a flood at most every 100 ms.
func TestRun(t *testing.T) {
	dir := runDir(t)
	l, r := NewOpenLog(dir), NewOpenLogReader(dir)
	end := l.start(func(err error) { t.Error(err) })
	began := time.Now()
	l.Add(11)
	require.Eventually(t, func() bool { return len(next(t, r)) == 1 }, 30*time.Second, time.Millisecond)
	versions := 1
	for versions < 4 && time.Since(began) < 10*time.Second {
		l.Add(11)
		if len(next(t, r)) > 0 {
			versions++
		}
	}
	end()
	require.LessOrEqual(t, versions, int(time.Since(began)/openLogPause)+1)
	require.Equal(t, 4, versions)
}

func TestAFailureIsSaidOnce(t *testing.T) {
	dir := filepath.Join(runDir(t), "missing")
	l := NewOpenLog(dir)
	failures := make(chan error, 10)
	end := l.start(func(err error) { failures <- err })
	l.Add(1)
	require.ErrorIs(t, <-failures, os.ErrNotExist)
	l.Add(2)
	require.Eventually(t, func() bool { return len(l.added) == 0 }, 30*time.Second, time.Millisecond)
	require.NoError(t, os.Mkdir(dir, 0o755))
	r := NewOpenLogReader(dir)
	l.Add(3)
	require.Eventually(t, func() bool { return len(next(t, r)) == 3 }, 30*time.Second, time.Millisecond, "nothing of it is lost")
	end()
	require.Empty(t, failures)
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"schema":"genv.guard-opens/1","epoch":"e","last":3,"pids":[1,0]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := openLogFile.Decode(data, nil); err == nil {
			require.LessOrEqual(t, len(c.PIDs), maxOpens)
		}
	})
}

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
				run := runDir(t)
				m := watched(t, way, func(c *Config) { c.RunDir = run })
				m.run = run
				row.do(m, logIn(t, run))
				m.requireWake(row.want)
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
	t.Cleanup(log.start(func(error) {}))
	return log
}

// start runs it until end is called.
func (l *OpenLog) start(failed func(error)) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx, failed) })
	return func() { cancel(); running.Wait() }
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
		_ = unix.Close(f)
	}
	method = proctest.Try(MethodOf(dev)).OK(t)
	require.Equal(t, ByFanotify, method)
}

// A file system that fanotify can't watch counts as no fanotify; a node that is gone doesn't.
func TestNodesThatFanotifyCannotWatch(t *testing.T) {
	requireFanotify(t)
	dev := t.TempDir()
	node := filepath.Join(dev, "nvidia0")
	require.NoError(t, os.WriteFile(node, nil, 0o600))
	f := proctest.Try(openFanotify(false, []string{filepath.Join(dev, "gone"), node})).OK(t)
	_ = unix.Close(f)
	require.ErrorIs(t, proctest.Try(openFanotify(false, []string{node, filepath.Join(node, "in a file")})).Err, unix.ENOTDIR)
}
