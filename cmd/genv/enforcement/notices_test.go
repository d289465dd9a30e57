package enforcement_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// mailPolicy mails to all but bob, through the server of a test.
func mailPolicy(s *mailtest.Server, more string) string {
	return fmt.Sprintf(`
defaults: {non-env-processes: true, warn: {cycles: 2}}
mail:
  smtp: %s
  ca-file: %s
  from: genv <genv@example.org>
  contact: room 1.23
  template: "{{.User}}@example.org"
  opt-out: [bob]
%s`, s.Address, s.CAFile, more)
}

func TestMailOverRealSSH(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	s := mailtest.Start(t)
	jobs := map[string]*testfleet.Process{}
	for i, user := range []string{"alice", "bob"} {
		jobs[user] = genvtest.StartOutside(t, f.Host("gpu-01"), user, testfleet.Use{Device: 0, MiB: int64(10 + i)})
	}
	dir := t.TempDir()
	log, policy := filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "policy.yaml")
	enforce := func(text string, more ...string) genvtest.Result {
		require.NoError(t, os.WriteFile(policy, []byte(text), 0o600))
		return genvtest.Run(t, append([]string{
			"remote", "-F", f.SSHConfig(), "-H", "gpu-01", "enforce", "--interval", "0", "--policy", policy, "--state-dir", filepath.Join(dir, "state"), "--audit-log", log,
		}, more...)...)
	}

	t.Run("a dry run sends nothing", func(t *testing.T) {
		r := enforce(mailPolicy(s, ""), "--dry-run", "-v").OK(t)
		require.Contains(t, r.Err, "dry run: this mail would be sent")
		require.Contains(t, r.Err, "Hello alice")
		require.NotContains(t, r.Err, "Hello bob")
		require.Empty(t, s.Commands())
	})
	t.Run("the server is away: the mail is lost when the run ends, and the record says so", func(t *testing.T) {
		s.AnswerOnce("EHLO", "421 later")
		require.Contains(t, enforce(mailPolicy(s, "")).OK(t).Err, "mail to users waits, and is tried again")
		require.Empty(t, s.Mails())
	})
	t.Run("the next run mails what is new, once", func(t *testing.T) {
		for range 3 {
			enforce(mailPolicy(s, "tell-users: false\n")).OK(t)
		}
		mails := s.Mails()
		require.Len(t, mails, 1, "that the process is ended")
		require.Equal(t, "alice@example.org", mails[0].To)
		require.Contains(t, mails[0].Data, fmt.Sprintf("Process %d is not running in a GPU environment", jobs["alice"].PID))
		require.Contains(t, mails[0].Data, "Questions: room 1.23")
		id := regexp.MustCompile(`Decision +([0-9a-f]{8})`).FindStringSubmatch(mails[0].Data)
		require.NotNil(t, id)
		r := genvtest.Run(t, "remote", "history", "--audit-log", log, id[1]).OK(t)
		require.Regexp(t, fmt.Sprintf(`(?m)^User +alice\n.*process %d `, jobs["alice"].PID), r.Out)
		require.NotContains(t, mails[0].Data, fmt.Sprint(jobs["bob"].PID))
		for user, p := range jobs {
			require.False(t, p.Running(), user)
		}
	})
	t.Run("the record says who got what", func(t *testing.T) {
		sent := regexp.MustCompile(`.*"channel":"mail".*`).FindAllString(genvtest.Read(t, log), -1)
		require.Len(t, sent, 4, sent)
		require.Equal(t, 1, strings.Count(strings.Join(sent, ""), "the mail server didn't take it"))
		require.Equal(t, 2, strings.Count(strings.Join(sent, ""), "opt-out"), "before bob's process is ended, and then")
		require.Contains(t, strings.Join(sent, ""), `"to":"alice@example.org"`)
		entries, _, err := audit.History(log, audit.Filter{User: "alice"})
		require.NoError(t, err)
		require.Len(t, entries, 1)
		r := genvtest.Run(t, "remote", "history", "--audit-log", log, "--user", "alice", "--notices")
		require.Regexp(t, `alice +mail alice@example\.org +`, r.Out)
		r = genvtest.Run(t, "remote", "history", "--audit-log", log, "--user", "bob", "--notices")
		require.Regexp(t, `bob +mail +failed .*opt-out`, r.Out)
	})
}

// A user finds the message at the next login in interactive shells only, until something was typed in one.
func TestNoticesAtTheNextLogin(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("in-bash", "in-zsh"), Genv: genvtest.Program(t)})
	home := filepath.Join(f.Dir, "home", f.Host("in-bash").User)
	rc := "export PATH=" + f.Dir + "/bin:" + f.Dir + "/driver:$PATH\neval \"$(genv shell --init)\"\n"
	for _, name := range []string{".profile", ".bashrc", ".zshrc"} {
		require.NoError(t, os.WriteFile(filepath.Join(home, name), []byte(rc), 0o644))
	}
	pids := map[string]string{}
	for _, host := range []string{"in-bash", "in-zsh"} {
		p := genvtest.StartOutside(t, f.Host(host), f.Host(host).User, testfleet.Use{Device: 0, MiB: 10})
		pids[host] = fmt.Sprintf("Process %d is not running in a GPU environment", p.PID)
	}
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.jsonl")
	require.NoError(t, os.WriteFile(policy, []byte("defaults: {non-env-processes: true, warn: {for: 1h}}\n"), 0o600))
	enforce := func() {
		genvtest.Run(t, "remote", "-F", f.SSHConfig(), "-H", "in-bash,in-zsh", "enforce", "--interval", "0", "--policy", policy, "--audit-log", log, "--state-dir", dir+"/state").OK(t)
	}
	enforce()
	record := genvtest.Read(t, log)
	require.Equal(t, 2, strings.Count(record, `"channel":"login"`), record)

	session := func(script string, args ...string) string {
		cmd := exec.Command("ssh", append([]string{"-F", f.SSHConfig()}, args...)...)
		cmd.Stdin = strings.NewReader(script)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run() // the shell's own status
		return out.String()
	}
	t.Run("commands and copies are as always", func(t *testing.T) {
		require.Equal(t, "hello\n", session("", "-T", "in-bash", "echo hello"))
		require.Equal(t, "hello\n", session("", "in-bash", "bash -lc 'echo hello'"))
		require.Equal(t, "hello\n", session("", "in-zsh", "zsh -c '. ~/.zshrc; echo hello'"))
		from := filepath.Join(dir, "file")
		require.NoError(t, os.WriteFile(from, []byte("content"), 0o600))
		proctest.Output(t, exec.Command("scp", "-O", "-F", f.SSHConfig(), from, "in-bash:copied"))
	})
	t.Run("bash", func(t *testing.T) {
		first := session("exit\n", "-tt", "in-bash")
		require.Equal(t, 1, strings.Count(first, pids["in-bash"]), first)
		require.Contains(t, first, "start it in an environment")
		again := session("sleep 11\n:\n:\nexit\n", "-tt", "in-bash")
		require.Equal(t, 1, strings.Count(again, pids["in-bash"]), again)
		require.NotContains(t, session("exit\n", "-tt", "in-bash"), pids["in-bash"], "it was read")
		require.Contains(t, session("", "in-bash", f.Dir+"/bin/genv notices"), pids["in-bash"], "they can be read again")
		require.NotContains(t, session("", "in-bash", f.Dir+"/bin/genv notices --new"), pids["in-bash"])
	})
	t.Run("zsh", func(t *testing.T) {
		first := session("sleep 11\n:\n:\nexit\n", "-tt", "in-zsh", "zsh -i")
		require.Equal(t, 1, strings.Count(first, pids["in-zsh"]), first)
		require.NotContains(t, session("exit\n", "-tt", "in-zsh", "zsh -i"), pids["in-zsh"])
		require.NotContains(t, session("exit\n", "-tt", "in-bash"), pids["in-bash"], "the home is the same")
	})
	t.Run("a login repeats what a terminal showed on which nothing was typed since", func(t *testing.T) {
		here := exec.Command("ssh", "-F", f.SSHConfig(), "-tt", "in-bash", "chmod g+w $(tty); echo ready; cat")
		proctest.Try(here.StdinPipe()).OK(t) // it stays open
		out := proctest.Try(here.StdoutPipe()).OK(t)
		require.NoError(t, here.Start())
		defer func() { _ = here.Wait() }()
		defer func() { _ = here.Process.Kill() }()
		defer time.AfterFunc(time.Minute, func() { _ = here.Process.Kill() }).Stop()
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan())
		p := genvtest.StartOutside(t, f.Host("in-bash"), f.Host("in-bash").User, testfleet.Use{Device: 0, MiB: 10})
		enforce()
		message := fmt.Sprintf("Process %d is not running in a GPU environment", p.PID)
		for !strings.Contains(lines.Text(), message) {
			require.True(t, lines.Scan(), "the session ended")
		}
		require.Contains(t, session("", "in-bash", f.Dir+"/bin/genv notices"), message)
		require.Contains(t, session("exit\n", "-tt", "in-bash"), message)
	})
}

// toldInLastRun are the records of what users were told in the last run that the log has, by user.
func toldInLastRun(t *testing.T, log string) map[string][]audit.Record {
	t.Helper()
	data := genvtest.Read(t, log)
	var all []audit.Record
	for line := range strings.Lines(data) {
		var r audit.Record
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		all = append(all, r)
	}
	all = slices.DeleteFunc(all, func(r audit.Record) bool { return r.Run == "" }) // of hooks, which come at any time
	require.NotEmpty(t, all)
	told := map[string][]audit.Record{}
	for _, r := range all {
		if r.Kind == audit.KindNotified && r.Run == all[len(all)-1].Run {
			user := userTold(t, r)
			told[user] = append(told[user], r)
		}
	}
	return told
}

func userTold(t *testing.T, r audit.Record) string {
	t.Helper()
	for _, user := range []string{"alice", "bob", "carol", "kim", "lee", "eve", "fay", "xia", "yan", "bo"} {
		if uid, err := sshd.UID(user); err == nil && uid == *r.UID {
			return user
		}
	}
	require.Fail(t, "a stranger was told", "%+v", r)
	return ""
}

// requireShown requires that what a user was told is on the screen, unless the record says that it reached no terminal.
// That may be: all hosts of the fleet are one machine and share the screen, and of two that write on it at the same
// moment Linux refuses one (EAGAIN). The other one succeeds, in each cycle.
func requireShown(t *testing.T, screen string, told []audit.Record) {
	t.Helper()
	shown := map[int]bool{}
	for _, r := range told {
		shown[r.Cycle] = shown[r.Cycle] || r.Reason == ""
		if r.Reason == "" {
			advice := strings.LastIndex(r.Text, "\n") // is shown once for all that have the same
			require.Contains(t, screen, "  "+strings.ReplaceAll(r.Text[:advice], "\n", "\r\r\n  ")+"\r\r\n")
		} else {
			require.Contains(t, r.Reason, "takes no messages")
		}
	}
	for cycle, any := range shown {
		require.True(t, any, "cycle %d reached no terminal: %+v", cycle, told)
	}
}

// requireNamed requires that each process was named to its user alone: once before, and once when it was ended.
func requireNamed(t *testing.T, processes map[string]*testfleet.Process, told map[string][]audit.Record) {
	t.Helper()
	require.NotEmpty(t, told)
	for name, p := range processes {
		before, after := fmt.Sprintf(`Unless this changes soon, .*process %d\b`, p.PID), fmt.Sprintf(`(?m)^Process(es)? (.* )?%d\b.* SIGTERM now`, p.PID)
		for user, records := range told {
			times := 0
			if user == p.User {
				times = 1
			}
			require.Equal(t, times, matching(records, before), "%s, before it was ended, to %s: %+v", name, user, records)
			require.Equal(t, times, matching(records, after), "%s, when it was ended, to %s: %+v", name, user, records)
		}
	}
}

func matching(records []audit.Record, pattern string) (n int) {
	expression := regexp.MustCompile(pattern)
	for _, r := range records {
		if expression.MatchString(r.Text) {
			n++
		}
	}
	return n
}
