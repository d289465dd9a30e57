package audit_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func at(minute int) time.Time { return time.Date(2026, 11, 20, 10, minute, 0, 0, time.UTC) }

func read(t *testing.T, path string) ([]audit.Record, audit.Damage) {
	var list []audit.Record
	damage := proctest.Try(audit.Scan(path, func(r *audit.Record) error { list = append(list, *r); return nil })).OK(t)
	return list, damage
}

func TestAppendAndScan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	want := []audit.Record{
		{Time: at(1), Kind: audit.KindFinding, Run: "r", Cycle: 3, IDs: []string{"f"}, Rule: enforce.RuleIdle, Decision: enforce.DecisionAct, Host: "a", User: "bob", UID: new(snapshot.UID(7)), Text: "line", Finding: &enforce.Finding{ID: "f", Rule: enforce.RuleIdle}},
		{Time: at(2), Kind: audit.KindOrder, IDs: []string{"f"}, Order: "r/3/a", Host: "a", PID: 5, Start: 9, EID: "10", Why: []string{"why"}},
		{Time: at(3), Kind: audit.KindOutcome, IDs: []string{"f"}, Order: "r/3/a", Host: "a", Device: new(snapshot.DeviceIndex(0)), EID: "10", Status: order.StatusDetached, Reason: "x", By: "admin"},
	}
	log := audit.Log{Path: path}
	require.NoError(t, log.Append(want[:2]...))
	require.NoError(t, log.Append(want[2:]...))
	got, damage := read(t, path)
	require.Equal(t, want, got)
	require.Zero(t, damage)
	require.Equal(t, os.FileMode(0o600), proctest.Try(os.Stat(path)).OK(t).Mode())
}

func TestScanWithoutFile(t *testing.T) {
	list, damage := read(t, filepath.Join(t.TempDir(), "none"))
	require.Empty(t, list)
	require.Zero(t, damage)
}

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := audit.Log{Path: path, MaxBytes: 1000, Keep: 3}
	for i := range 100 {
		require.NoError(t, log.Append(audit.Record{Time: at(0), Kind: audit.KindOverLimit, Cycle: i, Reason: strings.Repeat("x", 100)}))
	}
	list, _ := read(t, path)
	require.Equal(t, 99, list[len(list)-1].Cycle)
	for i := range list[1:] {
		require.Equal(t, list[i].Cycle+1, list[i+1].Cycle, "in order, with no gap at the edges of files")
	}
	files := proctest.Try(filepath.Glob(path + "*")).OK(t)
	require.Len(t, files, 4)
	for _, name := range files {
		require.Less(t, proctest.Try(os.Stat(name)).OK(t).Size(), int64(1300))
	}
}

func TestSeveralWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	done := make(chan error)
	for w := range 4 {
		go func() {
			log := audit.Log{Path: path, MaxBytes: 2000, Keep: 1000}
			for i := range 25 {
				if err := log.Append(audit.Record{Time: at(0), Kind: audit.KindOverLimit, Run: fmt.Sprint(w), Cycle: i}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		require.NoError(t, <-done)
	}
	list, damage := read(t, path)
	require.Len(t, list, 100)
	require.Zero(t, damage)
}

func TestCutLineIsEndedAndSkipped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := audit.Log{Path: path}
	require.NoError(t, log.Append(audit.Record{Time: at(0), Kind: audit.KindOverLimit, Cycle: 1}))
	whole := proctest.ReadFile(t, path)
	for cut := range len(whole) {
		require.NoError(t, os.WriteFile(path, append(whole, whole[:cut]...), 0o600))
		require.NoError(t, (&audit.Log{Path: path}).Append(audit.Record{Time: at(0), Kind: audit.KindOverLimit, Cycle: 2}))
		list, damage := read(t, path)
		require.Equal(t, 2, list[len(list)-1].Cycle, "cut after %d bytes", cut)
		require.GreaterOrEqual(t, len(list), 2)
		require.LessOrEqual(t, damage.Lines, 1)
	}
}

func TestForeignFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	require.NoError(t, os.WriteFile(other, []byte("precious\n"), 0o600))
	path := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(path("target"), nil, 0o600))
	require.NoError(t, os.Symlink(path("target"), path("link")))
	require.NoError(t, os.Link(other, path("hard")))
	require.NoError(t, os.Mkdir(path("folder"), 0o700))
	require.NoError(t, unix.Mkfifo(path("fifo"), 0o600))
	names := []string{"link", "hard", "folder", "fifo", "none/audit"}
	if os.Geteuid() == 0 {
		require.NoError(t, os.WriteFile(path("theirs"), nil, 0o666))
		require.NoError(t, os.Chown(path("theirs"), 1000, 1000))
		names = append(names, "theirs")
	}
	for _, name := range names {
		log := audit.Log{Path: path(name)}
		require.ErrorIs(t, log.Append(audit.Record{Kind: audit.KindOverLimit}), audit.ErrNotWritten, name)
	}
	require.Equal(t, "precious\n", proctest.ReadText(t, other))
}

func TestFullDiskLosesNoRecord(t *testing.T) {
	dir := smallDisk(t)
	log := audit.Log{Path: filepath.Join(dir, "audit.jsonl")}
	record := func(i int) audit.Record {
		return audit.Record{Time: at(0), Kind: audit.KindOutcome, Cycle: i, Reason: strings.Repeat("x", 1000)}
	}
	n := 0
	for ; n < 10000; n++ {
		if err := log.Append(record(n)); err != nil {
			require.ErrorIs(t, err, audit.ErrNotWritten)
			require.ErrorIs(t, err, unix.ENOSPC)
			break
		}
	}
	require.Greater(t, n, 10)
	list, damage := read(t, log.Path)
	require.Len(t, list, n, "the file ends with a whole line")
	require.Zero(t, damage)
	require.ErrorIs(t, log.Reserve(4096), audit.ErrNotWritten, "nothing more can be promised")
	require.ErrorIs(t, log.Append(record(n+1)), audit.ErrNotWritten)

	require.NoError(t, os.Remove(filepath.Join(dir, "ballast")))
	require.NoError(t, log.Append(record(n+2)))
	list, damage = read(t, log.Path)
	require.Len(t, list, n+3, "what waited was written first")
	require.Equal(t, n+2, list[n+2].Cycle)
	require.Zero(t, damage)
}

func TestReserve(t *testing.T) {
	dir := smallDisk(t)
	log := audit.Log{Path: filepath.Join(dir, "audit.jsonl")}
	require.NoError(t, log.Append(audit.Record{Time: at(0), Kind: audit.KindOrder}))
	require.NoError(t, log.Reserve(64<<10))
	fill(t, filepath.Join(dir, "more"))
	for i := range 50 {
		require.NoError(t, log.Append(audit.Record{Time: at(0), Kind: audit.KindOutcome, Cycle: i, Reason: strings.Repeat("x", 1000)}))
	}
}

// Users who fill the disk don't keep records from being written for a long time, and the file isn't rotated then.
func TestRoomOnAFullDisk(t *testing.T) {
	dir := smallDisk(t)
	log := audit.Log{Path: filepath.Join(dir, "audit.jsonl"), Room: 128 << 10, MaxBytes: 32 << 10}
	record := audit.Record{Time: at(0), Kind: audit.KindOutcome, Reason: strings.Repeat("x", 1000)}
	require.NoError(t, log.Append(record))
	fill(t, filepath.Join(dir, "more"))
	for range 100 {
		require.NoError(t, log.Append(record))
		require.NoError(t, log.Reserve(2<<10))
	}
	var err error
	for range 100 {
		err = errors.Join(err, log.Append(record))
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, log.Path)
	require.NoFileExists(t, log.Path+".1")
	require.NoError(t, os.Remove(filepath.Join(dir, "more")))
	require.NoError(t, log.Append(record))
	list, damage := read(t, log.Path)
	require.Zero(t, damage)
	require.NotEmpty(t, list)
	require.FileExists(t, log.Path+".1")
}

// smallDisk is a file system of 1 MiB with a third of it as ballast.
func smallDisk(t *testing.T) string {
	proctest.NeedRoot(t) // only root can mount a small file system
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 300<<10), 0o600))
	return dir
}

// fill uses up what is left of a file system.
func fill(t *testing.T, path string) {
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, unix.ENOSPC)
}

// A text that a host makes long neither fills the log nor loses the records of others.
func TestLongTextsAreCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := &audit.Log{Path: path}
	long := strings.Repeat("<", 30<<20)
	require.NoError(t, log.Append(
		audit.Record{Time: at(1), Kind: audit.KindOutcome, Host: "evil", PID: 5, Reason: long, Text: long},
		audit.Record{Time: at(1), Kind: audit.KindOutcome, Host: "good", PID: 6},
	))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(64<<10))
	var hosts []snapshot.Hostname
	_, err = audit.Scan(path, func(r *audit.Record) error {
		hosts = append(hosts, r.Host)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []snapshot.Hostname{"evil", "good"}, hosts)
}

// A host that reports long command lines can't fill the log with them.
func TestLongCommandLinesAreCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := audit.Log{Path: path}
	long := strings.Repeat("日", 128<<10/3)
	findings := make([]enforce.Finding, 1000)
	records := make([]audit.Record, len(findings))
	for i := range records {
		findings[i] = enforce.Finding{ID: "f", Rule: enforce.RuleNonEnvProcesses, PID: 5, Command: long, Container: long}
		records[i] = audit.Record{Time: at(0), Kind: audit.KindFinding, IDs: []string{"f"}, Text: "x", Finding: &findings[i]}
	}
	require.NoError(t, log.Append(records...))
	require.Less(t, proctest.Try(os.Stat(path)).OK(t).Size(), int64(len(records)*1024))
	list, _ := read(t, path)
	require.Len(t, list, len(records))
	require.Equal(t, strings.Repeat("日", snapshot.MaxCommand/3), list[0].Finding.Command)
	require.Len(t, list[0].Finding.Container, snapshot.MaxCommand/3*3)
	require.Equal(t, long, findings[0].Command, "others see it whole")

	short := strings.Repeat("x", snapshot.MaxCommand)
	require.NoError(t, log.Append(audit.Record{Time: at(0), Kind: audit.KindFinding, Finding: &enforce.Finding{Command: short}}))
	list, _ = read(t, path)
	require.Equal(t, short, list[len(list)-1].Finding.Command)
}

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
			content := proctest.ReadFile(t, path)
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
	for _, kind := range []audit.RecordKind{
		audit.KindFinding, audit.KindCleared, audit.KindOrder, audit.KindOutcome, audit.KindNotified, audit.KindOverLimit, audit.KindFailed, audit.KindDuplicate,
	} {
		require.NoError(t, os.Remove(path))
		require.NoError(t, log.Append(audit.Record{Time: time.Now(), Kind: kind}))
		require.NoError(t, audit.Check(path), kind)
	}
}
