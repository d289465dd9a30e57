package mail

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
)

// A mail names everything, for each kind of notice.
func TestMailText(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.Local)
	f := notify.UserMessage{Host: "gpu-01", Rule: "idle", Line: "It is idle.", Command: notify.QuotedCommand("python\nx \"y\""), Follows: "GPU 0 will be detached", Pending: true, Waits: true, Since: at, At: at, Advice: "Use it."}
	n := Letter{User: "alice", Items: []notify.UserMessage{f}}
	require.Equal(t, "[genv] Action needed: your GPU use on gpu-01", n.subject())
	require.Equal(t, `Hello alice,

genv noticed this about your GPU use:

* gpu-01: It is idle.
  Seen since  `+notify.Clock(at)+`
  Command     "python x 'y'"
  Outcome     Unless this changes, once all hosts answer: GPU 0 will be detached.
  What to do  Use it.

`+"`genv history`"+` on the host shows what was done to your processes and GPUs.
This is by the policy of your site. Questions: help@example.org
`, n.body("help@example.org"))
	f.Pending = false
	n.Items = []notify.UserMessage{f}
	require.Equal(t, "[genv] Your GPU use on gpu-01", n.subject())
	f.Rule = ""
	n.Items = []notify.UserMessage{f}
	require.Equal(t, "[genv] A message about your GPU use on gpu-01", n.subject())
	for i := range 5 {
		f.Host = snapshot.Hostname(fmt.Sprint("h", i))
		n.Items = append(n.Items, f)
	}
	n.Digest, n.More = true, 4
	require.Equal(t, "[genv] 10 notices about your GPU use on gpu-01, h0, h1 and 3 more hosts", n.subject())
	require.Contains(t, n.body("help@example.org"), "And there are 4 more")
}
