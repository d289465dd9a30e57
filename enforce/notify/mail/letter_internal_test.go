package mail

import (
	"bytes"
	"fmt"
	"io"
	"mime/quotedprintable"
	netmail "net/mail"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// A mail names everything, for each kind of notice.
func TestMailText(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.Local)
	f := notify.UserMessage{Host: "gpu-01", Rule: "idle", Line: "It is idle.", Command: notify.QuotedCommand("python\nx \"y\""), Follows: "GPU 0 will be detached", Pending: true, AwaitsHosts: true, Since: at, At: at, Advice: "Use it."}
	n := Letter{User: "alice", Items: []notify.UserMessage{f}}
	composed := func() string {
		subject, body := n.Compose("help@example.org")
		return subject + "\n" + body
	}
	require.Equal(t, `[genv] Action needed: your GPU use on gpu-01
Hello alice,

genv noticed this about your GPU use:

* gpu-01: It is idle.
  Seen since  `+notify.Clock(at)+`
  Command     "python x 'y'"
  Outcome     Unless this changes, once all hosts answer: GPU 0 will be detached.
  What to do  Use it.

`+"`genv history`"+` on the host shows what was done to your processes and GPUs.
This is by the policy of your site. Questions: help@example.org
`, composed())
	f.Pending = false
	n.Items = []notify.UserMessage{f}
	require.Contains(t, composed(), "[genv] Your GPU use on gpu-01\n")
	f.Rule = ""
	n.Items = []notify.UserMessage{f}
	require.Contains(t, composed(), "[genv] A message about your GPU use on gpu-01\n")
	for i := range 5 {
		f.Host = snapshot.Hostname(fmt.Sprint("h", i))
		n.Items = append(n.Items, f)
	}
	n.Digest, n.More = true, 4
	require.Contains(t, composed(), "[genv] 10 notices about your GPU use on gpu-01, h0, h1 and 3 more hosts\n")
	require.Contains(t, composed(), "And there are 4 more")
}

// Whatever a user or a host writes, the mail has exactly the headers that it is to have.
func FuzzMessage(f *testing.F) {
	f.Add("Process 5", "text")
	f.Add("a\r\nBcc: eve@example.org", "a\r\n.\r\nMAIL FROM:<x>")
	f.Add("Jörg "+strings.Repeat("ä", 300), strings.Repeat("=", 2000))
	f.Add("=?utf-8?q?a?= =?utf-8?q?b?=", "\x00\x1b[2J\u202e\xff")
	f.Add("\n\n", ".\n..\n")
	f.Fuzz(func(t *testing.T, user, said string) {
		settings := &policy.Mail{Sender: netmail.Address{Name: "genv", Address: "genv@example.org"}, ReplyTo: "help@example.org"}
		l := Letter{User: snapshot.Username(user), To: "alice@example.org", Items: []notify.UserMessage{{
			Host: "gpu-01", Rule: "idle", Line: said, Command: notify.QuotedCommand(said), Advice: said, Record: []string{said},
		}}}
		subject, body := l.Compose(settings.Contact)
		var data bytes.Buffer
		proctest.Try(l.message(settings, l.To, subject, body).WriteTo(&data)).OK(t)
		for line := range bytes.Lines(data.Bytes()) {
			require.True(t, bytes.HasSuffix(line, []byte("\r\n")), "%q", line)
			require.LessOrEqual(t, len(line), 1000)
			require.NotContains(t, string(line[:len(line)-2]), "\r")
		}
		read := proctest.Try(netmail.ReadMessage(&data)).OK(t)
		require.Len(t, read.Header, 11)
		require.Empty(t, read.Header.Get("Bcc"))
		require.Equal(t, "<alice@example.org>", read.Header.Get("To"))
		require.Equal(t, "[genv] Your GPU use on gpu-01", read.Header.Get("Subject"))
		require.NotContains(t, string(proctest.Try(io.ReadAll(quotedprintable.NewReader(read.Body))).OK(t)), "\x1b")
	})
}
