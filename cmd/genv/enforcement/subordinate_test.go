package enforcement_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Processes with subordinate uids, outside of any user namespace, count for their account: with
// them no user has more than others. bob and carol have accounts in a range of alice.
func TestSubordinateUIDsOverSSH(t *testing.T) {
	shared := "alice:300000:10\nbob:300000:10\n"
	if !proctest.InEtc(t, map[string]string{"subuid": fmt.Sprintf("alice:100000:65536\nalice:%d:2\ndockremap:400000:10\n", uidOf(t, "bob")) + shared}) {
		return
	}
	b := openBent(t, "gpu-01")
	h := b.Host("gpu-01")
	accounts := h.Account
	h.Account = func(user string) (testfleet.Account, error) {
		if uid, err := strconv.Atoi(user); err == nil {
			return testfleet.Account{UID: snapshot.UID(uid), Home: "/"}, nil
		}
		return accounts(user)
	}
	start := func(user, eid string, device snapshot.DeviceIndex) *testfleet.Process {
		return b.job("gpu-01", testfleet.Job{User: user, Env: []string{"GENV_ENVIRONMENT_ID=" + eid}, Uses: using(device)})
	}
	alice, bob := string(b.activate("gpu-01", "alice", 0).EID), string(b.activate("gpu-01", "bob", 1).EID)
	own := []*testfleet.Process{start("alice", alice, 0), start("100001", alice, 3), start("165535", alice, 4)}
	others := []*testfleet.Process{start("bob", bob, 1), start("carol", alice, 2), start("300001", alice, 5), start("400001", alice, 6), start("165536", alice, 7)}
	r := b.enforce("gpu-01", "--max-devices-per-user", "1", "--no-env-devices")
	require.Zero(t, r.Code, r.Err)
	require.Contains(t, r.Out, "User alice is using 3 devices on 1 hosts which is 2 more than the maximum allowed")
	require.Len(t, slices.DeleteFunc(own, func(p *testfleet.Process) bool { return !p.Running() }), 1, r.Out)
	for _, p := range others {
		require.True(t, p.Running(), "%s: %s", p.User, r.Out)
	}

	first := start("54321", "7774", 3) // of no account
	b.forge(snapshot.Environment{EID: "7774", UID: 54321, PIDs: []snapshot.PID{first.PID}}, 3, 4)
	last := start("54321", "7774", 4)
	r = b.enforce("gpu-01", "--max-devices-per-user", "1", "--no-env-devices")
	require.Contains(t, r.Out, "uid 54321 is using 2 devices on 1 hosts which is 1 more than the maximum allowed")
	require.False(t, first.Running() && last.Running(), r.Out)
	require.True(t, others[0].Running(), r.Out)
}
