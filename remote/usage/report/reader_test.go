package report_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slow is a store in which each sum takes a time.
type slow struct {
	usage.Store
	takes time.Duration

	mu                   sync.Mutex
	now, most, sums, set int
	closed               int
	broken               bool
	more                 []usage.Row
}

// summed is how many sums were asked for.
func (s *slow) summed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sums
}

func (s *slow) Report(ctx context.Context, q usage.Query) (usage.Report, error) {
	s.mu.Lock()
	s.now++
	s.sums++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.now--; s.mu.Unlock() }()
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return usage.Report{}, ctx.Err()
	}
	if s.broken {
		return usage.Report{}, errors.New("broken")
	}
	now := time.Now().Unix()
	name := map[usage.Kind]string{usage.ByUser: "alice", usage.ByHost: "a", usage.ByModel: "H100"}[q.Kind]
	if q.ByDay {
		name = "2026-11-20"
	}
	rows := []usage.Row{{Name: name, Sum: usage.Sum{Amounts: usage.Amounts{Attached: 60}}}}
	if q.Kind == usage.ByUser && !q.ByDay && q.Since > 1e6 {
		rows = append(rows, usage.Row{Sum: usage.Sum{Amounts: usage.Amounts{Attached: 5}}})
		rows = append(rows, s.more...)
	}
	return usage.Report{Since: q.Since, Until: q.Until, Begun: now - 24*3600, Mark: usage.Mark{Until: now - 3600}, Missing: 600, Rows: rows}, nil
}

func (s *slow) Close() error { s.closed++; return nil }

func readerOf(s *slow) *report.Reader {
	return report.NewReader(report.ReaderOptions{
		Now: time.Now, In: time.UTC, Open: func() (usage.Store, error) { s.set++; return s, nil },
		Groups: func(_ context.Context, users []string) func(string) []string {
			if users[0] != "alice" {
				return func(string) []string { return []string{"another user"} }
			}
			return func(string) []string { return []string{"vision", "speech"} }
		},
	})
}

func TestReports(t *testing.T) {
	for by, want := range map[string][]string{report.ByUser: {"alice"}, report.ByHost: {"a"}, report.ByModel: {"H100"}, report.ByDay: {"2026-11-20"}, report.ByGroup: {"speech", "vision"}} {
		s := &slow{}
		found, err := readerOf(s).Report(t.Context(), report.Query{By: by, Since: 1000, Until: 2000})
		require.NoError(t, err, by)
		require.Equal(t, by, found.By)
		require.Equal(t, want, found.Keys())
		require.Equal(t, by == report.ByDay, found.Days == nil)
		require.Equal(t, 1, s.closed)
	}
	_, err := readerOf(&slow{}).Report(t.Context(), report.Query{By: "week"})
	require.ErrorContains(t, err, "week")
	_, err = report.NewReader(report.ReaderOptions{Now: time.Now, In: time.UTC}).Report(t.Context(), report.Query{By: report.ByGroup})
	require.ErrorIs(t, err, report.ErrNoGroups)
	broken := errors.New("broken")
	_, err = report.NewReader(report.ReaderOptions{Now: time.Now, Open: func() (usage.Store, error) { return nil, broken }}).Report(t.Context(), report.Query{By: report.ByHost})
	require.ErrorIs(t, err, broken)
}

// However many ask, one reads at a time, and each report once in a minute.
func TestManyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{takes: time.Second}
		r := readerOf(s)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				by := report.ByUser
				if i%2 == 0 {
					by = report.ByHost
				}
				if _, err := r.Report(t.Context(), report.Query{By: by}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Equal(t, 1, s.most)
		require.Equal(t, 4, s.summed(), "two reports, each with its days")
		time.Sleep(59 * time.Second)
		_, err := r.Report(t.Context(), report.Query{By: report.ByHost, Since: 5})
		require.NoError(t, err)
		require.Equal(t, 6, s.summed(), "another time is another report")
		time.Sleep(2 * time.Second)
		_, err = r.Report(t.Context(), report.Query{By: report.ByHost})
		require.NoError(t, err)
		require.Equal(t, 8, s.summed())
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
				_, err := r.Report(t.Context(), report.Query{By: report.ByUser})
				if !errors.Is(err, report.ErrBusy) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Equal(t, report.DefaultTimeout, time.Since(begun))
		s.takes = 0
		_, err := r.Report(t.Context(), report.Query{By: report.ByUser})
		require.NoError(t, err, "a failure isn't kept")

		gone, leave := context.WithCancel(t.Context())
		leave()
		_, err = r.Report(gone, report.Query{By: report.ByModel})
		require.ErrorIs(t, err, context.Canceled)
	})
}
