package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/trial"
	records "github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// A controller records what it judges, and a later one goes on; genv policy try says what another
// policy would have done.
func TestPolicyTry(t *testing.T) {
	t.Parallel()
	s := outsiders(2)
	at := snapshot.DateOf(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	s.Devices[0].Attachments = []snapshot.Attachment{{EID: "7", Time: at}}
	s.Devices[1].Attachments = []snapshot.Attachment{{EID: "7", Time: at}}
	s.Environments = []snapshot.Environment{{EID: "7", UID: 4001, Username: "alice"}}
	f := startSim(t, &inprocess.Server{Name: "a", Handler: genvhost.New(s)})
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	old := write("old.yaml", "defaults: {non-env-processes: true, warn: {for: 1h}}\n")
	run := func(signal syscall.Signal) {
		d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "a", "--interval", "1", "--policy", old, "--socket", "off", "--history", "off", "--state-dir", state, "--record", "on")
		seen := 0
		d.next(func(c enforcement.CycleDocument) bool { seen += c.Answered; return seen == 2 })
		d.signal(signal)
		d.end()
	}
	run(syscall.SIGTERM)
	files, err := records.Files(filepath.Join(state, records.FolderName))
	require.NoError(t, err)
	require.Len(t, files, 1)
	run(syscall.SIGTERM)

	stricter := write("new.yaml", "defaults: {non-env-processes: true, max-devices-per-user: 1}\n")
	tried := func(args ...string) (d trial.Document) {
		r := genv(t, append([]string{"policy", "try", "--format", "json", "--state-dir", state, "--policy"}, args...)...)
		require.Zero(t, r.code, r.err)
		require.NoError(t, json.Unmarshal([]byte(r.out), &d))
		return d
	}
	same := tried(old)
	require.GreaterOrEqual(t, same.Judgements, 4)
	require.Zero(t, same.Different)
	require.Equal(t, same.Total.Was, same.Total.Would)
	require.Equal(t, 2, same.Total.Was.Found)
	require.Equal(t, []string{old}, same.Policies)
	other := tried(stricter)
	require.Equal(t, 2, other.Total.Would.Terminated)
	require.Equal(t, 1, other.Total.Would.Detached)
	require.Zero(t, other.Total.Was.Terminated)
	require.Equal(t, 1, tried(stricter, "--user", "alice").Total.Would.Found)
	require.Len(t, other.Begin, 3)
	require.Empty(t, tried(stricter, "--cases", "0").Begin)

	table := genv(t, "policy", "try", "--recording", files[0].Path, "--policy", stricter)
	require.Zero(t, table.code, table.err)
	require.Contains(t, table.out, "max-devices-per-user  0 → 1 (+1)")
	require.Contains(t, table.out, "Would have been found or acted on, and was not:")
	require.Contains(t, table.err, "Not known:")
	csv := genv(t, "policy", "try", "--state-dir", state, "--policy", stricter, "--format", "csv")
	require.Contains(t, csv.out, "alice,max-devices-per-user,0,1,0,0,0,0,0,0,0,1\n")
}

func TestPolicyTryRefuses(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, records.FolderName), 0o700))
	for says, args := range map[string][]string{
		"there is no recording in":          {"--state-dir", filepath.Join(dir, "none")},
		"there are no recordings":           {"--state-dir", dir},
		"no such file":                      {"--recording", filepath.Join(dir, "none")},
		"is not before":                     {"--since", "1d", "--until", "2d"},
		"write 0 or more":                   {"--cases", "-1"},
		"nothing is recorded":               {"--recording", "/dev/null"},
		"write on or off":                   nil,
		"write an hour or more, such as 7d": nil,
		"write a size of 10m or more":       nil,
	} {
		full := append([]string{"policy", "try", "--policy", "none"}, args...)
		switch says {
		case "write on or off":
			full = []string{"remote", "-H", "a", "enforce", "--record", "yes"}
		case "write an hour or more, such as 7d":
			full = []string{"remote", "-H", "a", "enforce", "--record", "on", "--record-keep", "1m"}
		case "write a size of 10m or more":
			full = []string{"remote", "-H", "a", "enforce", "--record", "on", "--record-max", "1k"}
		}
		r := genv(t, full...)
		require.NotZero(t, r.code)
		require.Contains(t, r.err, says)
	}
}
