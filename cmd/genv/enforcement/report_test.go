package enforcement_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// reported runs `genv remote report`, and returns its document.
func reported(t *testing.T, args ...string) *usage.Report {
	t.Helper()
	r := genvtest.Run(t, append([]string{"remote", "report", "--format", "json"}, args...)...).OK(t)
	return genvtest.Decode[*usage.Report](t, r)
}

// A controller keeps who used what; the report has it, by whatever it is asked for, and another run continues it.
func TestUsageOfAController(t *testing.T) {
	t.Parallel()
	s := outsiders(2)
	s.Devices[0].Attachments = []snapshot.Attachment{{EID: "7"}}
	s.Environments = []snapshot.Environment{{EID: "7", UID: 4001, Username: "alice"}}
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: genvhost.New(s)})
	state := filepath.Join(t.TempDir(), "state")
	run := func(state string, args ...string) *background {
		d := startDaemon(t, nil, append([]string{"-F", f.SSHConfig(), "-H", "a", "--interval", "1", "--non-env-processes", "--socket", "off", "--state-dir", state}, args...)...)
		seen := 0
		d.next(func(c enforcement.CycleDocument) bool { seen += c.Answered; return seen == 3 })
		return d
	}
	first := run(state)
	first.signal(syscall.SIGTERM).end()
	require.NotContains(t, first.said(), "history")
	path := filepath.Join(state, store.FileName)
	db := proctest.Try(store.OpenToRead(t.Context(), path, store.Options{In: time.Local})).OK(t)
	mark := proctest.Try(db.Mark(t.Context())).OK(t)
	require.True(t, mark.Ended)
	now := time.Now()
	sums := func(by string) map[string]usage.ReportRow {
		r := proctest.Try(db.Report(t.Context(), usage.Query{By: by, Since: now.Add(-time.Hour).Unix(), Until: now.Add(time.Hour).Unix()})).OK(t)
		rows := make(map[string]usage.ReportRow)
		for _, row := range r.Rows {
			rows[row.Key] = row
		}
		return rows
	}
	alice, host := sums(usage.ByUser)["alice"], sums(usage.ByHost)["a"]
	require.NoError(t, db.Close())
	require.Positive(t, alice.Attached, "three cycles a second apart, of which a busy machine may delay the first")
	require.Equal(t, alice.Attached, alice.Idle+alice.Used)
	require.Equal(t, int64(2), host.Findings, "two processes are in no environment")
	require.Equal(t, int64(2), host.Terminated)
	require.Equal(t, alice.Attached, host.Attached)

	socket := filepath.Join(state, "web.sock")
	second := run(state, "--web", "unix:"+socket)
	require.Equal(t, []string{"alice"}, reportOnPage(t, socket).Keys()[:1], "what the run before kept")
	second.signal(syscall.SIGTERM).end()
	db = proctest.Try(store.OpenToRead(t.Context(), path, store.Options{In: time.Local})).OK(t)
	defer db.Close()
	require.Greater(t, sums(usage.ByUser)["alice"].Attached, alice.Attached)

	killed := run(state)
	require.Eventually(t, func() bool {
		mark, err := db.Mark(t.Context())
		return err == nil && !mark.Ended
	}, time.Minute, 10*time.Millisecond)
	killed.signal(syscall.SIGKILL).end()
	run(state).says("the last run ended without saving what it had counted last")

	without := t.TempDir()
	off := run(without, "--usage-db", "off")
	off.signal(syscall.SIGTERM).end()
	require.NoFileExists(t, filepath.Join(without, store.FileName))
}

// A usage database that is damaged inside is moved aside, and a new one begins.
func TestADamagedDatabase(t *testing.T) {
	t.Parallel()
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: genvhost.New(outsiders(1))})
	dir := usageOfTenDays(t)
	path := filepath.Join(dir, store.FileName)
	content := proctest.ReadFile(t, path)
	for i := 4096; i < len(content); i++ { // the first page has the schema
		content[i] = byte(i * 7)
	}
	require.NoError(t, os.WriteFile(path, content, 0o600))
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "a", "--interval", "1", "--socket", "off", "--audit-log", "off", "--state-dir", dir)
	go d.drain()
	d.says("the database can't be read: it was moved to " + path + ".damaged-")
	require.Eventually(t, func() bool {
		return genvtest.Run(t, "remote", "report", "--state-dir", dir).Code == command.ExitOK
	}, time.Minute, 50*time.Millisecond)
	require.Equal(t, content, proctest.ReadFile(t, proctest.Try(filepath.Glob(path + ".damaged-*")).OK(t)[0]))
	require.NoFileExists(t, "off", "no log was asked for")
}

// What a controller counted on a PostgreSQL server is there for the next, and for a report from anywhere.
func TestUsageOnAServer(t *testing.T) {
	t.Parallel()
	url := servers.StartPostgres(t, "").URL()
	s := outsiders(1)
	s.Devices[0].Attachments = []snapshot.Attachment{{EID: "7"}}
	s.Environments = []snapshot.Environment{{EID: "7", UID: 4001, Username: "alice"}}
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: genvhost.New(s)})
	attached := int64(0)
	for range 2 {
		state := t.TempDir()
		d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "a", "--interval", "1", "--socket", "off", "--state-dir", state, "--usage-db", url, "--usage-fleet", "lab")
		seen := 0
		d.next(func(c enforcement.CycleDocument) bool { seen += c.Answered; return seen == 3 })
		d.signal(syscall.SIGTERM).end()
		require.NotContains(t, d.said(), "history")
		require.NoFileExists(t, filepath.Join(state, store.FileName))
		r := reported(t, "--usage-db", url)
		require.Equal(t, []string{"alice"}, r.Keys()[:1])
		require.Greater(t, r.Rows[0].Attached, attached)
		attached = r.Rows[0].Attached
	}
	genvtest.Run(t, "remote", "report", "--usage-db", url, "--usage-fleet", "other").Exits(t, command.ExitFailed, "the fleets in this database are: lab; --usage-fleet NAME names one")
}

func reportOnPage(t *testing.T, socket string) *usage.Report {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	request := proctest.Try(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/api/v1/report", http.NoBody)).OK(t)
	answer, err := transport.RoundTrip(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	var d usage.Report
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&d))
	return &d
}

// usageOfTenDays is a folder with what alice and bob had on two hosts until now.
func usageOfTenDays(t *testing.T) (stateDir string) {
	dir := t.TempDir()
	s := proctest.Try(store.Open(t.Context(), filepath.Join(dir, store.FileName), store.Options{In: time.Local})).OK(t)
	account, now := usage.NewMeter(time.Local), time.Now()
	begin := now.Add(-240 * time.Hour)
	for at := begin; !at.After(now); at = at.Add(time.Hour) {
		host := func(name snapshot.Hostname, user snapshot.Username, devices int) snapshot.Host {
			s := &snapshot.Snapshot{Environments: []snapshot.Environment{{EID: "7", UID: 4001, Username: user}}}
			for i := range devices {
				s.Devices = append(s.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), Name: "NVIDIA H100", Attachments: []snapshot.Attachment{{EID: "7"}}})
			}
			return snapshot.Host{Name: name, Snapshot: s}
		}
		account.Look(at, snapshot.Cluster{Hosts: []snapshot.Host{host("a", "alice", 2), host("b", "bob", 1)}})
	}
	require.NoError(t, s.Add(t.Context(), &usage.Entry{Sums: account.Take(), Since: begin.Unix(), Mark: usage.Mark{Until: now.Unix(), Ended: true}}))
	require.NoError(t, s.Close())
	return dir
}

func TestRemoteReport(t *testing.T) {
	dir := usageOfTenDays(t)
	week := reported(t, "--state-dir", dir)
	require.Equal(t, usage.ReportSchema, week.Schema)
	require.Equal(t, []string{"alice", "bob"}, week.Keys())
	require.InDelta(t, 7*24*3600, week.Rows[1].Attached, 3600, "an hour counts as a whole")
	require.Equal(t, 2*week.Rows[1].Attached, week.Rows[0].Attached)
	require.Equal(t, week.Rows[0].Attached, week.Rows[0].Idle)
	require.Equal(t, 3*week.Rows[1].Attached, week.Total.Attached)
	require.Equal(t, int64(3), *week.Total.Peak)
	require.Equal(t, []string{"a", "b"}, reported(t, "--state-dir", dir, "--by", "host").Keys())
	require.Equal(t, []string{"NVIDIA H100"}, reported(t, "--state-dir", dir, "--by", "model", "--since", "1d").Keys())
	require.Len(t, reported(t, "--state-dir", dir, "--by", "day", "--since", "2d").Rows, 3)
	require.Equal(t, []string{"alice"}, reported(t, "--state-dir", dir, "--top", "1").Keys())
	day := time.Now().AddDate(0, 0, -3)
	one := reported(t, "--state-dir", dir, "--since", day.Format(time.DateOnly), "--until", day.AddDate(0, 0, 1).Format(time.DateOnly))
	require.Equal(t, usage.NextDay(day.Unix(), time.Local)-usage.DayOf(day.Unix(), time.Local), one.Rows[1].Attached)

	policy := policyFile(t, "groups:\n  vision: [alice, bob]\n")
	groups := reported(t, "--state-dir", dir, "--by", "group", "--policy", policy)
	require.Equal(t, []string{"vision"}, groups.Keys())
	require.Equal(t, week.Total.Attached, groups.Rows[0].Attached)

	require.InDelta(t, 240*3600, reported(t, "--state-dir", dir, "--since", "30d").Rows[1].Attached, 3600, "all ten days")

	table := genvtest.Run(t, "remote", "report", "--state-dir", dir)
	require.Regexp(t, `^USER +ATTACHED +SHARE .*\nalice +33\d\.\d +67 % `, table.Out)
	require.Contains(t, table.Err, " GPU hours attached, ")
	page := genvtest.Run(t, "remote", "report", "--state-dir", dir, "--format", "html").OK(t)
	require.Regexp(t, `(?s)^<!doctype html>.*<svg class="chart".*<title>alice, [0-9-]+: [0-9.]+ GPU hours used`, page.Out)
	genvtest.Run(t, "remote", "report", "--state-dir", dir, "--format", "html", "--cap", "week").Exits(t, command.ExitFailed, "--format html is not for --cap: write tui, csv or json")
	nothing := genvtest.Run(t, "remote", "report", "--state-dir", dir, "--since", "2020-01-01", "--until", "2020-02-01").OK(t)
	require.Empty(t, nothing.Out)
	require.Contains(t, nothing.Err, "No usage is recorded from 2020-01-01")
}

// What `enforce:` in config.yaml says counts for the commands that read what it keeps.
func TestReportReadsWhatEnforceKeeps(t *testing.T) {
	dir := usageOfTenDays(t)
	genvtest.Configure(t, command.ConfigFile, "enforce: {state-dir: "+dir+", usage-db: 'on'}\n")
	require.Equal(t, []string{"alice", "bob"}, reported(t).Keys())
	genvtest.Configure(t, command.ConfigFile, "enforce: {state-dir: "+dir+", usage-db: 'postgres://127.0.0.1:1/genv', usage-fleet: lab}\n")
	genvtest.Run(t, "remote", "report").Exits(t, command.ExitFailed, "127.0.0.1:1")
}

func TestRemoteReportRefuses(t *testing.T) {
	dir := t.TempDir()
	damaged := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(damaged, store.FileName), []byte(strings.Repeat("no database ", 1000)), 0o600))
	for says, args := range map[string][]string{
		"there is no usage database in " + dir: {"--state-dir", dir},
		"it is damaged":                        {"--state-dir", damaged},
		`--by "week": write user,`:             {"--by", "week"},
		"--top -1: write 0 or more":            {"--top", "-1"},
		`--format "pdf": write tui`:            {"--format", "pdf"},
		"is not before":                        {"--since", "1d", "--until", "2d"},
		"is in the future":                     {"--since", "2199-01-01", "--until", "2200-01-01"},
		"--since is empty":                     {"--since", ""},
		`--until "foo"`:                        {"--until", "foo"},
		`--since "yesterday"`:                  {"--since", "yesterday"},
		"not a URL of a PostgreSQL database":   {"--usage-db", "sqlite"},
		"a password doesn't belong there":      {"--usage-db", "postgres://genv:pw@db/genv"},
		"--usage-fleet is for --usage-db":      {"--usage-fleet", "lab"},
	} {
		require.Empty(t, genvtest.Run(t, append([]string{"remote", "report"}, args...)...).Exits(t, command.ExitFailed, says).Out)
	}
	for says, args := range map[string][]string{
		"write a day or more": {"--usage-keep", "1h"}, "write on, off, or the URL": {"--usage-db", "sqlite"},
		"a password doesn't belong there": {"--usage-db", "postgres://genv:pw@db/genv"}, "--usage-fleet is for": {"--usage-fleet", "lab"},
	} {
		genvtest.Run(t, append([]string{"remote", "enforce", "-H", "a", "--state-dir", dir}, args...)...).Exits(t, command.ExitFailed, says)
	}
}
