package store_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// BenchmarkReport reports a year of 1,000 hosts and 300 users.
func BenchmarkReport(b *testing.B) {
	s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), store.FileName), store.Options{In: time.UTC})
	require.NoError(b, err)
	defer s.Close()
	begin := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	end := begin.AddDate(1, 0, 0)
	for day := begin; day.Before(end); day = day.AddDate(0, 0, 1) {
		sums := make(map[usage.SumKey]usage.Sum)
		for kind, names := range map[usage.Kind]int{usage.ByHost: 1000, usage.ByUser: 300, usage.OfAll: 1} {
			for i := range names {
				sums[usage.SumKey{Kind: kind, Hour: day.Unix(), Name: fmt.Sprint(kind, i)}] = usage.Sum{Amounts: usage.Amounts{Attached: 86400, Used: int64(i)}, Peak: 8}
			}
		}
		require.NoError(b, s.Add(b.Context(), &usage.Entry{Batch: usage.Batch{Sums: sums}, Since: begin.Unix(), Mark: usage.Mark{Until: day.AddDate(0, 0, 1).Unix()}}))
	}
	_, err = s.Tidy(b.Context(), end)
	require.NoError(b, err)
	for name, q := range map[string]usage.Query{
		"user": {Kind: usage.ByUser}, "host": {Kind: usage.ByHost}, "day": {Kind: usage.OfAll, ByDay: true},
	} {
		b.Run(name, func(b *testing.B) {
			q.Since, q.Until = begin.AddDate(0, 0, 10).Unix(), end.AddDate(0, 0, -10).Unix()
			for b.Loop() {
				_, err := s.Report(b.Context(), q)
				require.NoError(b, err)
			}
		})
	}
}
