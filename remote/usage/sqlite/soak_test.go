package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/usage/sqlite"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/remote/usage/storetest"
)

func TestSoakAYear(t *testing.T) {
	path := filepath.Join(t.TempDir(), sqlite.FileName)
	d := storetest.Database{
		Open:       func() (store.Store, error) { return sqlite.Open(path, sqlite.Options{In: time.UTC}) },
		OpenToRead: func() (store.Store, error) { return sqlite.OpenToRead(path, time.UTC) },
	}
	storetest.Year(t, d, func() int64 {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Size()
	})
}
