package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/dockerd"
)

// TestARootlessContainerIsJudgedByItsUser: by the one who runs the engine, whatever uid its
// processes have, and whatever environment it claims.
func TestARootlessContainerIsJudgedByItsUser(t *testing.T) {
	h := judged(t, newRootlessHost(t))
	const outsiders = "defaults: {non-env-processes: true, env-devices: true, grace: 1s, kill: true}\n"
	const warning = "defaults: {non-env-processes: true, env-devices: true, warn: {cycles: 3}}\n"
	const capOf1 = "defaults: {max-devices-per-user: 1, warn: {cycles: 3}}\n"

	h.getNothing()

	// In an environment of its user it keeps the rules, and counts for that user.
	h.environmentOf(rootlessUser, "own", 0)
	h.Run("--name", "kept", "--user", "7", "-e", "GENV_ENVIRONMENT_ID=own", dockerd.Image, "sleep", "1000000")
	kept := h.Init("kept")
	h.uses(kept, 0)
	for _, policy := range []string{outsiders, warning, capOf1} {
		require.Empty(t, h.enforce(policy))
	}
	h.uses(kept, 0, 2)
	require.Contains(t, h.enforce(capOf1), "User rootless is using 2 devices")
	require.Contains(t, h.enforce(warning), "is using non-attached GPU(s) 2 (user rootless, sleep 1000000, container unnamed, started by rootless)")

	// Without one it is found, and named as far as anybody but its user knows it.
	h.Run("--name", "outside", "--user", "7", "--label", "genv.uid=0", dockerd.Image, "sleep", "2000000")
	outside := h.Init("outside")
	h.uses(kept, 0)
	h.alsoUses(outside, 1)
	found := fmt.Sprintf("Process %d is not running in a GPU environment (user rootless, sleep 2000000, container unnamed, started by rootless)", outside)
	for _, exempt := range []string{"", "exempt: {users: [root], uids: [0, 7, 300006], containers: [{name: '*'}]}\n"} {
		require.Contains(t, h.enforce(exempt+outsiders, "--dry-run"), found+"\nWould terminate process")
	}
	require.NotContains(t, h.enforce("exempt: {users: [rootless]}\n"+outsiders), "terminat")
	require.Contains(t, h.enforce(warning), found+" (waits for")
	require.True(t, h.Runs("outside"))
	ended := h.enforce(outsiders)
	require.Contains(t, ended, found+"\nTerminating process")
	require.False(t, h.Runs("outside"), ended)
	require.True(t, h.Runs("kept"), ended)
	log, err := os.ReadFile(filepath.Join(h.dir, "log/audit.jsonl"))
	require.NoError(t, err)
	require.Contains(t, string(log), fmt.Sprintf(`"uid":%d`, rootlessUser))

	h.claimsAnother(outsiders, capOf1)
	require.True(t, h.Runs("kept"))
}

// claimsAnother: the id of another user's environment costs that user nothing.
func (h *judgedHost) claimsAnother(outsiders, capOf1 string) {
	h.t.Helper()
	theirs := h.environmentOf(containerUser, "theirs", 2)
	h.Run("--name", "thief", "--user", "7", "-e", "GENV_ENVIRONMENT_ID=theirs", dockerd.Image, "sleep", "3000000")
	thief := h.Init("thief")
	h.uses(theirs, 2)
	h.alsoUses(thief, 2, 3)
	require.NotContains(h.t, h.enforce(capOf1), "User bob")
	found := h.enforce(outsiders)
	require.Contains(h.t, found, fmt.Sprintf("Process %d is", thief))
	require.NotContains(h.t, found, "user bob")
	require.NotContains(h.t, found, "Detaching")
	require.False(h.t, h.Runs("thief"))
	files := h.files()
	require.Len(h.t, files.AttachedTo("theirs"), 1)
}
