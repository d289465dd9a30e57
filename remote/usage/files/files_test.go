package files_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/files"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/remote/usage/storetest"
)

func TestStore(t *testing.T) {
	in, err := time.LoadLocation(storetest.Zone)
	require.NoError(t, err)
	storetest.Run(t, func(t *testing.T) storetest.Database {
		path := filepath.Join(t.TempDir(), "usage")
		return storetest.Database{
			Open:       func() (store.Store, error) { return files.Open(path, files.Options{In: in}) },
			OpenToRead: func() (store.Store, error) { return files.OpenToRead(path, in) },
		}
	})
}

const hour = 1_790_000_000 / 3600 * 3600

// entry is what users had attached in an hour.
func entry(at int64, attached map[string]int64) *store.Entry {
	batch := usage.Batch{Rows: make(map[usage.Key]usage.Amounts), Sums: make(map[usage.SumKey]usage.Sum)}
	all := usage.Sum{}
	for user, seconds := range attached {
		one := usage.Sum{Amounts: usage.Amounts{Attached: seconds}, Peak: 1}
		batch.Sums[usage.SumKey{Hour: at, Kind: usage.ByUser, Name: user}] = one
		all.Add(&one)
	}
	batch.Sums[usage.SumKey{Hour: at, Kind: usage.OfAll}] = all
	return &store.Entry{Batch: batch, Since: at, Mark: store.Mark{Until: at + 3600}}
}

func uids(user string) (uint32, bool) {
	uid, ok := map[string]uint32{"alice": 4001, "bob": 4002}[user]
	return uid, ok
}

// A user's part has what is the user's own, and nothing of anybody else.
func TestOwnParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage")
	s, err := files.Open(path, files.Options{In: time.UTC, UID: uids})
	require.NoError(t, err)
	for i := range int64(30) {
		require.NoError(t, s.Add(t.Context(), entry(hour+i*3600, map[string]int64{"alice": 100, "bob": 10, "": 7, "uid 77": 3})))
	}
	_, err = s.Tidy(t.Context(), time.Unix(hour, 0).AddDate(0, 0, 40))
	require.NoError(t, err)
	require.NoError(t, s.Add(t.Context(), entry(hour, map[string]int64{"alice": 1})), "more of a day that has no hours any more")
	require.NoError(t, s.Close())
	for _, row := range []struct {
		uid  uint32
		want []store.Row
	}{
		{4001, []store.Row{{Name: "alice", Sum: usage.Sum{Amounts: usage.Amounts{Attached: 3001}, Peak: 1}}}},
		{4002, []store.Row{{Name: "bob", Sum: usage.Sum{Amounts: usage.Amounts{Attached: 300}, Peak: 1}}}},
		{77, nil},
		{0, nil},
	} {
		own, err := files.OpenOwn(path, row.uid, time.UTC)
		require.NoError(t, err)
		r, err := own.Report(t.Context(), store.Query{Kind: usage.ByUser, Since: hour, Until: hour + 30*3600})
		require.NoError(t, err)
		require.Equal(t, row.want, r.Rows)
		days, err := own.Report(t.Context(), store.Query{Kind: usage.OfAll, ByDay: true, Since: hour, Until: hour + 30*3600})
		require.NoError(t, err)
		require.Equal(t, r.Total, days.Total)
		require.Equal(t, row.want == nil, len(days.Rows) == 0)
		require.NoError(t, own.Close())
	}
	for name, mode := range map[string]os.FileMode{"": 0o711, "all": 0o700, "4001": 0o711, "facts.json": 0o644} {
		info, err := os.Stat(filepath.Join(path, name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), name)
	}
	text, err := os.ReadFile(filepath.Join(path, "facts.json"))
	require.NoError(t, err)
	require.NotContains(t, string(text), "alice", "everybody can read it")
}

// Two processes don't keep the same folder, and one that ended is taken over.
func TestOneWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage")
	_, err := files.OpenToRead(path, time.UTC)
	require.ErrorIs(t, err, os.ErrNotExist)
	s, err := files.Open(path, files.Options{In: time.UTC})
	require.NoError(t, err)
	_, err = files.OpenToRead(path, time.UTC)
	require.ErrorIs(t, err, os.ErrNotExist, "there is nothing yet")
	_, err = files.Open(path, files.Options{In: time.UTC})
	require.ErrorContains(t, err, "another genv")
	require.NoError(t, s.Add(t.Context(), entry(hour, map[string]int64{"alice": 5})))
	require.NoError(t, s.Close())
	s, err = files.Open(path, files.Options{In: time.UTC})
	require.NoError(t, err)
	mark, err := s.Mark(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.Mark{Until: hour + 3600}, mark)
	require.NoError(t, s.Close())
}

// What can't be read is said, and what is damaged is moved aside when more is to be written.
func TestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage")
	s, err := files.Open(path, files.Options{In: time.UTC})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Add(t.Context(), entry(hour, map[string]int64{"alice": 5})))
	name := filepath.Join(path, "all", time.Unix(hour, 0).UTC().Format(time.DateOnly)+".json")
	query := store.Query{Kind: usage.ByUser, Since: hour, Until: hour + 3600}
	require.NoError(t, os.WriteFile(name, []byte(`{"schema":"genv.usage.day/2"}`), 0o600))
	_, err = s.Report(t.Context(), query)
	require.ErrorIs(t, err, store.ErrNewer)
	require.ErrorIs(t, s.Add(t.Context(), entry(hour, map[string]int64{"alice": 5})), store.ErrNewer, "it is left alone")
	require.NoError(t, os.WriteFile(name, []byte(`{"schema":"genv.us`), 0o600))
	_, err = s.Report(t.Context(), query)
	require.ErrorIs(t, err, store.ErrDamaged)
	require.NoError(t, s.Add(t.Context(), entry(hour, map[string]int64{"alice": 7})))
	r, err := s.Report(t.Context(), query)
	require.NoError(t, err)
	require.Equal(t, int64(7), r.Total.Attached)
}

func FuzzDay(f *testing.F) {
	f.Add([]byte(`{"schema":"genv.usage.day/1","sums":[{"hour":1790000000,"kind":1,"name":"alice","amounts":[1,2,3,4,5,6,7,8,9,10,11],"peak":1}]}`))
	f.Add([]byte(`{"schema":"genv.usage.day/1","whole":true,"sums":[{"amounts":[]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "usage")
		s, err := files.Open(path, files.Options{In: time.UTC})
		require.NoError(t, err)
		defer s.Close()
		require.NoError(t, s.Add(t.Context(), entry(hour, map[string]int64{"alice": 5})))
		require.NoError(t, os.WriteFile(filepath.Join(path, "all", time.Unix(hour, 0).UTC().Format(time.DateOnly)+".json"), text, 0o600))
		_, _ = s.Report(t.Context(), store.Query{Kind: usage.ByUser, Since: hour, Until: hour + 3600})
	})
}
