package host

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
)

// A name that could not be asked for is unknown, which is not "has no name": a policy may exempt the user by it.
func TestUserNames(t *testing.T) {
	const vip, nameless = snapshot.UID(4_000_000_001), snapshot.UID(4_000_000_002) // no /etc/passwd has them
	s := &snapshot.Snapshot{}
	for _, uid := range []snapshot.UID{vip, 0, vip, nameless} {
		s.Processes = append(s.Processes, snapshot.Process{UID: &uid})
	}
	s.Processes = append(s.Processes, snapshot.Process{})
	now, asked := time.Now(), 0
	var down, gone error
	gone = exec.Command("sh", "-c", "exit 2").Run()
	n := userNames{now: func() time.Time { return now }, accounts: nss.Passwd{Getent: func(_ context.Context, _ string, ids ...string) ([]byte, error) {
		asked++
		if down != nil {
			return nil, down
		}
		if ids[0] == "4000000001" {
			return []byte(strings.Join([]string{"vip", "x", ids[0], "1", "", "/", "/bin/sh"}, ":") + "\n"), nil
		}
		return nil, gone
	}}}
	requireNames := func(vipName snapshot.Username, vipUnknown, namelessUnknown bool, questions int) {
		t.Helper()
		asked = 0
		n.ask(t.Context(), s)
		require.Equal(t, questions, asked)
		for uid, want := range map[snapshot.UID]userNameSeen{0: {"root", false}, vip: {vipName, vipUnknown}, nameless: {"", namelessUnknown}} {
			name, unknown := n.of(uid)
			require.Equal(t, want, userNameSeen{name, unknown}, uid)
		}
	}
	for _, down = range []error{errors.New("timeout"), context.DeadlineExceeded, exec.Command("sh", "-c", "exit 1").Run(), exec.Command("sh", "-c", "kill -9 $$").Run()} {
		require.Error(t, down)
		requireNames("", true, true, 2)
	}
	down = nil
	requireNames("vip", false, false, 2)
	requireNames("vip", false, false, 0)
	now = now.Add(namelessFor)
	requireNames("vip", false, false, 1)
	now, down = now.Add(namelessFor), errors.New("timeout")
	requireNames("vip", false, true, 1)
	down = exec.ErrNotFound
	requireNames("vip", false, false, 1)

	n.known = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n.ask(ctx, s)
	_, unknown := n.of(vip)
	require.True(t, unknown)
}

type userNameSeen struct {
	name    snapshot.Username
	unknown bool
}

func TestAProgramThatHangs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := runProgram(ctx, "sleep", "60")
	require.EqualError(t, err, "no answer in time")
}
