package user_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	simulated "github.com/seed-3119e985/genv/remote/testfleet/gpus"
)

// TestGPUsOfThisHostWithoutRoot: somebody sees the processes of others, with their users.
func TestGPUsOfThisHostWithoutRoot(t *testing.T) {
	s := newStation(t)
	bob := s.person("bob", 60802) // or the test is skipped without root
	require.Zero(t, s.me().run("genv", "devices").Code)
	driver := simulated.Driver{Devices: simulated.H100s("station", 2)}
	pid, used := startSleeper(t, 0), int64(2048)
	driver.Apps = []simulated.App{{PID: int(pid), UsedMiB: &used}}
	require.NoError(t, driver.Write(s.path("gpus.json")))
	r := bob.run("genv", "gpus")
	require.Zero(t, r.Code, r.Err)
	require.Empty(t, r.Err)
	require.Regexp(t, `(?m)^0    H100 80GB HBM3  busy +2\.0/80 .* root `+pidText(pid)+` 2\.0GiB sleep`, r.Out)
	require.Contains(t, r.Out, "\n1 of 2 GPUs is free\n")
}
