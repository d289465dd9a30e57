package fleet_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestSpreadsheets: what a user calls an environment is text in every CSV.
func TestSpreadsheets(t *testing.T) {
	s := &snapshot.Snapshot{Environments: []snapshot.Environment{{
		EID: "@1", UID: 1001, Username: "-u", Creation: genvtest.Date(t, "20/11/2026 21:11:25"), Config: snapshot.EnvConfig{Name: "=1+1;=2"}, PIDs: []snapshot.PID{7},
	}}}
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: genvhost.New(s).Old()})
	r := genvtest.Run(t, "remote", "envs", "-F", f.SSHConfig(), "-H", "a", "--format", "csv", "--no-header", "--no-summary", "--timestamp")
	require.Equal(t, `a,"'@1","'-u","'=1+1;=2",20/11/2026 21:11:25`+"\n", r.Out, r.Err)
	r = genvtest.Run(t, "remote", "query", "-F", f.SSHConfig(), "-H", "a", "--query", "eid", "config.name", "pids")
	require.Equal(t, `"'@1","'=1+1;=2",7`+"\n", r.Out, r.Err)
}
