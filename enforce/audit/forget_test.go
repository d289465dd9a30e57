package audit_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/snapshot"
)

// recordsOf are the users of the records in a log, the oldest first.
func recordsOf(t *testing.T, path string) (users []string) {
	t.Helper()
	_, err := audit.Scan(path, func(r *audit.Record) error {
		users = append(users, string(r.User))
		return nil
	})
	require.NoError(t, err)
	return users
}

func TestForget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := audit.Log{Path: path, MaxBytes: 600, Keep: 20}
	odd := snapshot.Username("b\"ob\n\x1b[31m")
	for range 10 {
		for _, user := range []snapshot.Username{"bob", "bobby", "alice", odd, ""} {
			require.NoError(t, log.Append(audit.Record{Kind: audit.KindFinding, User: user, Text: "a finding"}))
		}
	}
	require.NoError(t, log.Append(audit.Record{Kind: audit.KindFailed, Text: "bob: no such host"}, audit.Record{Kind: audit.KindFailed, Text: "bobby-2"}))
	require.FileExists(t, path+".3")
	require.NoError(t, os.WriteFile(path+".1", append(content(t, path+".1"), "damaged bob\n"...), 0o600))
	require.NoError(t, os.Chmod(path+".1", 0o640))
	long := time.Now().Add(-time.Hour).Truncate(time.Second)
	require.NoError(t, os.Chtimes(path+".1", long, long))
	before := recordsOf(t, path)
	for _, stranger := range []snapshot.Username{"carol", "bo", "BOB", "*"} {
		found, err := audit.Forget(path, stranger, false)
		require.NoError(t, err)
		require.Zero(t, found.Records, stranger)
		require.Equal(t, before, recordsOf(t, path))
	}
	found, err := audit.Forget(path, "bob", true)
	require.NoError(t, err)
	require.Equal(t, audit.Forgotten{Records: 10, Mentioned: 2}, found)
	require.Equal(t, before, recordsOf(t, path), "a dry run")
	require.NoError(t, os.WriteFile(path+".2.forget", []byte("half"), 0o600), "of one that was killed")
	for _, user := range []snapshot.Username{"bob", odd} {
		found, err = audit.Forget(path, user, false)
		require.NoError(t, err)
		require.Equal(t, 10, found.Records)
	}
	var rest []string
	for _, user := range before {
		if user != "bob" && user != string(odd) {
			rest = append(rest, user)
		}
	}
	require.Equal(t, rest, recordsOf(t, path))
	require.Contains(t, string(content(t, path+".1")), "damaged bob")
	info, err := os.Stat(path + ".1")
	require.NoError(t, err)
	require.EqualValues(t, 0o640, info.Mode())
	require.Equal(t, long, info.ModTime().Local(), "or who follows the log reads it again")
	left, err := filepath.Glob(path + "*.forget")
	require.NoError(t, err)
	require.Empty(t, left)
}

// A controller that writes and rotates meanwhile loses nothing.
func TestForgetBesideAWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := audit.Log{Path: path, MaxBytes: 2000, Keep: 200}
	require.NoError(t, log.Append(audit.Record{Kind: audit.KindFinding, User: "bob"}))
	var work sync.WaitGroup
	const count = 300
	work.Go(func() {
		for range count {
			for _, user := range []snapshot.Username{"alice", "bob"} {
				if err := log.Append(audit.Record{Kind: audit.KindFinding, User: user}); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range 5 {
		_, err := audit.Forget(path, "bob", false)
		require.NoError(t, err)
	}
	work.Wait()
	_, err := audit.Forget(path, "bob", false)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("alice ", count), strings.Join(recordsOf(t, path), " ")+" ")
}

// Links and other users' files are refused.
func TestForgetFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "other")
	log := audit.Log{Path: other}
	require.NoError(t, log.Append(audit.Record{Kind: audit.KindFinding, User: "bob"}))
	require.NoError(t, os.Symlink(other, path))
	_, err := audit.Forget(path, "bob", false)
	require.Error(t, err)
	require.NoError(t, os.Remove(path))
	_, err = audit.Forget(path, "bob", false)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoFileExists(t, path, "it makes none")
	require.Equal(t, []string{"bob"}, recordsOf(t, other))
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}
