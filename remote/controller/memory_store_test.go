package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

var noonUTC = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, dir string) *statedir.Folder {
	t.Helper()
	store := proctest.Try(statedir.Open(dir)).OK(t)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// restarted is a controller on the same fleet with what the one before left on disk.
func restarted(t *testing.T, p *fakeFleet, store *statedir.Folder, now *time.Time) *controller.Controller {
	t.Helper()
	c := p.controller(nil)
	c.Now = func() time.Time { return *now }
	store.Now = c.Now
	memory := proctest.Try(store.Load(t.Context())).OK(t)
	c.Memory, c.Store = memory, store
	return c
}

// storeFunc is a Store that keeps nothing.
type storeFunc func(controller.Saved) error

func (storeFunc) Load(context.Context) (controller.FleetMemory, error) {
	return controller.FleetMemory{}, nil
}
func (s storeFunc) Save(_ context.Context, saved controller.Saved) error { return s(saved) }

// Times in a memory from disk are by the wall clock. From then on they are by the monotonic one as well: if the
// wall clock is set, nothing has been idle for longer because of that.
func TestAClockThatIsSetAfterARestart(t *testing.T) {
	store, now := open(t, t.TempDir()), time.Now()
	m := &controller.FleetMemory{Rules: enforce.Memory{Time: now, Uses: enforce.Uses{"a": {enforce.UseKey{}: {Idle: now.Add(-time.Minute)}}}}}
	saved, err := m.Encode(now)
	require.NoError(t, errors.Join(err, store.Save(t.Context(), saved)))
	store.Now = func() time.Time { return now }
	loaded := proctest.Try(store.Load(t.Context())).OK(t)
	since := loaded.Rules.Uses["a"][enforce.UseKey{}].Idle
	require.Equal(t, time.Minute, now.Sub(since))
	require.NotEqual(t, since.Round(0), since, "it has a reading of the monotonic clock")
}

// What was found, and what users were notified of, survives a restart.
func TestARestartContinues(t *testing.T) {
	dir, now := t.TempDir(), noonUTC
	p := newFakeFleet(t)
	policy := strict{notify: true, warn: enforce.Warn{Cycles: 2, For: time.Minute}}
	for number := range 2 {
		store := open(t, dir) // a restart before each cycle
		round := cycleOf(t.Context(), restarted(t, p, store, &now), policy)
		require.Len(t, round.Plan.Findings, 4)
		require.Equal(t, noonUTC, round.Plan.Findings[0].Since)
		require.Equal(t, number+1, round.Plan.Findings[0].Cycles)
		require.Len(t, p.messages, 4, "once each")
		require.Empty(t, round.Results)
		require.NoError(t, store.Close())
		now = now.Add(40 * time.Second)
	}
	round := cycleOf(t.Context(), restarted(t, p, open(t, dir), &now), policy)
	require.Len(t, round.Results, 2, "they had their time, most of it before the restart")
	require.Len(t, p.messages, 8, "that it is done")
}

// TestMemoryKeys: the keys that were written before what is seen of a host was kept by host stay as they are.
func TestMemoryKeys(t *testing.T) {
	rules := `{"time":"2026-03-04T12:00:00Z","uses":{"a/bob/GPU-1":{"attached":"2026-03-04T11:00:00Z"}},"seen":{"a/GPU-1/7":{"written":"04/03/2026 10:00:00","since":"2026-03-04T11:00:00Z"}}}`
	saved := `{"schema":"genv.controller.memory/1","time":"2026-03-04T12:00:00Z","memory":{"rules":` + rules + `}}`
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	m, _, err := controller.DecodeMemory([]byte(saved), at)
	require.NoError(t, err)
	require.Equal(t, at.Add(-time.Hour), m.Rules.Uses["a"][enforce.UseKey{Person: "bob", Device: "GPU-1"}].Attached)
	require.JSONEq(t, rules, string(proctest.Try(json.Marshal(m.Rules)).OK(t)))
}

func TestMemoryThatIsNotContinued(t *testing.T) {
	fleet, hours := []remote.Host{{Name: "a"}, {Name: "new"}}, map[string]enforce.Hours{"week": {Period: noonUTC}}
	kept, err := controller.FleetMemory{Rules: enforce.Memory{Hosts: map[snapshot.Hostname]enforce.KnownHost{"renamed": {}}}, FormerHours: hours}.For(fleet)
	require.ErrorContains(t, err, "another fleet")
	require.Equal(t, hours, kept.FormerHours)
	for name, tt := range map[string]struct {
		change func(file string) string
		hosts  []remote.Host
		after  time.Duration
		says   string // "" if it is continued
	}{
		"a moment later":        {nil, fleet, time.Second, ""},
		"just within the hour":  {nil, fleet, time.Hour, ""},
		"too old":               {nil, fleet, time.Hour + 1, "too long ago"},
		"from the future":       {nil, fleet, -time.Second, "in the future"},
		"of another fleet":      {nil, []remote.Host{{Name: "z"}}, time.Second, "another fleet"},
		"cut short":             {func(s string) string { return s[:len(s)/2] }, fleet, time.Second, "damaged"},
		"empty":                 {func(string) string { return "" }, fleet, time.Second, "damaged"},
		"a key that is garbled": {func(s string) string { return strings.Replace(s, `"a/5/1"`, `"a/x/1"`, 1) }, fleet, time.Second, "damaged"},
		"of another version":    {func(s string) string { return strings.Replace(s, "memory/1", "memory/2", 1) }, fleet, time.Second, "another version"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			store, now := open(t, dir), noonUTC
			p := newFakeFleet(t)
			c := restarted(t, p, store, &now)
			c.Memory.Rules = c.Memory.Rules.Learn(order.OfHost{Host: "a", Order: order.Order{Terminate: []order.Termination{{Process: snapshot.Process{PID: 5, Start: 1}}}}},
				[]order.Outcome{{PID: 5, Status: order.StatusRefused, Reason: "it is a daemon"}}, now)
			cycleOf(t.Context(), c, strict{warn: enforce.Warn{Cycles: 3}})
			path := filepath.Join(dir, "memory.json")
			if tt.change != nil {
				require.NoError(t, os.WriteFile(path, []byte(tt.change(proctest.ReadText(t, path))), 0o600))
			}
			store.Now = func() time.Time { return now.Add(tt.after) }
			memory, err := store.Load(t.Context())
			if err == nil {
				memory, err = memory.For(tt.hosts)
			}
			if tt.says == "" {
				require.NoError(t, err)
				require.NotEmpty(t, memory.Rules.Present)
				require.Equal(t, map[snapshot.ProcessKey]string{{Host: "a", PID: 5, Start: 1}: "it is a daemon"}, memory.Rules.Stuck)
				return
			}
			require.ErrorContains(t, err, tt.says)
			require.Equal(t, controller.FleetMemory{}, memory)
		})
	}
}

// While a loop has the folder, another run reads it, advances nothing and writes nothing.
func TestOneControllerHasTheFolder(t *testing.T) {
	dir, now := t.TempDir(), noonUTC
	p := newFakeFleet(t)
	policy := strict{warn: enforce.Warn{Cycles: 2}}
	loop := restarted(t, p, open(t, dir), &now)
	cycleOf(t.Context(), loop, policy)
	now = now.Add(10 * time.Second) // it is saved every ten seconds
	cycleOf(t.Context(), loop, policy)
	before := proctest.ReadFile(t, filepath.Join(dir, "memory.json"))

	second, err := statedir.Open(dir)
	require.ErrorIs(t, err, statedir.ErrInUse)
	once := restarted(t, p, second, &now)
	round := cycleOf(t.Context(), once, policy)
	require.Equal(t, 2, round.Plan.Findings[0].Cycles, "as the loop counts them")
	require.Empty(t, round.Results, "which the loop would not do yet either")
	require.Equal(t, string(before), proctest.ReadText(t, filepath.Join(dir, "memory.json")))
	require.NotEmpty(t, cycleOf(t.Context(), loop, policy).Results)
}

// Each start has its own epoch, which no earlier one had, also when it was killed at once.
func TestEpochs(t *testing.T) {
	dir := t.TempDir()
	for want := range uint64(3) {
		s := proctest.Try(statedir.Open(dir)).OK(t)
		require.Equal(t, want+1, proctest.Try(s.NextEpoch()).OK(t))
		if want == 2 {
			second, err := statedir.Open(dir)
			require.ErrorIs(t, err, statedir.ErrInUse)
			require.ErrorIs(t, proctest.Try(second.NextEpoch()).Err, statedir.ErrInUse, "it belongs to the first one")
			require.NoError(t, second.Close())
		}
		require.NoError(t, s.Close())
	}
	for _, content := range []string{"", "x", "-1", "18446744073709551615"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "epoch"), []byte(content), 0o600))
		s := proctest.Try(statedir.Open(dir)).OK(t)
		_, err := s.NextEpoch()
		require.ErrorContains(t, err, "is damaged: remove it and controller-id", "it could be lower than one that hosts have noted")
		require.NoError(t, s.Close())
	}
}

// Hosts know a controller by its id: one that can't be read isn't replaced by another one.
func TestTheIDOfAController(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir)
	id := proctest.Try(store.ID()).OK(t)
	require.Equal(t, id, proctest.Try(store.ID()).OK(t))

	path := filepath.Join(dir, "controller-id")
	for name, content := range map[string]string{
		"empty": "", "cut short": id[:9], "of another alphabet": strings.Repeat("ä", 13), "too long": strings.Repeat(id, 3),
	} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		require.ErrorContains(t, proctest.Try(store.ID()).Err, "controller-id", name)
		require.Equal(t, content, proctest.ReadText(t, path), name)
	}
	require.NoError(t, os.Remove(path))
	require.NotEqual(t, id, proctest.Try(store.ID()).OK(t, "it was removed for a new one"))
}

// What another user could have written is not believed.
func TestAFolderOfOthersIsRefused(t *testing.T) {
	dir, now := t.TempDir(), noonUTC
	require.NoError(t, os.Chmod(dir, 0o777)) //nolint:gosec // that is the case
	require.ErrorContains(t, proctest.Try(statedir.Open(dir)).Err, "may be written by every user")
	require.NoError(t, os.Chmod(dir, 0o700)) //nolint:gosec // a folder
	store := open(t, dir)
	store.Now = func() time.Time { return now }
	saved, err := (&controller.FleetMemory{}).Encode(now)
	require.NoError(t, errors.Join(err, store.Save(t.Context(), saved)))
	path := filepath.Join(dir, "memory.json")
	require.NoError(t, os.Chmod(path, 0o666)) //nolint:gosec // that is the case
	require.ErrorContains(t, proctest.Try(store.Load(t.Context())).Err, "may be written by every user")
	if os.Geteuid() == 0 {
		require.NoError(t, errors.Join(os.Chmod(path, 0o600), os.Chown(path, 65534, 65534)))
		require.ErrorContains(t, proctest.Try(store.Load(t.Context())).Err, "belongs to another user")
		require.NoError(t, os.Chown(dir, 65534, 65534))
		require.ErrorContains(t, proctest.Try(statedir.Open(dir)).Err, "belongs to another user")
	}
}

func TestADryRunSavesNothing(t *testing.T) {
	dir, now := t.TempDir(), noonUTC
	c := restarted(t, newFakeFleet(t), open(t, dir), &now)
	c.DryRun = true
	cycleOf(t.Context(), c, strict{})
	require.NoFileExists(t, filepath.Join(dir, "memory.json"))
}

// A memory that changes in every cycle is not written in every cycle, unless orders
// are sent: what they may have done must survive a crash.
func TestTheMemoryIsWrittenEveryTenSeconds(t *testing.T) {
	p := newFakeFleet(t)
	p.hosts = map[string][]snapshot.PID{"b": {8}}
	now := noonUTC
	c := p.controller(nil)
	c.Now = func() time.Time { return now }
	var saved []string
	c.Store = storeFunc(func(controller.Saved) error { saved = append(saved, now.Format("05")); return nil })
	for _, step := range []time.Duration{0, time.Second, 8 * time.Second, time.Second} {
		now = now.Add(step)
		cycleOf(t.Context(), c, strict{warn: enforce.Warn{Cycles: 9}})
	}
	require.Equal(t, []string{"00", "10"}, saved)
	now, p.hosts["b"] = now.Add(time.Second), []snapshot.PID{9}
	cycleOf(t.Context(), c, strict{})
	require.Equal(t, []string{"00", "10", "11"}, saved)
}

// A controller that dies while an order is under way does not send processes a second
// SIGTERM before they have had their grace.
func TestNoSecondSIGTERMAfterACrash(t *testing.T) {
	dir, now := t.TempDir(), noonUTC
	p := newFakeFleet(t)
	p.hosts = map[string][]snapshot.PID{"a": {5}}
	p.cut, p.lost = 0, remote.Errorf(remote.OutcomeUnknown, "cut off")
	store := open(t, dir)
	c := restarted(t, p, store, &now)
	saves := 0
	c.Store = storeFunc(func(saved controller.Saved) error {
		if saves++; saves > 1 {
			return nil // it is dead
		}
		return store.Save(t.Context(), saved)
	})
	require.Len(t, cycleOf(t.Context(), c, strict{}).Results, 1)
	require.NoError(t, store.Close())

	p.cut = -1
	again := restarted(t, p, open(t, dir), &now)
	round := cycleOf(t.Context(), again, strict{})
	require.Empty(t, round.Results)
	require.Contains(t, round.Plan.Findings[0].Stuck[0].Reason, "an order to end it was sent already")
	now = now.Add(time.Second) // the grace of the policy
	require.Len(t, cycleOf(t.Context(), again, strict{}).Results, 1)
}

// Temporary files of a save that was killed go away at the next start; nothing else does,
// and nothing while another controller, which may be saving, has the folder.
func TestLeftoversOfAKilledSave(t *testing.T) {
	dir := t.TempDir()
	names := func() (all []string) {
		entries := proctest.Try(os.ReadDir(dir)).OK(t)
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	put := func(files ...string) {
		for _, name := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600))
		}
	}
	others := []string{"memory.json", "memory.json.bak", "notes.tmp"}
	put(append(others, "memory.json.tmp", "memory.json.1x2y3z.tmp")...)
	require.NoError(t, os.Symlink(filepath.Join(dir, "notes.tmp"), filepath.Join(dir, "memory.json.link.tmp")))
	first := open(t, dir)
	require.ElementsMatch(t, append(others, "lock"), names())

	put("memory.json.tmp")
	second, err := statedir.Open(dir)
	require.ErrorIs(t, err, statedir.ErrInUse)
	require.Contains(t, names(), "memory.json.tmp")
	require.NoError(t, second.Close())
	require.NoError(t, first.Close())
}
