package fleet_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// -v says what holds, and the help says the same of the default.
func TestTheCommandTimeoutIsSaid(t *testing.T) {
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: genvhost.New(&snapshot.Snapshot{})})
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--interval", "0"}, "command_timeout=30s"},
		{[]string{"--interval", "20ms", "--cycles", "2"}, "command_timeout=10s"},
		{[]string{"--interval", "20ms", "--cycles", "2", "--command-timeout", "5"}, "command_timeout=5s"},
	} {
		r := genvtest.Run(t, append([]string{"remote", "enforce", "-v", "-F", f.SSHConfig(), "-H", "a"}, tt.args...)...)
		require.Zero(t, r.Code, r.Err)
		require.Contains(t, r.Err, tt.want)
	}
	require.Contains(t, genvtest.Run(t, "remote", "enforce", "--help").Out, "30; in a loop of enforce the interval, from 10 to 30")
}
