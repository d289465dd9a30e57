package enforcement

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/statedir"
	usagestore "github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// hoursRun is a run with a cap of GPU hours a week, whose clock the test sets.
type hoursRun struct {
	*hoursTable
	t   *testing.T
	log bytes.Buffer
	at  time.Time
}

var monday = time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)

func ofAlice(period time.Time, seconds float64) map[string]enforce.Hours {
	return map[string]enforce.Hours{"week": {Period: period, Seconds: map[snapshot.Username]float64{"alice": seconds}}}
}

// beginHours begins a run in a folder. former is what its memory has; change makes another run of it.
func beginHours(t *testing.T, dir string, at time.Time, former map[string]enforce.Hours, change func(*loop)) *hoursRun {
	folder := proctest.Try(statedir.Open(dir)).OK(t)
	t.Cleanup(func() { _ = folder.Close() })
	file := proctest.Try(policy.Parse("", []byte("timezone: UTC\ncaps: [{name: week, gpu-hours: 20, every: week}]"))).OK(t)
	r := &hoursRun{t: t, at: at}
	l := &loop{folder: folder, store: folder, options: Options{Policy: file, Interval: time.Second}, log: zerolog.New(&r.log)}
	l.program = &command.Program{Now: func() time.Time { return r.at }}
	l.controller.Memory.FormerHours = former
	if change != nil {
		change(l)
	}
	r.hoursTable = l.keepHours()
	return r
}

// count adds seconds of alice, as Judge does. After some time there is a round, and one that learns what came of it.
func (r *hoursRun) count(seconds float64, passed time.Duration) *hoursRun {
	memory := &r.controller.Memory.Rules
	if week := memory.Hours["week"]; seconds > 0 {
		memory.Hours = ofAlice(week.Period, week.Seconds["alice"]+seconds)
	}
	r.at = r.at.Add(passed)
	r.exchange(false)
	r.busy.Lock()
	defer r.busy.Unlock()
	r.learn()
	return r
}

// has requires what the loop has, and the table; -1 for one that can't be read.
func (r *hoursRun) has(counted, written float64) *hoursRun {
	r.t.Helper()
	require.InDelta(r.t, counted, r.controller.Memory.Rules.Hours["week"].Seconds["alice"], 0.01, &r.log)
	found := -1.0
	if s, err := usagestore.OpenToRead(r.t.Context(), r.place, usagestore.Options{In: time.UTC}); err == nil {
		hours, _, _ := s.Hours(r.t.Context())
		found = hours["week"].Seconds["alice"]
		require.NoError(r.t, s.Close())
	}
	require.InDelta(r.t, written, found, 0.01, &r.log)
	return r
}

// Hours are written each minute, so kill -9 loses no more, and at the end. What the memory of an earlier version has is
// taken once. A run whose clock was set back goes on in the later period.
func TestHoursAreKept(t *testing.T) {
	dir := t.TempDir()
	killed := beginHours(t, dir, monday, ofAlice(monday, 100), nil).has(100, 100)
	require.Nil(t, killed.controller.Memory.FormerHours, "they leave the memory")
	killed.count(59, 59*time.Second).has(159, 100).count(1, time.Second).has(160, 160).count(7, 7*time.Second).has(167, 160)
	require.NoError(t, killed.folder.Close())
	ends := beginHours(t, dir, monday, ofAlice(monday, 150), nil).has(160, 160).count(30, -time.Hour).has(190, 190).count(5, time.Second)
	ends.exchange(true)
	require.NoError(t, ends.has(195, 195).folder.Close())
	back := beginHours(t, dir, monday.AddDate(0, 0, -1), nil, nil).has(195, 195)
	require.True(t, monday.Equal(back.controller.Memory.Rules.Hours["week"].Period))
	require.NoError(t, back.count(5, time.Minute).has(200, 200).folder.Close())
	next := beginHours(t, dir, monday.AddDate(0, 0, 8), ofAlice(monday, 9), nil).has(0, 200).count(7, time.Minute).has(7, 7)
	require.Empty(t, killed.log.String()+ends.log.String()+back.log.String()+next.log.String())
}

// Until the table can be read, caps count what was used since, which is added then.
func TestHoursWithoutATable(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, usagestore.HoursName)
	require.NoError(t, beginHours(t, dir, monday, ofAlice(monday, 100), nil).folder.Close())
	require.NoError(t, os.Rename(path, path+".was"))
	require.NoError(t, os.Mkdir(path, 0o700))
	r := beginHours(t, dir, monday, ofAlice(monday, 1), nil).has(0, -1).count(60, time.Minute).has(60, -1).count(10, 10*time.Second)
	require.Equal(t, 1, strings.Count(r.log.String(), "can't be kept"), &r.log)
	require.NotNil(t, r.controller.Memory.FormerHours)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Rename(path+".was", path))
	r.count(50, 50*time.Second).has(220, 220).count(1, time.Minute).has(221, 221)

	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("damaged", 1000)), 0o600))
	r.count(1, time.Minute).has(222, -1).count(1, time.Minute).has(223, 223)
	require.Contains(t, r.log.String(), "was moved to "+path+".damaged-")
}

// A dry run and a single cycle read, a standby doesn't, and nothing is made without a cap.
func TestHoursThatAreNotWritten(t *testing.T) {
	for name, change := range map[string]func(*loop){
		"a dry run":      func(l *loop) { l.options.DryRun = true },
		"a single cycle": func(l *loop) { l.options.Interval = 0 },
		"a standby":      func(l *loop) { l.store = nil },
		"no such cap":    func(l *loop) { l.options.Policy = policy.Default() },
	} {
		r := beginHours(t, t.TempDir(), monday, ofAlice(monday, 100), change).count(0, time.Minute)
		require.NoFileExists(t, filepath.Join(r.folder.Path(), usagestore.HoursName), name)
		require.NotNil(t, r.controller.Memory.FormerHours, "%s: they stay in the memory", name)
		require.Empty(t, r.log.String(), name)
		reads := r.options.DryRun || r.options.Interval == 0
		require.Equal(t, reads, r.controller.Memory.Rules.Hours["week"].Seconds["alice"] == 100, name)
	}
}
