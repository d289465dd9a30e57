package enforcement_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
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
		p, err := f.Host("gpu-01").StartJob(testfleet.Job{User: user, Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 0, MiB: int64(10 + i)}}})
		require.NoError(t, err)
		jobs[user] = p
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
		r := enforce(mailPolicy(s, ""), "--dry-run", "-v")
		require.Zero(t, r.Code, r.Err)
		require.Contains(t, r.Err, "dry run: this mail would be sent")
		require.Contains(t, r.Err, "Hello alice")
		require.NotContains(t, r.Err, "Hello bob")
		require.Empty(t, s.Commands())
	})
	t.Run("the server is away: the mail waits in the state folder", func(t *testing.T) {
		s.AnswerOnce("EHLO", "421 later")
		r := enforce(mailPolicy(s, ""))
		require.Zero(t, r.Code, r.Err)
		require.Contains(t, r.Err, "mail waits, and is tried again")
		require.Empty(t, s.Mails())
	})
	t.Run("the next run sends it, once", func(t *testing.T) {
		for range 3 {
			r := enforce(mailPolicy(s, "tell-users: false\n"))
			require.Zero(t, r.Code, r.Err)
		}
		mails := s.Mails()
		require.Len(t, mails, 1, "and that the process is ended waits for the digest")
		require.Equal(t, "alice@example.org", mails[0].To)
		require.Contains(t, mails[0].Data, fmt.Sprintf("Process %d is not running in a GPU environment", jobs["alice"].PID))
		require.Contains(t, mails[0].Data, "Questions: room 1.23")
		id := regexp.MustCompile(`Decision +([0-9a-f]{8})`).FindStringSubmatch(mails[0].Data)
		require.NotNil(t, id)
		r := genvtest.Run(t, "remote", "history", "--audit-log", log, id[1])
		require.Zero(t, r.Code, r.Err)
		require.Regexp(t, fmt.Sprintf(`(?m)^User +alice\n.*process %d `, jobs["alice"].PID), r.Out)
		require.NotContains(t, mails[0].Data, fmt.Sprint(jobs["bob"].PID))
		for user, p := range jobs {
			require.False(t, p.Running(), user)
		}
	})
	t.Run("the record says who got what", func(t *testing.T) {
		data, err := os.ReadFile(log)
		require.NoError(t, err)
		var sent []string
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, `"channel":"mail"`) {
				sent = append(sent, line)
			}
		}
		require.Len(t, sent, 3, sent)
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
