package enforcement_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// A user is forgotten in the usage history and in the log, and the sums stay.
func TestForget(t *testing.T) {
	dir := usageOfTenDays(t)
	log := audit.Log{Path: filepath.Join(dir, "log")}
	require.NoError(t, log.Append(audit.Record{Time: time.Now(), Kind: audit.KindFinding, User: "bob"}, audit.Record{Kind: audit.KindFinding, User: "alice"},
		audit.Record{Kind: audit.KindCleared, IDs: []string{"max-devices-per-user/bob"}}))
	notes := filepath.Join(dir, "notes")
	require.NoError(t, os.WriteFile(notes, []byte("call bob\n"), 0o600))
	forget := func(user string, args ...string) genvtest.Result {
		return genvtest.Run(t, append([]string{"remote", "history", "forget", "--state-dir", dir, "--audit-log", log.Path, "--user", user}, args...)...)
	}
	before := reported(t, "--state-dir", dir)
	for says, user := range map[string]string{"nothing is kept about carol": "carol", `--user ""`: "", `--user "(other)"`: "(other)", `--user "user:forgotten"`: "user:forgotten"} {
		r := forget(user)
		require.Equal(t, command.ExitFailed, r.Code, user)
		require.Contains(t, r.Err, says)
		require.Equal(t, before.Rows, reported(t, "--state-dir", dir).Rows)
	}
	lost := forget("bob", "--audit-log", filepath.Join(dir, "none"))
	require.Equal(t, command.ExitFailed, lost.Code)
	require.Contains(t, lost.Err, "name the log")
	require.Equal(t, before.Rows, reported(t, "--state-dir", dir).Rows, "it could not be recorded")
	other := forget("bob", "--audit-log", notes)
	require.Equal(t, command.ExitFailed, other.Code)
	require.Contains(t, other.Err, "is not an audit log")
	dry := forget("bob", "--dry-run")
	require.Zero(t, dry.Code, dry.Err)
	require.Contains(t, dry.Out, "rows would go to user:forgotten")
	require.Contains(t, dry.Out, "2 records would be removed")
	require.Equal(t, before.Rows, reported(t, "--state-dir", dir).Rows)
	done := forget("bob")
	require.Zero(t, done.Code, done.Err)
	require.Contains(t, done.Out, "2 records are removed")
	after := reported(t, "--state-dir", dir)
	require.Equal(t, []string{"alice", "user:forgotten"}, after.Keys())
	require.Equal(t, before.Total, after.Total)
	require.Equal(t, before.Rows[1].Attached, after.Rows[1].Attached)
	onlyAlice := func() {
		t.Helper()
		for _, name := range []string{"log", store.FileName} {
			content, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			require.NotContains(t, string(content), "bob", name)
			require.Contains(t, string(content), "alice", name)
		}
	}
	onlyAlice()
	require.Contains(t, genvtest.Run(t, "remote", "history", "--audit-log", log.Path).Out, "forgot a user")

	// What a run leaves that is killed after the last row goes with the next one.
	db, err := sql.Open("sqlite", filepath.Join(dir, store.FileName))
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO names (name) VALUES ('bob')")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.Contains(t, forget("bob").Err, "nothing is kept about bob")
	onlyAlice()
}

// Users have pseudonyms after the time that was asked for, and can be forgotten nevertheless.
func TestUsersGetPseudonyms(t *testing.T) {
	t.Parallel()
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: genvhost.New(outsiders(0))})
	dir := usageOfTenDays(t)
	before := reported(t, "--state-dir", dir)
	require.Equal(t, []string{"alice", "bob"}, before.Keys())
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "a", "--interval", "1", "--socket", "off", "--state-dir", dir, "--history-names", "4d")
	seen := 0
	d.next(func(c enforcement.CycleDocument) bool { seen += c.Answered; return seen == 3 })
	d.signal(syscall.SIGTERM)
	d.end()
	require.NotContains(t, d.said(), "history can't")

	after := reported(t, "--state-dir", dir)
	require.Len(t, after.Rows, 4, "%v", after.Keys())
	require.Equal(t, before.Total.Attached, after.Total.Attached)
	nameless := 0
	for _, key := range after.Keys() {
		if usage.IsPseudonym(key) {
			nameless++
		}
	}
	require.Equal(t, 2, nameless)
	newer := reported(t, "--state-dir", dir, "--since", "3d")
	require.Equal(t, []string{"alice", "bob"}, newer.Keys())

	forgotten := genvtest.Run(t, "remote", "history", "forget", "--state-dir", dir, "--user", "bob", "--audit-log", "off")
	require.Zero(t, forgotten.Code, forgotten.Err)
	last := reported(t, "--state-dir", dir)
	require.Len(t, last.Rows, 3, "alice, her pseudonym, and the forgotten: %v", last.Keys())
	require.Equal(t, before.Total.Attached, last.Total.Attached)
}
