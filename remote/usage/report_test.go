package usage_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func sums(by string, rows ...usage.ReportRow) *usage.Report {
	r := &usage.Report{Schema: usage.ReportSchema, By: by, Rows: rows, Since: time.Unix(1_790_000_000, 0).UTC(), Until: time.Unix(1_790_600_000, 0).UTC(), Begun: time.Unix(1_780_000_000, 0).UTC()}
	for i := range rows {
		r.Total.Add(&rows[i].Amounts)
		r.Total.Peak = new(max(*rows[i].Peak, *cmp.Or(r.Total.Peak, new(int64))))
	}
	r.Arrange()
	return r
}

func row(name string, attached, idle int64) usage.ReportRow {
	return usage.ReportRow{Key: name, Amounts: usage.Amounts{Attached: attached, Idle: idle, Used: attached - idle}, Peak: new(attached / 3600)}
}

func TestDocument(t *testing.T) {
	for _, test := range []struct {
		name, by string
		top      int
		keys     []string
		shares   []float64
		leftOut  int
	}{
		{"most first", usage.ByUser, 0, []string{"alice", "bob", ""}, []float64{0.75, 0.25, 0}, 0},
		{"top", usage.ByUser, 2, []string{"alice", "bob"}, []float64{0.75, 0.25}, 1},
		{"top of more than there are", usage.ByHost, 9, []string{"alice", "bob", ""}, []float64{0.75, 0.25, 0}, 0},
		{"days by date", usage.ByDay, 0, []string{"", "alice", "bob"}, []float64{0, 0.75, 0.25}, 0},
		{"the last days", usage.ByDay, 1, []string{"bob"}, []float64{0.25}, 2},
	} {
		d := sums(test.by, row("bob", 3600, 0), row("", 0, 0), row("alice", 10800, 7200))
		d.Top(test.top)
		require.Equal(t, test.keys, d.Keys(), test.name)
		for i, share := range test.shares {
			require.InDelta(t, share, d.Rows[i].Share, 0, test.name)
		}
		require.Equal(t, test.leftOut, d.LeftOut, test.name)
		require.Equal(t, int64(14400), d.Total.Attached, "also of what is left out")
	}
	require.Zero(t, sums(usage.ByUser).Total.Share)
	for _, change := range []func(*usage.Report){
		func(d *usage.Report) { d.Groups(func(string) []string { return nil }) },
		func(d *usage.Report) { d.HideUsers("alice") },
	} {
		empty := sums(usage.ByUser)
		change(empty)
		require.NotNil(t, empty.Rows, "an empty list in JSON")
	}
}

// The keys of docs/json.md: others read them.
func TestJSON(t *testing.T) {
	r := sums(usage.ByUser, usage.ReportRow{Key: "alice", Peak: new(int64(3)), Amounts: usage.Amounts{
		Attached: 3600, Used: 2000, Computing: 1000, Idle: 1600, Unknown: 60, Unmeasured: 5, Memory: 7, Findings: 4, Terminated: 2, Detached: 1,
	}})
	r.Missing, r.Recorded = 30, r.Until
	text := proctest.Try(json.Marshal(r)).OK(t)
	const row = `"attached_seconds": 3600, "used_seconds": 2000, "computing_seconds": 1000, "idle_seconds": 1600, "unknown_seconds": 60, "unmeasured_seconds": 5,
		"memory_mib_seconds": 7, "share": 1, "findings": 4, "terminated": 2, "detached": 1`
	require.JSONEq(t, `{"schema": "genv.remote.report/1", "by": "user", "since": "2026-09-21T14:13:20Z", "until": "2026-09-28T12:53:20Z",
		"begun": "2026-05-28T20:26:40Z", "recorded_until": "2026-09-28T12:53:20Z", "missing_seconds": 30,
		"rows": [{"key": "alice", "peak_devices": 3, `+row+`}], "total": {"key": "", "peak_devices": 3, `+row+`}}`, string(text))
}

func TestGroups(t *testing.T) {
	d := sums(usage.ByUser, row("alice", 3600, 0), row("bob", 3600, 3600), row("carol", 7200, 0))
	d.Groups(func(user string) []string {
		return map[string][]string{"alice": {"vision", "speech"}, "bob": {"vision"}, "carol": {"other"}}[user]
	})
	require.Equal(t, usage.ByGroup, d.By)
	require.Equal(t, []string{"other", "vision", "speech"}, d.Keys())
	require.Equal(t, int64(7200), d.Rows[1].Attached)
	require.Equal(t, int64(3600), d.Rows[1].Idle)
	require.Nil(t, d.Rows[1].Peak, "when the members together had most isn't known")
	require.Equal(t, int64(14400), d.Total.Attached)
}

func TestHideUsers(t *testing.T) {
	for _, test := range []struct {
		but  string
		want []string
	}{
		{"bob", []string{"bob", usage.OtherUsers}},
		{"", []string{usage.OtherUsers}},
		{"mallory", []string{usage.OtherUsers}},
		{"Bob", []string{usage.OtherUsers}},
	} {
		d := sums(usage.ByUser, row("alice", 3600, 0), row("bob", 3600, 3600), row("", 7200, 0))
		d.HideUsers(test.but)
		require.Equal(t, test.want, d.Keys(), test.but)
		sum, share := int64(0), 0.0
		for i := range d.Rows {
			sum, share = sum+d.Rows[i].Attached, share+d.Rows[i].Share
		}
		require.Equal(t, d.Total.Attached, sum)
		require.InDelta(t, 1, share, 1e-9)
	}
	alone := sums(usage.ByUser, row("bob", 3600, 3600))
	alone.HideUsers("bob")
	require.Equal(t, []string{"bob"}, alone.Keys())
}

// slow is a store in which each sum takes a time.
type slow struct {
	usage.Store
	takes time.Duration

	mu                   sync.Mutex
	now, most, sums, set int
	closed               int
	broken               bool
}

// summed is how many sums were asked for.
func (s *slow) summed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sums
}

func (s *slow) Report(ctx context.Context, q usage.Query) (*usage.Report, error) {
	s.mu.Lock()
	s.now++
	s.sums++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.now--; s.mu.Unlock() }()
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.broken {
		return nil, errors.New("broken")
	}
	name := map[usage.SumKind]string{usage.OfUser: "alice", usage.OfHost: "a", usage.OfModel: "H100", usage.OfAll: "2026-11-20"}[q.Kind()]
	return sums(q.By, row(name, 60, 0)), nil
}

func (s *slow) Close() error { s.closed++; return nil }

func readerOf(s *slow) *usage.Reader {
	open := func() (usage.Store, error) { s.set++; return s, nil }
	return usage.NewReader(open, time.Now, func(_ context.Context, users []string) func(string) []string {
		if users[0] != "alice" {
			return func(string) []string { return []string{"another user"} }
		}
		return func(string) []string { return []string{"vision", "speech"} }
	})
}

func TestReports(t *testing.T) {
	for by, want := range map[string][]string{usage.ByUser: {"alice"}, usage.ByHost: {"a"}, usage.ByModel: {"H100"}, usage.ByDay: {"2026-11-20"}, usage.ByGroup: {"speech", "vision"}} {
		s := &slow{}
		found := proctest.Try(readerOf(s).Report(t.Context(), usage.Query{By: by, Since: 1000, Until: 2000})).OK(t, by)
		require.Equal(t, by, found.By)
		require.Equal(t, want, found.Keys())
		require.Equal(t, 1, s.closed)
	}
	_, err := readerOf(&slow{}).Report(t.Context(), usage.Query{By: "week"})
	require.ErrorContains(t, err, "week")
	require.ErrorIs(t, proctest.Try(usage.NewReader(nil, time.Now, nil).Report(t.Context(), usage.Query{By: usage.ByGroup})).Err, usage.ErrNoGroups)
	broken := errors.New("broken")
	fails := func() (usage.Store, error) { return nil, broken }
	require.ErrorIs(t, proctest.Try(usage.NewReader(fails, time.Now, nil).Report(t.Context(), usage.Query{By: usage.ByHost})).Err, broken)
}

// However many ask, one reads at a time, and each report once in a minute.
func TestManyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{takes: time.Second}
		r := readerOf(s)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				by := usage.ByUser
				if i%2 == 0 {
					by = usage.ByHost
				}
				if _, err := r.Report(t.Context(), usage.Query{By: by}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Equal(t, 1, s.most)
		require.Equal(t, 2, s.summed(), "two reports")
		time.Sleep(59 * time.Second)
		proctest.Try(r.Report(t.Context(), usage.Query{By: usage.ByHost, Since: 5})).OK(t)
		require.Equal(t, 3, s.summed(), "another time is another report")
		time.Sleep(2 * time.Second)
		proctest.Try(r.Report(t.Context(), usage.Query{By: usage.ByHost})).OK(t)
		require.Equal(t, 4, s.summed())
	})
}

// What takes too long ends, and keeps no other reader waiting for longer than that.
func TestTooSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{takes: time.Hour}
		r := readerOf(s)
		begun := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, err := r.Report(t.Context(), usage.Query{By: usage.ByUser})
				if !errors.Is(err, usage.ErrBusy) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Equal(t, usage.ReadTimeout, time.Since(begun))
		s.takes = 0
		proctest.Try(r.Report(t.Context(), usage.Query{By: usage.ByUser})).OK(t, "a failure isn't kept")

		gone, leave := context.WithCancel(t.Context())
		leave()
		require.ErrorIs(t, proctest.Try(r.Report(gone, usage.Query{By: usage.ByModel})).Err, context.Canceled)
	})
}

// days are what users had on one day, in seconds.
func days(attached map[string]int64) usage.Days {
	d := make(usage.Days)
	for user, seconds := range attached {
		d.Add(user, "2026-11-02", &usage.Amounts{Attached: seconds})
	}
	return d
}

func TestLargest(t *testing.T) {
	for _, test := range []struct {
		name string
		has  map[string]int64
		n    int
		keys []string
		want map[string]int64
	}{
		{"nothing", nil, 2, nil, map[string]int64{}},
		{"few", map[string]int64{"a": 1, "b": 2}, 2, []string{"b", "a"}, map[string]int64{"a": 1, "b": 2}},
		{"many", map[string]int64{"a": 1, "b": 2, "c": 3}, 1, []string{"c", usage.Others}, map[string]int64{"c": 3, usage.Others: 3}},
		{"others are last", map[string]int64{"a": 1, usage.Others: 9}, 2, []string{"a", usage.Others}, map[string]int64{"a": 1, usage.Others: 9}},
		{"others grow", map[string]int64{"a": 1, "b": 2, usage.Others: 9}, 1, []string{"b", usage.Others}, map[string]int64{"b": 2, usage.Others: 10}},
	} {
		keys, largest := days(test.has).Largest(test.n)
		require.Equal(t, test.keys, keys, test.name)
		require.Equal(t, days(test.want), largest, test.name)
	}
}

// What is by day is of the rows of a document, whatever these become.
func TestDaysOfADocument(t *testing.T) {
	report := func() *usage.Report {
		r := sums(usage.ByUser, row("alice", 3600, 0), row("bob", 3600, 3600))
		r.Days = days(map[string]int64{"alice": 3600, "bob": 1800, usage.Others: 60})
		return r
	}
	d := report()
	d.Groups(func(user string) []string { return map[string][]string{"alice": {"x", "y"}, "bob": {"y"}}[user] })
	require.Equal(t, days(map[string]int64{"x": 3600, "y": 5400, usage.Others: 60}), d.Days)
	for but, want := range map[string]map[string]int64{
		"bob": {"bob": 1800, usage.OtherUsers: 3600, usage.Others: 60}, "": {usage.OtherUsers: 5400, usage.Others: 60},
	} {
		kept := report()
		d := new(*kept)
		d.HideUsers(but)
		require.Equal(t, days(want), d.Days, but)
		require.Equal(t, report().Days, kept.Days, "others have it too")
	}
	require.Equal(t, int64(3600), sums(usage.ByDay, row("2026-11-02", 3600, 0)).Days[usage.AllGPUs]["2026-11-02"].Attached)
}
