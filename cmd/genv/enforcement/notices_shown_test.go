package enforcement_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// toldInLastRun are the records of what users were told in the last run that
// the log has, by user.
func toldInLastRun(t *testing.T, log string) map[string][]audit.Record {
	t.Helper()
	data, err := os.ReadFile(log)
	require.NoError(t, err)
	var all []audit.Record
	for line := range strings.Lines(string(data)) {
		var r audit.Record
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		all = append(all, r)
	}
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
	for _, user := range []string{"alice", "bob", "carol"} {
		if uid, err := sshd.UID(user); err == nil && uid == *r.UID {
			return user
		}
	}
	require.Fail(t, "a stranger was told", "%+v", r)
	return ""
}

// requireShown requires that what a user was told is on the screen, unless the
// record says that it reached no terminal. That may be: all hosts of the fleet
// are one machine and share the screen, and of two that write on it at the same
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

// requireNamed requires that each process was named to its user, and to no
// other: once before, and once when it was ended.
func requireNamed(t *testing.T, processes map[string]*testfleet.Process, told map[string][]audit.Record) {
	t.Helper()
	for name, p := range processes {
		before, after := fmt.Sprintf(`Unless this changes soon, .*process %d\b`, p.PID), fmt.Sprintf(`Now .*process %d\b`, p.PID)
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
