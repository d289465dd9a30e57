package fleet_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// testNotify tries a policy with a test's mail server. HOOK is a web server that answers by the path, SCRIPT a folder.
func testNotify(t *testing.T, s *mailtest.Server, policy, to string) (genvtest.Result, func() string) {
	t.Helper()
	var posted atomic.Value
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posted.Store(string(body))
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(web.Close)
	dir := t.TempDir()
	for name, text := range map[string]string{"good": "#!/bin/sh\ncat >$0.got\n", "bad": "#!/bin/sh\necho no chat today >&2; exit 3\n"} {
		require.NoError(t, proctest.WriteProgram(filepath.Join(dir, name), []byte(text)))
	}
	head := fmt.Sprintf("mail:\n  smtp: %s\n  ca-file: %s\n  from: genv@example.org\n  opt-out: [bob]\n  addresses: {alice: alice@example.org, bob: bob@example.org}\n", s.Address, s.CAFile)
	policy = strings.NewReplacer("MAIL\n", head, "HOOK", web.URL, "SCRIPT", dir).Replace(policy)
	path := filepath.Join(dir, "policy.yaml")
	require.NoError(t, os.WriteFile(path, []byte(policy), 0o600))
	r := genvtest.Run(t, "policy", "test-notify", "--policy", path, "--to", to)
	r.Out = strings.NewReplacer(s.Address, "SERVER", web.URL, "HOOK", dir, "SCRIPT").Replace(r.Out)
	r.Err = strings.NewReplacer(s.Address, "SERVER", web.URL, "HOOK", dir, "SCRIPT").Replace(r.Err)
	return r, func() string {
		got, _ := os.ReadFile(filepath.Join(dir, "good.got"))
		return fmt.Sprint(posted.Load()) + string(got)
	}
}

// noticeCase is a policy, what is wrong, and what is said.
type noticeCase struct {
	policy, to      string // alice, unless it says another
	command, answer string
	down            bool
	out             []string // of each line, without spaces twice
	says            []string
	mails           int
	hooks           int // that were given an event, of those that tell
}

func TestNoticesAreTried(t *testing.T) {
	const (
		copied = "  copy-to: [admins@example.org]\n"
		hooked = "hooks:\n  - command: [SCRIPT/good]\n  - webhook: HOOK/x\n    events: [hold]\n"
	)
	for name, tt := range map[string]noticeCase{
		"all is well": {
			policy: "MAIL\n" + copied + hooked, mails: 2, hooks: 2,
			out: []string{"mail alice@example.org SERVER has taken it", "copy admins@example.org SERVER has taken it", "command SCRIPT/good exit status 0", "webhook HOOK the server has taken it"},
		},
		"no mail": {policy: hooked, to: "zoe", hooks: 2, out: []string{"command SCRIPT/good exit status 0", "webhook HOOK the server has taken it"}},
		"the recipient is refused": {
			policy: "MAIL\n" + copied, command: "RCPT", answer: "550 no such user",
			out:  []string{`mail alice@example.org failed: SERVER: sending SMTP RCPT TO command: 550 "no such user"`, "copy admins@example.org not sent: there is no mail to copy"},
			says: []string{"mail to alice@example.org: next: correct what was refused: a controller doesn't send such a mail again\n", "genv: 2 of 2 tests did not succeed\n"},
		},
		"the copy is refused": {
			policy: "MAIL\n" + copied, command: "RCPT admins@example.org", answer: "550 no such user", mails: 1,
			out:  []string{"mail alice@example.org SERVER has taken it", `copy admins@example.org failed: SERVER: sending SMTP RCPT TO command: 550 "no such user"`},
			says: []string{"copy to admins@example.org: next: correct", "genv: 1 of 2 tests did not succeed\n"},
		},
		"the server is down": {
			policy: "MAIL\n" + hooked, down: true, hooks: 2,
			out:  []string{"mail alice@example.org failed: SERVER: dial tcp SERVER: connect: connection refused", "command SCRIPT/good exit status 0", "webhook HOOK the server has taken it"},
			says: []string{"mail to alice@example.org: next: check `smtp:`, `tls:`", "genv: 1 of 3 tests did not succeed\n"},
		},
		"a user without an address": {
			policy: "MAIL\n", to: "zoe", out: []string{"mail zoe failed: no mail address is known for this user"},
			says: []string{"mail to zoe: next: name the user under `addresses:` of `mail:`"},
		},
		"a user who gets no mail": {
			policy: "MAIL\n" + copied + hooked, to: "bob", hooks: 2,
			out:  []string{"mail bob not sent: the policy lists the user under `opt-out`", "copy admins@example.org not sent: there is no mail to copy", "command SCRIPT/good exit status 0", "webhook HOOK the server has taken it"},
			says: []string{"mail to bob: next: name another user\n"},
		},
		"hooks that fail": {
			policy: "MAIL\nhooks:\n  - command: [SCRIPT/bad]\n  - webhook: HOOK/broken\n  - {command: [SCRIPT/good], events: []}\n", mails: 1, hooks: 1,
			out:  []string{"mail alice@example.org SERVER has taken it", "command SCRIPT/bad failed: exit status 3: no chat today", "webhook HOOK failed: the server answered 500 Internal Server Error", "command SCRIPT/good failed: its `events:` are empty, so that it gets none"},
			says: []string{"command to SCRIPT/bad: next: run it yourself", "webhook to HOOK: next: check the address in the policy", "genv: 3 of 4 tests did not succeed\n"},
		},
		"nothing is configured": {policy: "limits: {max-detachments: 3}\n", says: []string{"genv: nothing was sent: the policy has neither `mail:` nor `hooks:`"}},
		"not a name":            {policy: hooked, to: "a:b", says: []string{`genv: --to: "a:b" is not a user name`}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.check(t)
		})
	}
}

func (tt *noticeCase) check(t *testing.T) {
	s := mailtest.Start(t)
	s.Answer(tt.command, tt.answer)
	if tt.down {
		s.Close()
	}
	to := cmp.Or(tt.to, "alice")
	r, got := testNotify(t, s, tt.policy, to)
	var lines []string
	for line := range strings.Lines(r.Out) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	if tt.out != nil {
		require.Equal(t, append([]string{"KIND TO RESULT"}, tt.out...), lines)
	}
	for _, part := range tt.says {
		require.Contains(t, r.Err, part)
	}
	if tt.says == nil {
		require.Equal(t, command.ExitOK, r.Code)
		require.Empty(t, r.Err)
	} else {
		require.Equal(t, command.ExitFailed, r.Code)
	}
	require.Len(t, s.Mails(), tt.mails)
	for _, m := range s.Mails() {
		require.Contains(t, m.Data, "Subject: [test] ")
		require.Contains(t, strings.ReplaceAll(m.Data, "=\r\n", ""), notify.TestText)
	}
	events := strings.ReplaceAll(got(), `\u0027`, "'")
	for _, part := range []string{`"schema":"genv.hook/1"`, `"test":true`, `"line":"` + notify.TestText + `"`, `"user":"` + to + `"`} {
		require.Equal(t, tt.hooks, strings.Count(events, part), events)
	}
	require.Equal(t, tt.hooks == 2, strings.Contains(events, `"event":"hold"`), "the hook for nothing else gets that")
}
