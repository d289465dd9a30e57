package host_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// TestAHookJoinsTheContainersUserAlone: where the container's environment has ended, and
// another user has one with its id, the container doesn't start in that.
func TestAHookJoinsTheContainersUserAlone(t *testing.T) {
	h := newGPUHost(t)
	h.serve()
	const eid = "abababababab"
	theirs := h.environmentOf(rootlessUser, eid, 0)
	init := h.environmentOf(containerUser, "mine", 1)
	start := func(environment string) (string, error) {
		order := fmt.Sprintf(`{"run": %q, "eid": %q, "uid": %d, "proof": "token", "gpus": true, "registered": true}`, h.dir+"/root/run", environment, containerUser)
		cmd := h.as(0, "container-hook", "start", order)
		cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"id": %q, "pid": %d}`, strings.Repeat("ab", 32), init))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := start(eid)
	require.Error(t, err, out)
	require.Contains(t, out, "environment "+eid+" has ended before the container started")
	files := h.files()
	require.Equal(t, []snapshot.PID{theirs}, files.Environment(eid).PIDs)
	require.Equal(t, []snapshot.PID{init}, files.Environment("mine").PIDs)
	out, err = start("mine")
	require.NoError(t, err, out)
}
