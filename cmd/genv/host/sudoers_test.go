package host_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// The line of sudoers is the same in the docs and the next step, and visudo takes it.
func TestTheSudoersLineIsTheSameEverywhere(t *testing.T) {
	line := remote.SudoersLine("admin", remote.DefaultGenv)
	var texts []string
	for i, file := range []string{"docs/fleet.md", "docs/migrating.md"} {
		line := remote.SudoersLine([]string{"genv", "admin"}[i], remote.DefaultGenv)
		text, err := os.ReadFile("../../../" + file)
		require.NoError(t, err)
		require.Contains(t, strings.Join(strings.Fields(strings.ReplaceAll(string(text), "\\\n", "")), " "), line, file)
		texts = append(texts, string(text))
	}
	for _, class := range []remote.Class{remote.Sudo, remote.SudoRefused} {
		require.Contains(t, class.NextStep(), remote.SudoersLine("USER", remote.DefaultGenv))
	}
	visudo, err := exec.LookPath("visudo")
	if err != nil {
		visudo = "/usr/sbin/visudo"
	}
	if _, err := os.Stat(visudo); err != nil {
		t.Skip("there is no visudo on this machine")
	}
	_, fleet, _ := strings.Cut(texts[0], "```sudoers\nDefaults!")
	fleet, _, _ = strings.Cut(fleet, "```")
	_, migrating, _ := strings.Cut(texts[1], "echo 'admin ")
	migrating, _, _ = strings.Cut(migrating, "'")
	for name, content := range map[string]string{"next step": line + "\n", "migrating.md": "admin " + migrating + "\n", "fleet.md": "Defaults!" + fleet} {
		path := filepath.Join(t.TempDir(), "genv")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o440))
		out, err := exec.Command(visudo, "-c", "-f", path).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
}

// TestTheSudoersLine: with it a controller does its work, and sudo runs nothing else of genv's, and no other program.
func TestTheSudoersLine(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", Rights: sshd.OnlyUsage}}, Genv: genvtest.Program(t)})
	job, err := f.Host("gpu-01").StartJob(testfleet.Job{User: "bob", Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	require.NoError(t, err)
	on := func(line string) (string, error) {
		out, err := exec.Command("ssh", "-F", f.SSHConfig(), "gpu-01", line).CombinedOutput()
		return string(out), err
	}
	for _, line := range []string{"sudo genv usage snapshot", "sudo -n genv usage snapshot --type devices", "echo x | sudo -n genv usage serve"} {
		out, err := on(line)
		require.NoError(t, err, "%s: %s", line, out)
	}
	for name, line := range map[string]string{
		"a program under the devices' locks": "sudo -n genv lock id",
		"a program in an environment":        "sudo -n genv run id",
		"a shell":                            "sudo -n genv shell",
		"another command":                    "sudo -n genv envs",
		"enforcement of one's own":           "sudo -n genv enforce --interval 0",
		"the record":                         "sudo -n genv history",
		"no command":                         "sudo -n genv",
		"its group alone":                    "sudo -n genv usage",
		"an argument too many":               "sudo -n genv usage execute id",
		"a flag before it":                   "sudo -n genv --help usage snapshot",
		"an argument of serve":               "sudo -n genv usage serve --token x",
		"an argument too many of snapshot":   "sudo -n genv usage snapshot --type devices id",
		"a separator as a word":              "sudo -n genv usage 'snapshot;' id",
		"another program":                    "sudo -n id",
		"another genv":                       "cp $(command -v genv) ~/genv; sudo -n ~/genv usage snapshot",
		"another user":                       "sudo -n -u bob genv usage snapshot",
		"a variable":                         "sudo -n GENV_TERMINATE_PROCESSES=0 genv usage snapshot",
		"a library":                          "sudo -n LD_PRELOAD=/tmp/x genv usage snapshot",
		"the caller's environment":           "sudo -n -E genv usage snapshot",
		"a shell of sudo's":                  "sudo -n -s",
		"an editor":                          "sudo -n -e /etc/passwd",
	} {
		t.Run(name, func(t *testing.T) {
			out, err := on(line)
			require.Error(t, err, out)
			require.NotContains(t, out, "uid=0")
			require.Regexp(t, "(?m)^sudo: |^Sorry, ", out)
		})
	}
	for name, line := range map[string]string{
		"quotes around two words":    "sudo -n genv 'usage snapshot'",
		"a command behind it":        "sudo -n genv usage snapshot >/dev/null; id",
		"a separator as an argument": "sudo -n genv usage snapshot '; id'",
		"words behind it":            "sudo -n genv usage snapshot lock id",
		"words behind serve":         "sudo -n genv usage serve lock id",
		"a substitution":             "sudo -n genv usage snapshot --type '$(id)'",
		"a program in PATH":          `mkdir -p ~/p && printf '#!/bin/sh\nid >&2\n' >~/p/nvidia-smi && chmod 755 ~/p/nvidia-smi && PATH=~/p:$PATH sudo -n genv usage snapshot`,
	} {
		t.Run(name, func(t *testing.T) {
			out, _ := on(line)
			require.NotContains(t, out, "uid=0", "nothing runs as root but genv")
		})
	}
	r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "0", "--non-env-processes", "--format", "json")
	require.Zero(t, r.Code, r.Err)
	require.Contains(t, r.Out, `"via":{"gpu-01":"stream"}`)
	require.False(t, job.Running())
}

// TestWhySudoFails: over real sudo, which says "a password is required" for all of
// them, each cause has its class and its next step.
func TestWhySudoFails(t *testing.T) {
	hosts := []sshd.HostOptions{
		{Name: "password", Rights: sshd.NeedsPassword},
		{Name: "nosudoer", Rights: sshd.NotInSudoers},
		{Name: "partial", Rights: sshd.OnlySnapshot},
		{Name: "gone", Rights: sshd.OnlyUsageNoGenv},
		{Name: "nosudo", Rights: sshd.NoSudo},
		{Name: "tty", Rights: sshd.NeedsTTY},
	}
	f := sshd.Start(t, sshd.Options{Hosts: hosts, Genv: genvtest.Program(t)})
	there := filepath.Join(f.Dir, "bin", "genv")
	failed := func(hosts string, words ...string) []remote.Failure {
		r := genvtest.Run(t, append([]string{"remote", "-F", f.SSHConfig(), "-H", hosts}, append(words, "--format", "json")...)...)
		require.Equal(t, command.ExitNoneLeft, r.Code, r.Err)
		var document struct{ Failed []remote.Failure }
		require.NoError(t, json.Unmarshal([]byte(r.Out), &document))
		require.Equal(t, len(document.Failed), strings.Count(r.Err, "    next: "), r.Err)
		return document.Failed
	}
	failures := failed("password,nosudoer,gone,nosudo,tty", "devices", "--processes")
	failures = append(failures, failed("partial", "enforce", "--interval", "0")...)
	require.Len(t, failures, 6)
	for i, want := range []struct {
		host  string
		class remote.Class
		next  string
	}{
		{"password", remote.Sudo, "allow it without a password: add the line `" + remote.SudoersLine("needs-password", there) + "` to"},
		{"nosudoer", remote.Sudo, "the line `" + remote.SudoersLine("not-in-sudoers", there) + "` to"}, // without a password sudo does not say more
		{"gone", remote.GenvMissing, "install genv on the host where sudo finds it"},
		{"nosudo", remote.Sudo, "install sudo on the host, or log in as root"},
		{"tty", remote.Sudo, "`Defaults:needs-tty !requiretty`"},
		{"partial", remote.SudoRefused, "these commands: `" + remote.SudoersLine("only-snapshot", there) + "`"},
	} {
		got := failures[i]
		require.Equal(t, want.host, got.Host)
		require.Equal(t, want.class, got.Class, got.Error)
		require.Contains(t, got.NextStep, want.next, got.Error)
	}
}
