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
		sums := make(usage.Sums)
		for kind, names := range map[usage.SumKind]int{usage.OfHost: 1000, usage.OfUser: 300, usage.OfAll: 1} {
			for i := range names {
				sums[usage.SumKey{Kind: kind, Hour: day.Unix(), Name: fmt.Sprint(kind, i)}] = usage.Sum{Amounts: usage.Amounts{Attached: 86400, Used: int64(i)}, Peak: 8}
			}
		}
		require.NoError(b, s.Add(b.Context(), &usage.Entry{Sums: sums, Since: begin.Unix(), Mark: usage.Mark{Until: day.AddDate(0, 0, 1).Unix()}}))
	}
	_, err = s.Tidy(b.Context(), end)
	require.NoError(b, err)
	for name, q := range map[string]usage.Query{
		"user": {By: usage.ByUser}, "host": {By: usage.ByHost}, "day": {By: usage.ByDay},
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

// BenchmarkAdd adds what 1,000 hosts do in an hour, minute by minute.
func BenchmarkAdd(b *testing.B) {
	s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), store.FileName), store.Options{In: time.UTC})
	require.NoError(b, err)
	defer s.Close()
	sums := make(usage.Sums)
	hour := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).Unix()
	for kind, names := range map[usage.SumKind]int{usage.OfHost: 1000, usage.OfUser: 300, usage.OfModel: 5, usage.OfAll: 1} {
		for i := range names {
			sums[usage.SumKey{Hour: hour, Kind: kind, Name: fmt.Sprint(kind, i)}] = usage.Sum{Amounts: usage.Amounts{Attached: 60, Used: 30, Memory: int64(i)}, Peak: 9}
		}
	}
	for i := int64(0); b.Loop(); i++ {
		require.NoError(b, s.Add(b.Context(), &usage.Entry{Sums: sums, Since: hour + i, Mark: usage.Mark{Until: hour + i + 1}}))
	}
}
