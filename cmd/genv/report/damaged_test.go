package report

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// A database that is damaged is moved aside, and a new one begins.
func TestADamagedHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), store.FileName)
	damaged := []byte(strings.Repeat("no database ", 1000))
	require.NoError(t, os.WriteFile(path, damaged, 0o600))
	var log bytes.Buffer
	now := func() time.Time { return time.Date(2026, 11, 20, 12, 30, 0, 0, time.UTC) }
	k := &keeper{program: &command.Program{Now: now}, log: zerolog.New(&log)}
	s, err := k.open(path, store.Options{In: time.UTC})
	require.NoError(t, err)
	mark, err := s.Mark(t.Context())
	require.NoError(t, err)
	require.Zero(t, mark)
	require.NoError(t, s.Close())
	aside, err := os.ReadFile(path + ".damaged-20261120-123000")
	require.NoError(t, err)
	require.Equal(t, damaged, aside)
	require.Contains(t, log.String(), "was moved to "+path+".damaged-20261120-123000, and a new one begins")
}
