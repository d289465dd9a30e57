package enforcement

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/statedir"
	usagestore "github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// A memory that can't be written is logged when that begins, when the reason changes and when it is over.
func TestAMemoryThatIsNotWritten(t *testing.T) {
	space := &etcd.MemberError{Code: 8, Message: "mvcc: database space exceeded"}
	silent := errors.New("etcd doesn't answer: 127.0.0.1:2379: connection refused")
	late := fmt.Errorf("etcd doesn't answer: %w", context.DeadlineExceeded)
	for name, row := range map[string]struct {
		errors []error // one each second
		want   []string
	}{
		"it is written":        {[]error{nil, nil}, nil},
		"etcd is full":         {[]error{nil, space, space, space, nil, nil}, []string{"database space exceeded; etcdctl compact REVISION; etcdctl alarm disarm", "again, after 3s"}},
		"etcd doesn't answer":  {[]error{silent, late, silent, nil}, []string{"connection refused; etcdctl endpoint health", "again, after 3s"}},
		"it is slow":           {[]error{late, nil}, []string{"etcd doesn't answer: no answer", "again, after 1s"}},
		"the lease ends":       {[]error{etcd.ErrConflict, etcd.ErrConflict, nil}, nil},
		"and before, an error": {[]error{silent, etcd.ErrConflict, silent, nil}, []string{"connection refused", "again, after 3s"}},
		"another reason":       {[]error{space, silent, nil}, []string{"database space exceeded", "connection refused", "again, after 2s"}},
		"too large":            {[]error{statedir.ErrTooLarge, statedir.ErrTooLarge, nil}, []string{"it is too large for etcd", "again, after 2s"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &loop{program: &command.Program{Now: time.Now}, part: electedPart(t, &store{entries: map[string]etcd.KeyValue{}})}
			var log bytes.Buffer
			l.log = zerolog.New(&log)
			for _, err := range row.errors {
				if err != nil {
					err = &statedir.NotSharedError{Err: err}
				}
				l.saved(err)
				time.Sleep(time.Second)
			}
			lines := slices.Collect(strings.Lines(log.String()))
			require.Len(t, lines, len(row.want), "%s: %s", name, &log)
			for i, want := range row.want {
				for part := range strings.SplitSeq(want, "; ") {
					require.Contains(t, lines[i], part, name)
				}
				require.NotContains(t, lines[i], "context deadline exceeded", name)
			}
		})
	}
}

// A controller ends when most hosts say that it was replaced, and not because some say so.
func TestReplaced(t *testing.T) {
	answered := snapshot.Host{Snapshot: &snapshot.Snapshot{}}
	down := snapshot.Host{Err: remote.Errorf(remote.Unreachable, "no route")}
	refused := snapshot.Host{Err: remote.Errorf(remote.Replaced, "the host says: refused: replaced by b: %w", agent.ErrLater)}
	for name, row := range map[string]struct {
		hosts []snapshot.Host
		ends  bool
	}{
		"the only host":               {[]snapshot.Host{refused}, true},
		"most hosts":                  {[]snapshot.Host{refused, answered, refused}, true},
		"most hosts, one is down":     {[]snapshot.Host{refused, down, refused}, true},
		"the only one that answers":   {[]snapshot.Host{down, refused, down}, false},
		"half of them":                {[]snapshot.Host{refused, answered}, false},
		"one of many, which may lie":  {[]snapshot.Host{answered, refused, answered}, false},
		"hosts that failed otherwise": {[]snapshot.Host{down, down, answered}, false},
		"no host":                     {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := new(loop)
			err := l.replaced(&controller.Round{Cluster: snapshot.Cluster{Hosts: row.hosts}})
			if !row.ends {
				require.NoError(t, err)
				return
			}
			require.Equal(t, command.ExitReplaced, command.ExitCode(err))
			require.ErrorContains(t, err, "replaced by b")
			require.ErrorContains(t, err, "--take-over")
		})
	}
}

// A loop doesn't act under an id that no later start would have. A single cycle asks for no lease.
func TestAnIDThatCantBeRead(t *testing.T) {
	dir := t.TempDir()
	store := proctest.Try(statedir.Open(dir)).OK(t)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	first := proctest.Try(identityOf(t.Context(), store, true)).OK(t)
	require.Equal(t, first.ID, proctest.Try(identityOf(t.Context(), store, true)).OK(t).ID)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "controller-id"), []byte("x"), 0o600))
	require.ErrorContains(t, proctest.Try(identityOf(t.Context(), store, true)).Err, "controller-id is damaged")
	require.NotEmpty(t, proctest.Try(identityOf(t.Context(), store, false)).OK(t).ID)
}

func TestLease(t *testing.T) {
	long := runIdentity{ID: strings.Repeat("I", 26), Hostname: strings.Repeat("h", 64), Person: strings.Repeat("ä", 200), PID: 4194304, Start: "s"}
	store := proctest.Try(statedir.Open(t.TempDir())).OK(t)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	options := &Options{}
	lease := proctest.Try(leaseOf(store, options, &long)).OK(t)
	require.False(t, lease.Leases(), "a single cycle")

	options.Interval = time.Second
	lease = proctest.Try(leaseOf(store, options, &long)).OK(t)
	require.NoError(t, lease.Check(), "hosts accept it, whatever the names")
	require.EqualValues(t, 1, lease.Epoch)
	require.Equal(t, "s", lease.Start)
	lease = proctest.Try(leaseOf(nil, options, &long)).OK(t)
	require.Equal(t, fence.Run(long.ID), lease.Who, "hosts refuse it, or let it act, and give it no lease")

	options.TakeOver = true
	require.ErrorContains(t, proctest.Try(leaseOf(nil, options, &long)).Err, "needs a state folder", "hosts could not know it again")
	lease = proctest.Try(leaseOf(store, options, &long)).OK(t)
	require.True(t, lease.TakeOver)
	require.EqualValues(t, 2, lease.Epoch)
}

// A run that ends before its first cycle, here since a single cycle takes no host over, leaves what its folder has.
func TestARunThatDoesNotBegin(t *testing.T) {
	dir := t.TempDir()
	store := proctest.Try(statedir.Open(dir)).OK(t)
	held := operator.State{Hold: &operator.OnHold{By: "ann", Reason: "a new driver"}}
	require.NoError(t, store.KeepOperator(held, time.Now()))
	require.NoError(t, store.Close())
	options := Options{Policy: policy.Default(), TakeOver: true, StateDir: dir, Announce: func(string, *fence.LeaseRequest) {}}
	program := &command.Program{Now: time.Now, Getenv: func(string) string { return "" }, Out: io.Discard, Err: io.Discard}
	require.ErrorContains(t, newLoop(program, zerolog.Nop(), &options, nil).run(t.Context(), options), "a single cycle")
	store = proctest.Try(statedir.Open(dir)).OK(t)
	defer store.Close()
	require.NotNil(t, proctest.Try(store.LoadOperator(time.Now())).OK(t).Hold)
}

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

// beginHours begins a run in a folder. former is what its memory has of an earlier version.
func beginHours(t *testing.T, dir string, at time.Time, former map[string]enforce.Hours, change ...func(*loop)) *hoursRun {
	folder := proctest.Try(statedir.Open(dir)).OK(t)
	t.Cleanup(func() { _ = folder.Close() })
	file := proctest.Try(policy.Parse("", []byte("timezone: UTC\ncaps: [{name: week, gpu-hours: 20, every: week}]"))).OK(t)
	r := &hoursRun{t: t, at: at}
	l := &loop{folder: folder, store: folder, options: Options{Policy: file, Interval: time.Second}, log: zerolog.New(&r.log)}
	l.program = &command.Program{Now: func() time.Time { return r.at }}
	l.controller.Memory.FormerHours = former
	for _, change := range change {
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
	r.exchange(0)
	require.True(r.t, r.learn(time.Minute))
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
	killed := beginHours(t, dir, monday, ofAlice(monday, 100)).has(100, 100)
	require.Nil(t, killed.controller.Memory.FormerHours, "they leave the memory")
	killed.count(59, 59*time.Second).has(159, 100).count(1, time.Second).has(160, 160).count(7, 7*time.Second).has(167, 160)
	require.NoError(t, killed.folder.Close())
	ends := beginHours(t, dir, monday, ofAlice(monday, 150)).has(160, 160).count(30, -time.Hour).has(190, 190).count(5, time.Second)
	ends.exchange(time.Minute)
	require.NoError(t, ends.has(195, 195).folder.Close())
	back := beginHours(t, dir, monday.AddDate(0, 0, -1), nil).has(195, 195)
	require.True(t, monday.Equal(back.controller.Memory.Rules.Hours["week"].Period))
	require.NoError(t, back.count(5, time.Minute).has(200, 200).folder.Close())
	next := beginHours(t, dir, monday.AddDate(0, 0, 8), ofAlice(monday, 9)).has(0, 200).count(7, time.Minute).has(7, 7)
	require.Empty(t, killed.log.String()+ends.log.String()+back.log.String()+next.log.String())
}

// A server that doesn't answer delays neither the begin nor the end of a term, and what it has is unknown.
func TestHoursOfAServerThatHangs(t *testing.T) {
	silent := proctest.Try(net.Listen("tcp", "127.0.0.1:0")).OK(t)
	defer silent.Close()
	begun := time.Now()
	r := beginHours(t, t.TempDir(), monday, nil, func(l *loop) { l.options.UsageURL = "postgres://genv@" + silent.Addr().String() + "/genv" })
	require.True(t, r.controller.Memory.Rules.Hours["week"].Unread)
	r.exchange(hoursAtEnd)
	require.Less(t, time.Since(begun), hoursWithin/2)
	require.True(t, r.learn(time.Minute))
}

// Until the table can be read, caps count what was used since, which is added then.
func TestHoursWithoutATable(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, usagestore.HoursName)
	require.NoError(t, beginHours(t, dir, monday, ofAlice(monday, 100)).folder.Close())
	require.NoError(t, os.Rename(path, path+".was"))
	require.NoError(t, os.Mkdir(path, 0o700))
	r := beginHours(t, dir, monday, ofAlice(monday, 1)).has(0, -1).count(60, time.Minute).has(60, -1).count(10, 10*time.Second)
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
