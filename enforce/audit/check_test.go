package audit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/audit"
)

func TestCheck(t *testing.T) {
	const record = `{"time":"2026-11-20T12:00:00Z","kind":"held","reason":"x"}` + "\n"
	for _, tt := range []struct {
		name, content string
		isLog         bool
	}{
		{"an empty file", "", true},
		{"a record", record, true},
		{"a record of a genv that added a key", `{"time":"2026-11-20T12:00:00Z","kind":"failed","newer":[1]}` + "\n", true},
		{"a record after a cut line", `{"time":"2026-11-` + "\n" + record, true},
		{"a record after lost blocks", strings.Repeat("\x00", 4096) + "\n" + record, true},
		{"a record without its end", strings.TrimSpace(record), true},
		{"an account file", "root:x:0:0:root:/root:/bin/bash\n", false},
		{"text without an end of line", "hello", false},
		{"an empty line", "\n", false},
		{"another program's JSON", `{"time":"2026-11-20T12:00:00Z","level":"info"}` + "\n", false},
		{"another program's kinds", `{"time":"2026-11-20T12:00:00Z","kind":"Pod"}` + "\n", false},
		{"without a time", `{"kind":"held"}` + "\n", false},
		{"a policy", "rules:\n  env-devices: true\n", false},
		{"binary", "\x7fELF\x00\x00", false},
		{"one long line", strings.Repeat("x", 8<<20), false},
		{"many lines", strings.Repeat("x\n", 1000) + record, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			require.NoError(t, os.WriteFile(path, []byte(tt.content), 0o600))
			err := audit.Check(path)
			if tt.isLog {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, audit.ErrNotALog)
				require.ErrorContains(t, err, path)
			}
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, tt.content, string(content))
		})
	}
}

func TestCheckOfOtherFileTypes(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	require.NoError(t, audit.Check(missing))
	require.NoFileExists(t, missing)
	require.ErrorIs(t, audit.Check(dir), audit.ErrNotALog)
	require.NoError(t, os.Symlink(missing, filepath.Join(dir, "link")))
	require.ErrorIs(t, audit.Check(filepath.Join(dir, "link")), audit.ErrNotALog)
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	require.ErrorIs(t, audit.Check(filepath.Join(dir, "fifo")), audit.ErrNotALog)
	require.Error(t, audit.Check(filepath.Join(dir, "no", "folder", "\x00")))
}

// What the log writes is a log.
func TestCheckAcceptsALog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := audit.Log{Path: path}
	require.NoError(t, log.Append())
	require.NoError(t, audit.Check(path))
	for _, kind := range []audit.Kind{
		audit.KindFinding, audit.KindCleared, audit.KindReport, audit.KindOutcome, audit.KindNotified, audit.KindOverLimit, audit.KindFailed, audit.KindDuplicate,
	} {
		require.NoError(t, os.Remove(path))
		require.NoError(t, log.Append(audit.Record{Time: time.Now(), Kind: kind}))
		require.NoError(t, audit.Check(path), kind)
	}
}
