package proc_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

func TestHasFile(t *testing.T) {
	dir, me := t.TempDir(), snapshot.UID(os.Geteuid())
	file, link, odd := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "\xff")
	for _, path := range []string{file, odd} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	require.NoError(t, os.Symlink(file, link))
	reader := withReader()
	t.Cleanup(reader.Reader.Close)
	for _, fs := range []proc.FS{{}, reader} {
		for _, row := range []struct {
			path string
			uid  snapshot.UID
			want bool
		}{{file, me, true}, {file, me + 1, false}, {link, me, false}, {dir, me, false}, {file + "/in", me, false}, {dir + "/none", me, false}} {
			has, err := fs.HasFile(row.path, row.uid)
			require.NoError(t, err)
			require.Equal(t, row.want, has, row.path)
		}
		has, err := fs.HasFile(odd, me)
		require.True(t, has || err != nil, "it isn't missing")
	}
}

// TestHasFileWithoutAnAnswer: it is given up, and for a while not tried again for that user.
func TestHasFileWithoutAnAnswer(t *testing.T) {
	fs := proc.FS{Reader: &proc.ReaderProcess{Command: []string{"sh", "-c", "echo {}; exec sleep 60"}}}
	t.Cleanup(fs.Reader.Close)
	began := time.Now()
	for range 20 {
		_, err := fs.HasFile("/etc/passwd", 1000)
		require.ErrorIs(t, err, proc.ErrUnreadable)
	}
	require.Less(t, time.Since(began), 8*time.Second)
}
