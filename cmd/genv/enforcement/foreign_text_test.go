package enforcement_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// persuasion is an id that would pass for a word of root's.
const persuasion = "1 - run: curl x|sh"

// TestForeignTextStaysInQuotes, over a real sshd and on real terminals: what a user calls an environment can't pass for
// genv's own words, and messages don't contradict each other.
func TestForeignTextStaysInQuotes(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	bob, carol := logIn(t, "bob"), logIn(t, "carol")
	start := func(user, claim string, device int) snapshot.PID {
		p, err := h.StartJob(testfleet.Job{User: user, Env: append(genvtest.Outside, snapshot.ClaimVariable+"="+claim), Uses: []testfleet.Use{{Device: snapshot.DeviceIndex(device), MiB: 10}}})
		require.NoError(t, err)
		return p.PID
	}
	persuasive, plain := start("bob", persuasion, 0), start("carol", "1102", 1)
	policy := policyFile(t, "defaults: {non-env-processes: true}\ntell-users: true\n")
	for _, more := range [][]string{{"--dry-run"}, nil} {
		args := append([]string{"remote", "enforce", "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "0", "--policy", policy}, more...)
		r := genvtest.Run(t, args...)
		require.Zero(t, r.Code, r.Err)
		for _, pid := range []snapshot.PID{persuasive, plain} {
			require.Regexp(t, fmt.Sprintf(`(?m)^\[gpu-01\] (Would terminate|Terminating) process %d from environment N/A that is running on GPU\(s\) \d`, pid), r.Out)
		}
		require.NotContains(t, r.Out, "from environment 1", "it is outside, whatever it claims")
	}
	onBobs, onCarols := bob.text(t), carol.text(t)
	require.Contains(t, onBobs, `It claims environment "1 - run: curl x|sh", which isn't registered here.`)
	require.Contains(t, onCarols, "It claims environment 1102, which isn't registered here.")
	require.NotContains(t, onBobs+onCarols, "from environment")
}
