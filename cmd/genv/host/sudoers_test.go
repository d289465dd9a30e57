package host_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// The line of sudoers is the same in the docs and the next step, and visudo takes it.
func TestTheSudoersLineIsTheSameEverywhere(t *testing.T) {
	line := remote.SudoersLine("admin", remote.DefaultGenv)
	var texts []string
	for i, file := range []string{"docs/fleet.md", "docs/migrating.md"} {
		line := remote.SudoersLine([]string{"genv", "admin"}[i], remote.DefaultGenv)
		text := proctest.ReadFile(t, "../../../"+file)
		require.Contains(t, strings.Join(strings.Fields(strings.ReplaceAll(string(text), "\\\n", "")), " "), line, file)
		texts = append(texts, string(text))
	}
	for _, class := range []remote.Class{remote.Sudo, remote.SudoRefused} {
		require.Contains(t, class.NextStep(), remote.SudoersLine("USER", remote.DefaultGenv))
	}
	_, fleet, _ := strings.Cut(texts[0], "```sudoers\nDefaults!")
	fleet, _, _ = strings.Cut(fleet, "```")
	_, migrating, _ := strings.Cut(texts[1], "echo 'admin ")
	migrating, _, _ = strings.Cut(migrating, "'")
	for _, content := range []string{line + "\n", "admin " + migrating + "\n", "Defaults!" + fleet} {
		proctest.CheckSudoers(t, content)
	}
}

// TestTheSudoersLine: with it a controller does its work, and sudo runs nothing else of genv's, and no other program.
func TestTheSudoersLine(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", Rights: sshd.OnlyUsage}}, Genv: genvtest.Program(t)})
	job := proctest.Try(f.Host("gpu-01").StartJob(testfleet.Job{User: "bob", Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})).OK(t)
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

// TestTheSudoersLineOfBefore: hosts keep the one of an earlier version, which allows `usage serve` with arguments alone.
func TestTheSudoersLineOfBefore(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", Rights: sshd.OnlyUsageBefore}}, Genv: genvtest.Program(t)})
	genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "0").OK(t)
	r := genvtest.Run(t, "remote", "doctor", "-F", f.SSHConfig(), "-H", "gpu-01", "--format", "json")
	require.Contains(t, r.Out, "covers usage snapshot, execute, serve of ")
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

// servedThere is a `genv usage serve` on a host, behind real ssh, sshd and sudo.
type servedThere struct {
	ssh   *exec.Cmd
	in    io.WriteCloser
	token string
}

// serveOn starts one and waits for its greeting. Its token is its own among those of all test binaries.
func serveOn(t *testing.T, f *sshd.Fleet, token string, more ...string) *servedThere {
	token = fmt.Sprint(token, os.Getpid())
	args := append([]string{"-F", f.SSHConfig(), "gpu-01", "sudo", "-n", "genv", "usage", "serve", "--token", token}, more...)
	ssh := exec.Command("ssh", args...)
	in, out := proctest.StartPiped(t, ssh)
	s := &servedThere{ssh: ssh, in: in, token: token}
	t.Cleanup(func() {
		_ = s.ssh.Process.Kill() // it may have ended
		_ = s.ssh.Wait()
	})
	for lines := bufio.NewReader(out); ; {
		line := proctest.Try(lines.ReadString('\n')).OK(t)
		if line == "genv-serve "+token+"\n" {
			break
		}
	}
	require.NotEmpty(t, s.there(t))
	return s
}

// there are the processes of this conversation on the host, by their names.
func (s *servedThere) there(t *testing.T) map[int]string {
	found := map[int]string{}
	files := proctest.Try(filepath.Glob("/proc/[0-9]*/cmdline")).OK(t)
	for _, file := range files {
		if mayStall(filepath.Dir(file)) {
			continue
		}
		line, _ := os.ReadFile(file) // it may have ended
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/", &pid); err != nil || pid == s.ssh.Process.Pid || !strings.Contains(string(line), s.token) {
			continue
		}
		name, _, _ := strings.Cut(string(line), "\x00")
		found[pid] = filepath.Base(name)
	}
	return found
}

func (s *servedThere) requireGone(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(s.there(t)) == 0 }, 20*time.Second, 20*time.Millisecond, "left on the host: %v", s.there(t))
}

// kill ends the processes of the conversation that go by a name.
func (s *servedThere) kill(t *testing.T, name string) (killed int) {
	for pid, n := range s.there(t) {
		if n == name {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			killed++
		}
	}
	return killed
}

// TestNothingIsLeftOnAHost: whatever ends a conversation, in no time there is no
// genv, no sudo and no shell of it on the host.
func TestNothingIsLeftOnAHost(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	t.Run("the controller hangs up", func(t *testing.T) {
		s := serveOn(t, f, "hangsup")
		require.NoError(t, s.in.Close())
		require.NoError(t, s.ssh.Wait(), "the ordinary end")
		s.requireGone(t)
	})
	t.Run("the controller is killed", func(t *testing.T) {
		s := serveOn(t, f, "controllerkilled")
		require.NoError(t, s.ssh.Process.Kill())
		s.requireGone(t)
	})
	t.Run("the connection's sshd is killed", func(t *testing.T) {
		s := serveOn(t, f, "sshdkilled")
		require.NoError(t, f.CutConnections())
		s.requireGone(t)
	})
	t.Run("sudo is killed", func(t *testing.T) {
		s := serveOn(t, f, "sudokilled")
		if s.kill(t, "sudo") == 0 {
			t.Skip("this sudo has become the command, so there is none to kill")
		}
		s.requireGone(t)
	})
	t.Run("the controller is frozen", func(t *testing.T) {
		s := serveOn(t, f, "frozen", "--idle", "4s")
		require.NoError(t, s.ssh.Process.Signal(syscall.SIGSTOP))
		s.requireGone(t)
	})
	t.Run("the controller asks nothing", func(t *testing.T) {
		s := serveOn(t, f, "silent", "--idle", "4s")
		require.NoError(t, s.ssh.Wait(), "the idle time is no failure")
		s.requireGone(t)
	})
	t.Run("the controller speaks wrongly", func(t *testing.T) {
		s := serveOn(t, f, "wrongly")
		proctest.Try(io.WriteString(s.in, "GET / HTTP/1.1\r\n\r\n....")).OK(t)
		require.Error(t, s.ssh.Wait())
		s.requireGone(t)
	})
}

// TestBannersAndNoise: the greeting is found behind whatever a login prints, and the fleet is enforced.
func TestBannersAndNoise(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	rc := filepath.Join(f.Dir, "home", f.Host("gpu-01").User, ".bashrc")
	noise := "printf 'Welcome to gpu-01\\r\\n\\033[1mgenv-serve\\033[0m\\0\\377 gnv1 without an end of line'\necho to stderr >&2\n"
	require.NoError(t, os.WriteFile(rc, []byte(noise), 0o644))
	job := proctest.Try(f.Host("gpu-01").StartJob(testfleet.Job{User: "bob", Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})).OK(t)
	r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "0", "--non-env-processes", "--format", "json")
	require.Zero(t, r.Code, r.Err)
	require.Contains(t, r.Out, `"via":{"gpu-01":"stream"}`)
	require.False(t, job.Running())
}
