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

func TestSoakYears(t *testing.T) {
	path := filepath.Join(t.TempDir(), sqlite.FileName)
	d := storetest.Database{
		Open:       func() (store.Store, error) { return sqlite.Open(path, sqlite.Options{In: time.UTC}) },
		OpenToRead: func() (store.Store, error) { return sqlite.OpenToRead(path, time.UTC) },
	}
	storetest.Years(t, d, func() (bytes int64) {
		for _, part := range []string{path, path + "-wal"} {
			info, err := os.Stat(part)
			require.NoError(t, err)
			bytes += info.Size()
		}
		return bytes
	})
}
