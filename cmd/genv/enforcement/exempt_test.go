package enforcement_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/cmd/genv/operators"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// exempted runs `genv remote exempt`, and returns its document.
func exempted(t *testing.T, args ...string) operators.ExemptDocument {
	t.Helper()
	return genvtest.Decode[operators.ExemptDocument](t, genvtest.Run(t, append([]string{"remote", "exempt", "--format", "json"}, args...)...).OK(t))
}

// An exemption made while no controller runs counts from its next start, and is recorded then. --revoke ends it.
func TestExemptOfflineAndThroughTheSocket(t *testing.T) {
	h := genvhost.New(outsiders(1))
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: h})
	dir := t.TempDir()
	state, log, path := filepath.Join(dir, "state"), filepath.Join(dir, "log"), filepath.Join(dir, "s")
	require.NoError(t, os.Mkdir(state, 0o700))
	offline := []string{"--socket", "off", "--state-dir", state}

	require.Empty(t, exempted(t, append(offline, "--list")...).Exemptions)
	made := exempted(t, append(offline, "--host", "a", "--for", "12h", "--reason", "deadline")...)
	require.Regexp(t, `\(uid \d+\).* exempted host a until .*: deadline\. No controller runs on .*; the next controller records it at its start\.$`, made.Text)
	require.Equal(t, state, made.StateDir)
	require.Len(t, made.Exemptions, 1)
	id := made.Exemptions[0].ID
	require.Regexp(t, `^[0-9a-f]{8}$`, id)
	require.InDelta(t, 12, made.Exemptions[0].Until.Sub(made.Exemptions[0].Created).Hours(), 0.001)
	table := genvtest.Run(t, append([]string{"remote", "exempt", "--list"}, offline...)...)
	require.Regexp(t, `(?m)^`+id+` .* a .*\(uid \d+\).* deadline$`, table.Out)

	args := []string{"-F", f.SSHConfig(), "-H", "a", "--interval", "1", "--non-env-processes", "--socket", path, "--audit-log", log, "--state-dir", state}
	daemon := startDaemon(t, nil, args...)
	cycle := daemon.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
	require.Empty(t, cycle.Orders, "the host is exempt")
	require.Len(t, cycle.Exemptions, 1)
	recorded := genvtest.Run(t, "remote", "history", "--audit-log", log)
	require.Regexp(t, `a .*exempt .*exempted host a until .*: deadline`, recorded.Out)
	require.NoFileExists(t, filepath.Join(state, "unrecorded.json"))

	genvtest.Run(t, append([]string{"remote", "exempt", "--user", "bob", "--for", "1h", "--reason", "x"}, offline...)...).Exits(t, command.ExitFailed, "another controller is using this folder", "name it with --socket PATH")
	online := exempted(t, "--socket", path, "--host", "a", "--user", "root", "--for", "30m", "--reason", "typo")
	require.Len(t, online.Exemptions, 2)
	require.Equal(t, path, online.Controller)
	for _, name := range []string{"exempt", "hold"} {
		args := map[string][]string{"exempt": {"--for", "30m"}}[name]
		r := genvtest.Run(t, append([]string{"remote", name, "--socket", path, "--host", "aa", "--reason", "typo"}, args...)...)
		require.Equal(t, genvtest.Result{Code: command.ExitFailed, Err: `genv: there is no host aa; did you mean "a"?` + "\n"}, r)
	}
	require.Len(t, exempted(t, "--socket", path, "--list").Exemptions, 2)
	exempted(t, "--socket", path, "--revoke", online.Exemptions[1].ID)
	left := exempted(t, "--socket", path, "--revoke", id, "--reason", "done")
	require.Regexp(t, `ended the exemption of host a: done`, left.Text)
	require.Empty(t, left.Exemptions)
	daemon.next(func(c enforcement.CycleDocument) bool { return len(c.Orders) > 0 })

	daemon.signal(os.Kill).end()
	require.Empty(t, exempted(t, append(offline, "--list")...).Exemptions)
}

// With --audit-log it is recorded at once, and not again.
func TestExemptOfflineWithARecord(t *testing.T) {
	dir := t.TempDir()
	state, log := filepath.Join(dir, "state"), filepath.Join(dir, "log")
	require.NoError(t, os.Mkdir(state, 0o700))
	offline := []string{"--socket", "off", "--state-dir", state, "--audit-log", log}
	made := exempted(t, append(offline, "--user", "root", "--rule", "idle", "--for", "1d", "--reason", "r")...)
	require.NotContains(t, made.Text, "the next controller")
	require.NoFileExists(t, filepath.Join(state, "unrecorded.json"))
	again := exempted(t, append(offline, "--user", "root", "--rule", "idle", "--for", "2d", "--reason", "longer")...)
	require.Len(t, again.Exemptions, 1, "it takes the place of the same one")
	require.Equal(t, made.Exemptions[0].ID, again.Exemptions[0].ID)
	exempted(t, append(offline, "--revoke", made.Exemptions[0].ID)...)
	history := genvtest.Run(t, "remote", "history", "--audit-log", log, "--format", "json")
	require.Equal(t, 3, strings.Count(history.Out, `"action"`), history.Out)
}

func TestExemptRefuses(t *testing.T) {
	state := t.TempDir()
	require.NoError(t, os.Chmod(state, 0o700))
	for says, args := range map[string][]string{
		"needs --for TIME and --reason TEXT": {"--user", "bob", "--for", "1h"},
		"an exemption needs --for":           {},
		"needs a user or a host":             {"--for", "1h", "--reason", "r"},
		"at most 30d":                        {"--user", "bob", "--for", "31d", "--reason", "r"},
		"a duration of more than 0":          {"--user", "bob", "--for", "0", "--reason", "r"},
		"write the index of a GPU":           {"--host", "a", "--device", "-1", "--for", "1h", "--reason", "r"},
		"a GPU is exempted with its host":    {"--user", "bob", "--device", "1", "--for", "1h", "--reason", "r"},
		"x is neither a rule nor a cap of the policy: write one of caps, env-devices": {"--user", "bob", "--rule", "x", "--for", "1h", "--reason", "r"},
		"can't be printed":           {"--user", "bob", "--for", "1h", "--reason", "\x1b[2J"},
		"name one host":              {"--host", "a", "--host", "b", "--for", "1h", "--reason", "r"},
		"don't go together":          {"--list", "--user", "bob"},
		"there is no such exemption": {"--revoke", "01234567"},
		"no such file or directory":  {"--state-dir", "/nonexistent", "--list"},
		"is not a record of genv":    {"--audit-log", "/etc/passwd", "--list"},
	} {
		genvtest.Run(t, append([]string{"remote", "exempt", "--socket", "off", "--state-dir", state}, args...)...).Exits(t, command.ExitFailed, says)
	}
	entries := proctest.Try(os.ReadDir(state)).OK(t)
	for _, e := range entries {
		require.Equal(t, "lock", e.Name(), "nothing was written")
	}
}

// The folder of another account's controller: the error says as whom to ask.
func TestExemptInAnothersFolder(t *testing.T) {
	proctest.NeedRoot(t)
	state := t.TempDir()
	require.NoError(t, os.Chown(state, 1, 1))
	r := genvtest.Run(t, "remote", "exempt", "--socket", "off", "--state-dir", state, "--user", "bob", "--for", "1h", "--reason", "r").Exits(t, command.ExitFailed)
	require.Regexp(t, regexp.QuoteMeta(state)+` belongs to (daemon|uid 1), .*run it with sudo, with that account as .account:. in /etc/genv/config.yaml`, r.Err)
}

// Killed at any moment, what was exempted is whole, and it was recorded.
func TestExemptKilled(t *testing.T) {
	state := t.TempDir()
	require.NoError(t, os.Chmod(state, 0o700))
	program := genvtest.Program(t)
	for i := range 40 {
		cmd := exec.Command(program, "remote", "exempt", "--socket", "off", "--state-dir", state, "--host", "h"+strings.Repeat("x", i), "--for", "1h", "--reason", "r")
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(i) * time.Millisecond)
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		list := exempted(t, "--socket", "off", "--state-dir", state, "--list").Exemptions
		data, err := os.ReadFile(filepath.Join(state, "unrecorded.json"))
		if len(list) > 0 {
			require.NoError(t, err)
		}
		for _, e := range list {
			require.Contains(t, string(data), `"host":"`+string(e.Host)+`"`, "first it is recorded")
		}
	}
}

// TestHoldAndRelease: of all hosts or of some, in a folder and through a socket, and only of what is on hold.
func TestHoldAndRelease(t *testing.T) {
	h := genvhost.New(outsiders(1))
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: h})
	state, path := t.TempDir(), filepath.Join(t.TempDir(), "s")
	require.NoError(t, os.Chmod(state, 0o700))
	offline := []string{"--socket", "off", "--state-dir", state}
	run := func(at []string, args ...string) genvtest.Result {
		return genvtest.Run(t, append(append([]string{"remote"}, args...), at...)...)
	}
	for _, row := range []struct {
		args           []string
		code           int
		says, warnings string
	}{
		{[]string{"hold"}, command.ExitFailed, "", "genv: hold needs a reason: give --reason TEXT\n"},
		{[]string{"release"}, command.ExitFailed, "", "enforcement is not on hold"},
		{[]string{"hold", "--reason", "wrong"}, 0, "put enforcement on hold: wrong. No controller runs on ", ""},
		{[]string{"hold", "--reason", "again"}, command.ExitFailed, "", "is on hold since"},
		{[]string{"exempt", "--list"}, 0, "", "wrong; genv remote release ends it"},
		{[]string{"exempt", "--list", "--format", "json"}, 0, `"reason":"wrong"`, ""},
		{[]string{"release", "--reason", "fixed"}, 0, "released enforcement: fixed", ""},
		{[]string{"hold", "-H", "a,b[1-2]", "--reason", "repair"}, 0, "held host b2 until", ""},
		{[]string{"release", "-H", "b1"}, 0, "ended the hold of host b1", ""},
		{[]string{"release", "-H", "b1"}, command.ExitFailed, "", "there is no hold of host b1"},
		{[]string{"release", "-H", "b1,b2"}, 0, "ended the hold of host b2", "there is no hold of host b1"},
	} {
		r := run(offline, row.args...)
		require.Equal(t, row.code, r.Code, "%v: %s", row.args, r.Err)
		require.Contains(t, r.Out, row.says, row.args)
		require.Contains(t, r.Err, row.warnings, row.args)
	}
	daemon := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "a", "--interval", "1", "--non-env-processes", "--socket", path, "--audit-log", filepath.Join(t.TempDir(), "log"), "--state-dir", state)
	cycle := daemon.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
	require.Empty(t, cycle.Orders, "the host is exempt")
	running := []string{"--socket", path}
	require.Contains(t, run(running, "hold", "--reason", "all").Out, "put enforcement on hold: all")
	require.Contains(t, run(running, "exempt", "--list").Err, "all; genv remote release ends it\n")
	require.Contains(t, run(running, "release", "-H", "a").Out, "ended the hold of host a")
	require.Contains(t, run(running, "release", "-H", "a").Err, "there is no hold of host a")
	cycle = daemon.next(func(c enforcement.CycleDocument) bool { return c.Hold != nil && len(c.Exemptions) == 0 })
	require.Empty(t, cycle.Orders)
	require.Contains(t, run(running, "release").Out, "released enforcement")
	daemon.next(func(c enforcement.CycleDocument) bool { return len(c.Orders) > 0 })
}
