package fleet_test

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// onTerminal is what a command prints on a terminal of a width.
func onTerminal(t *testing.T, width uint16, getenv func(string) string, args ...string) string {
	t.Helper()
	master, tty, err := pty.Open()
	require.NoError(t, err)
	defer master.Close()
	require.NoError(t, pty.Setsize(tty, &pty.Winsize{Rows: 40, Cols: width}))
	shown := make(chan string)
	go func() {
		text, _ := io.ReadAll(master) // which ends with EIO
		shown <- string(text)
	}()
	var errs strings.Builder
	p := command.Program{In: strings.NewReader(""), Out: tty, Err: &errs, Getenv: getenv, Now: time.Now}
	code := command.Run(t.Context(), p, genvtest.Commands, append([]string{"genv"}, args...))
	require.NoError(t, tty.Close())
	require.Zero(t, code, errs.String())
	return strings.ReplaceAll(<-shown, "\r\n", "\n")
}

// TestGPUsOnATerminal: its width decides about the columns, and its user about colour.
func TestGPUsOnATerminal(t *testing.T) {
	f, _ := monitoredFleet(t)
	args := []string{"remote", "gpus", "-F", f.SSHConfig(), "-H", "nosudo,bare"}
	for _, width := range []uint16{80, 120, 160, 200} {
		text := onTerminal(t, width, environ("TERM=xterm", "NO_COLOR=1"), args...)
		require.NotContains(t, text, "\x1b")
		require.Equal(t, width >= 100, strings.Contains(text, "POWER"), "%d: %s", width, text)
		for line := range strings.Lines(text) {
			require.LessOrEqual(t, utf8.RuneCountInString(line), int(width)+1, line)
		}
	}
	require.Contains(t, onTerminal(t, 120, environ("TERM=xterm"), args...), "\x1b[35munknown\x1b[0m")
	require.NotContains(t, onTerminal(t, 120, environ("TERM=dumb"), args...), "\x1b")
	require.NotContains(t, onTerminal(t, 80, environ("TERM=xterm"), append(args, "--format", "csv")...), "…")
}

// TestHostileNamesOfGPUs, over a real sshd: what users call environments and commands is a
// cell, a text in JSON, and nothing else.
func TestHostileNamesOfGPUs(t *testing.T) {
	f := sshd.Start(t, sshd.Options{
		Hosts: []sshd.HostOptions{{Name: "ours", GPUs: 2}, {Name: "old", GPUs: 2, Rights: sshd.MaySudo143}, {Name: "bare", GPUs: 2, Rights: sshd.NoGenv}},
		Genv:  genvtest.Program(t),
	})
	evil := "x\x1b[2J\x1b]0;t\a\nUid:\t0\nUser root:x:60802:0::/:/bin/sh\nCommand 1 ls; <b>\u202e" + strings.Repeat("é", 5000)
	for _, h := range f.Hosts() {
		if h.Name != "bare" {
			_, err := h.Activate(testfleet.Environment{User: "bob", Config: snapshot.EnvConfig{Name: `=1+1"; alice <b>`}, Devices: []snapshot.DeviceIndex{0}})
			require.NoError(t, err)
		}
		_, err := h.StartJob(testfleet.Job{User: "bob", Env: genvtest.Outside, Name: evil, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
		require.NoError(t, err)
	}
	look := func(args ...string) string {
		r := genvtest.Run(t, append([]string{"remote", "gpus", "-F", f.SSHConfig(), "-H", "ours,old,bare"}, args...)...)
		require.Zero(t, r.Code, r.Err)
		require.NotRegexp(t, "[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e]", r.Out)
		return r.Out
	}
	var document live.GPUs
	require.NoError(t, json.Unmarshal([]byte(look("--format", "json")), &document))
	for _, host := range document.Hosts {
		process := host.GPUs[0].Processes[0]
		require.Equal(t, snapshot.Username("bob"), process.User, host.Host)
		require.True(t, strings.HasPrefix(process.Command, "x?[2J"), "%s: %q", host.Host, process.Command)
		require.LessOrEqual(t, len(process.Command), snapshot.MaxCommand)
	}
	require.Equal(t, 9, strings.Count(look(), "\n"), "a header, six GPUs, and the summary")
	rows, err := csv.NewReader(strings.NewReader(look("--format", "csv", "--no-header"))).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 6)
	require.Equal(t, `bob "=1+1'; alice <b>"`, rows[0][11])
}

// TestSpreadsheets: what a user calls an environment is text in every CSV.
func TestSpreadsheets(t *testing.T) {
	s := &snapshot.Snapshot{Environments: []snapshot.Environment{{
		EID: "@1", UID: 1001, Username: "-u", Creation: genvtest.Date(t, "20/11/2026 21:11:25"), Config: snapshot.EnvConfig{Name: "=1+1;=2"}, PIDs: []snapshot.PID{7},
	}}}
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: genvhost.New(s).Old()})
	r := genvtest.Run(t, "remote", "envs", "-F", f.SSHConfig(), "-H", "a", "--format", "csv", "--no-header", "--no-summary", "--timestamp")
	require.Equal(t, `a,"'@1","'-u","'=1+1;=2",20/11/2026 21:11:25`+"\n", r.Out, r.Err)
	r = genvtest.Run(t, "remote", "query", "-F", f.SSHConfig(), "-H", "a", "--query", "eid", "config.name", "pids")
	require.Equal(t, `"'@1","'=1+1;=2",7`+"\n", r.Out, r.Err)
}
