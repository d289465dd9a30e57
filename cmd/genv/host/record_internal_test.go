package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
)

// TestMessagesWithoutAReader: what is shown on a terminal that is not used is shown at the next login, too. The pane
// of a detached tmux session is such a terminal.
func TestMessagesWithoutAReader(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give terminals to users")
	}
	const uid = snapshot.UID(60781) // no real user gets a message
	passwd := filepath.Join(t.TempDir(), "passwd")
	require.NoError(t, os.WriteFile(passwd, []byte("alice:x:60781:60781::/home/alice:/bin/sh\n"), 0o600))
	for name, tt := range map[string]struct {
		typed []time.Duration // on each terminal, before the message
		want  agent.Receipt
	}{
		"typed lately":         {typed: []time.Duration{time.Minute}, want: agent.Receipt{Terminals: 1}},
		"not lately":           {typed: []time.Duration{time.Hour}, want: agent.Receipt{Terminals: 1, Kept: true}},
		"lately on one of two": {typed: []time.Duration{time.Hour, time.Minute}, want: agent.Receipt{Terminals: 2}},
		"no terminal":          {want: agent.Receipt{Kept: true}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, before := range tt.typed {
				screen, tty, err := pty.Open()
				require.NoError(t, err)
				t.Cleanup(func() { _ = screen.Close(); _ = tty.Close() })
				require.NoError(t, os.Chown(tty.Name(), int(uid), 5)) // 5 is the group tty
				require.NoError(t, os.Chmod(tty.Name(), 0o620))
				require.NoError(t, os.Chtimes(tty.Name(), time.Now().Add(-before), time.Now()))
			}
			root := t.TempDir() + "/root"
			h := &host{
				getenv: func(name string) string { return map[string]string{"GENV_ROOT_DIR": root}[name] },
				record: &hostRecord{now: time.Now}, names: userNames{now: time.Now, accounts: nss.Passwd{File: passwd}},
			}
			require.Equal(t, []agent.Receipt{tt.want}, h.notify(t.Context(), []agent.Message{{UID: uid, Text: "x", DueMS: 600_000}}))
			kept, err := notify.Box{Root: root}.Notices(uid, time.Now())
			require.NoError(t, err)
			require.Len(t, kept, 1, "it can be read again")
			require.Contains(t, []string{
				"x\nDue at " + snapshot.When(kept[0].Time.Add(10*time.Minute).Local()) + ".",
				"x\nDue at " + snapshot.When(kept[0].Time.Add(10*time.Minute-time.Second).Local()) + ".",
			}, kept[0].Text)
			require.Len(t, kept[0].Terminals, len(tt.typed))
		})
	}
}
