package local

import (
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// The lines are those of 1.4.3 (users know them, and scripts look for them), with
// nothing in them that a terminal would obey.

func signalLine(sig unix.Signal, t *enforce.Termination) string {
	if sig == unix.SIGKILL {
		return t.KillLine()
	}
	return t.String()
}

// nameEnv is how a line names an environment, or the want of one.
func nameEnv(eid snapshot.EnvID) string {
	if eid == "" {
		return "N/A"
	}
	return snapshot.Shown(string(eid))
}
