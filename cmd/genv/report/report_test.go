package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func document() *usage.Report {
	row := func(name string, hours, idle int64) usage.ReportRow {
		return usage.ReportRow{Key: name, Amounts: usage.Amounts{Attached: hours * 3600, Idle: idle * 3600, Used: (hours - idle) * 3600, Findings: 2}, Peak: new(int64(3))}
	}
	epoch := time.Unix(0, 0).UTC()
	d := &usage.Report{By: usage.ByUser, Since: epoch, Until: epoch, Begun: epoch, Recorded: epoch, Total: usage.ReportRow{Peak: new(int64)}, Rows: []usage.ReportRow{row("alice", 100, 50), row("bob\x1b[31m", 40, 0), row("uid 1004", 1, 1), row("", 10, 10)}}
	d.Arrange()
	return d
}

// byHost has findings of caps, which no host has.
func byHost() *usage.Report {
	d := document()
	d.By = usage.ByHost
	return d
}

// A table is as wide as the terminal, if that is possible.
func TestTable(t *testing.T) {
	wide := table(document(), render.Output{}, 160)
	require.Equal(t, []string{
		"USER        ATTACHED  SHARE  USED  COMPUTING  IDLE  UNKNOWN  PEAK  FINDINGS  ENDED  DETACHED",
		"alice          100.0   66 %  50.0        0.0  50.0      0.0     3         2      0         0",
		`"bob?[31m"      40.0   26 %  40.0        0.0   0.0      0.0     3         2      0         0`,
		"(unknown)       10.0    7 %   0.0        0.0  10.0      0.0     3         2      0         0",
		"uid 1004         1.0    1 %   0.0        0.0   1.0      0.0     3         2      0         0",
	}, strings.Split(strings.TrimSuffix(wide, "\n"), "\n"))
	for width := 20; width <= 200; width++ {
		for line := range strings.Lines(table(document(), render.Output{}, width)) {
			require.LessOrEqual(t, ansi.StringWidth(strings.TrimSuffix(line, "\n")), max(width, 24), "%d", width)
		}
	}
	require.NotContains(t, table(document(), render.Output{NoHeader: true}, 0), "USER")
	require.NotContains(t, table(byHost(), render.Output{}, 0), "(unknown)")
	require.Contains(t, table(byHost(), render.Output{}, 0), "(fleet)")
}

func TestCSV(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeCSV(&b, document(), render.Output{Format: "csv"}))
	lines := strings.Split(b.String(), "\n")
	require.Equal(t, "key,attached_seconds,used_seconds,computing_seconds,idle_seconds,unknown_seconds,unmeasured_seconds,memory_mib_seconds,share,peak_devices,findings,terminated,detached", lines[0])
	require.Equal(t, "alice,360000,180000,0,180000,0,0,0,0.6623,3,2,0,0", lines[1])
}

// A page is a file of its own, whatever names users have.
func TestHTML(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, write(&command.Program{Out: &b}, document(), render.Output{Format: html}))
	require.Contains(t, b.String(), "<h1>GPU usage by user</h1>")
	require.Contains(t, b.String(), `<th scope="row">bob\x1b[31m</th>`)
	require.NoError(t, write(&command.Program{Out: &b}, byHost(), render.Output{Format: html}))
	require.Contains(t, b.String(), `<th scope="row">(fleet)</th>`)
}

func TestPrimaryGroups(t *testing.T) {
	getent := func(_ context.Context, database string, keys ...string) ([]byte, error) {
		known := map[string]string{
			"passwd alice": "alice:x:1001:2001::/home/alice:/bin/sh\n", "passwd bob": "bob:x:1002:2002::/:/bin/sh\n",
			"group 2001": "vision:x:2001:\n", // 2002 has no name
		}
		out, err := "", error(nil)
		for _, key := range keys {
			if known[database+" "+key] == "" {
				err = errors.New("exit status 2")
			}
			out += known[database+" "+key]
		}
		return []byte(out), err
	}
	require.Equal(t, map[string]string{"alice": "vision"}, primaryGroups(t.Context(), getent, []string{"alice", "bob", "nobody-else"}))
	require.Empty(t, primaryGroups(t.Context(), getent, nil))
}

// A database that is damaged is moved aside, and a new one begins.
func TestADamagedDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), store.FileName)
	damaged := []byte(strings.Repeat("no database ", 1000))
	require.NoError(t, os.WriteFile(path, damaged, 0o600))
	var log bytes.Buffer
	now := func() time.Time { return time.Date(2026, 11, 20, 12, 30, 0, 0, time.UTC) }
	k := &UsageFlags{URL: on, now: now, log: zerolog.New(&log), options: store.Options{In: time.UTC}}
	recorder, _ := k.keep(filepath.Dir(path))
	recorder.Consume(&controller.Round{Cluster: snapshot.Cluster{Hosts: make([]snapshot.Host, 1)}}, nil)
	recorder.Close()
	s := proctest.Try(store.OpenToRead(t.Context(), path, k.options)).OK(t)
	require.Equal(t, now().Unix(), proctest.Try(s.Mark(t.Context())).OK(t).Until)
	require.NoError(t, s.Close())
	require.Equal(t, damaged, proctest.ReadFile(t, path+".damaged-20261120-123000"))
	require.Contains(t, log.String(), "was moved to "+path+".damaged-20261120-123000, and a new one begins")
}

// Runs that start at the same time, and each later run, have the same pseudonyms.
func TestPseudonyms(t *testing.T) {
	dir := t.TempDir()
	off := proctest.Try(pseudonyms(dir, 0)).OK(t)
	require.Nil(t, off)
	require.NoFileExists(t, filepath.Join(dir, keyFile))

	made := make([]string, 8)
	var work errgroup.Group
	for i := range made {
		work.Go(func() error {
			p, err := pseudonyms(dir, time.Hour)
			if err == nil {
				made[i] = p("alice")
			}
			return err
		})
	}
	require.NoError(t, work.Wait())
	for _, name := range made {
		require.True(t, usage.IsPseudonym(name), name)
		require.Equal(t, made[0], name)
	}
	require.Equal(t, os.FileMode(0o600), proctest.Try(os.Stat(filepath.Join(dir, keyFile))).OK(t).Mode())
	require.NotEqual(t, made[0], proctest.Try(pseudonyms(t.TempDir(), time.Hour)).OK(t)("alice"))
}

// A key that can't be used keeps no names silently.
func TestKeysThatCanNotBeUsed(t *testing.T) {
	for says, spoil := range map[string]func(path string) error{
		"other users can read it":   func(path string) error { return os.Chmod(path, 0o644) }, //nolint:gosec // which is the point
		"has 5 bytes, not 32":       func(path string) error { return os.Truncate(path, 5) },
		"is a directory":            func(path string) error { return os.Rename(path, path+".was") },
		"no such file or directory": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		dir := filepath.Join(t.TempDir(), "state")
		require.NoError(t, os.Mkdir(dir, 0o700))
		proctest.Try(ensureKey(dir)).OK(t)
		path := filepath.Join(dir, keyFile)
		require.NoError(t, spoil(path))
		if says == "is a directory" {
			require.NoError(t, os.Mkdir(path, 0o700))
		}
		require.ErrorContains(t, proctest.Try(pseudonyms(dir, time.Hour)).Err, says)
	}
}

// The hours of a cap are in a table beside the memory of the controller.
func TestCapReport(t *testing.T) {
	dir := t.TempDir()
	monday := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	noon := monday.AddDate(0, 0, 2).Add(12 * time.Hour)
	seconds := map[snapshot.Username]float64{"alice": 3600, "bob": 7200.9, "carol": 60}
	hours := map[string]enforce.Hours{
		"week": {Period: monday, Seconds: seconds}, "lab": {Period: monday, Seconds: seconds}, "month": {Period: monday.AddDate(0, -1, 0), Seconds: seconds},
	}
	table := proctest.Try(store.Open(t.Context(), filepath.Join(dir, store.HoursName), store.Options{In: time.UTC})).OK(t)
	require.NoError(t, table.SaveHours(t.Context(), hours, noon))
	require.NoError(t, table.Close())
	file := filepath.Join(dir, "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`timezone: UTC
caps:
  - {name: week, gpu-hours: {"*": 20, alice: 2.5}, every: week}
  - {name: lab, gpu-hours: 100, every: week, users: [alice, bob], together: true}
  - {name: month, gpu-hours: 9, every: month}
  - {name: two, gpus: 2}
`), 0o600))
	var out, errs bytes.Buffer
	report := func(name, format string, at time.Time) string {
		out.Reset()
		errs.Reset()
		p := &options{
			Program: command.Program{Out: &out, Err: &errs, Now: func() time.Time { return at }}, stateDir: dir, policy: file, cap: name,
			output: render.Output{Format: format},
		}
		if err := p.capReport(t.Context()); err != nil {
			return err.Error()
		}
		return out.String() + errs.String()
	}
	require.Equal(t, "user,seconds,limit_seconds,until\nbob,7200,72000,2026-11-30T00:00:00Z\nalice,3600,9000,2026-11-30T00:00:00Z\ncarol,60,72000,2026-11-30T00:00:00Z\n", report("week", "csv", noon))
	require.Regexp(t, `\ncarol +0\.02 +20\.00 +2026-11-30 00:00\n`, report("week", "tui", noon))
	require.Contains(t, report("lab", "tui", noon), "Together: 3.00 of 100.00 GPU hours until 2026-11-30 00:00.\n")
	require.Regexp(t, "bob,7200,(?s:.*)\nNo controller is known to have counted here in the last 5 minutes.\n$", report("week", "csv", monday.AddDate(0, 0, 6)), "it is not too old for this")
	require.Contains(t, report("week", "csv", monday.AddDate(0, 0, -1)), "bob,7200,72000,2026-11-30", "the clock was set back")
	require.Regexp(t, "^user,seconds,limit_seconds,until\nNo GPU hours of month are counted since 2026-11-01 00:00.\n$", report("month", "csv", noon), "a period is over")
	require.Regexp(t, "^No GPU hours of month", report("month", "tui", noon))
	for _, name := range []string{"weak", "two"} {
		require.Contains(t, report(name, "csv", noon), `--cap: the policy has no cap of GPU hours "`+name)
	}
	var d CapDocument
	require.NoError(t, json.Unmarshal([]byte(report("lab", "json", noon)), &d))
	require.Equal(t, noon, d.Counted)
	require.Equal(t, []int64{100 * 3600, 10800}, []int64{*d.Limit, *d.Total})
	require.Equal(t, []CapUsage{{User: "bob", Seconds: 7200}, {User: "alice", Seconds: 3600}, {User: "carol", Seconds: 60}}, d.Rows)
	require.NoError(t, os.Remove(filepath.Join(dir, store.HoursName)))
	require.Contains(t, report("week", "csv", noon), "no GPU hours of caps were counted in "+dir)
}
