package local

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// The lines are those of 1.4.3 (users know them, and scripts look for them), with
// nothing in them that a terminal would obey.

func signalLine(sig unix.Signal, p *snapshot.Process) string {
	verb := "Terminating"
	if sig == unix.SIGKILL { // 1.4.3 has no line for it: it never looked back
		verb = "Killing"
	}
	return fmt.Sprintf("%s process %d from environment %s that is running on GPU(s) %s", verb, p.PID, nameEnv(p.EID), enforce.Indices(p.Indices()))
}

func detachingLine(device snapshot.DeviceIndex, e *snapshot.Environment) string {
	user := string(e.Username)
	if user == "" {
		user = strconv.FormatUint(uint64(e.UID), 10)
	}
	return fmt.Sprintf("Detaching environment %s of user %s from device %d", nameEnv(e.EID), printable(user), device)
}

// nameEnv is how a line names an environment, or the want of one.
func nameEnv(eid snapshot.EnvID) string {
	if eid == "" {
		return "N/A"
	}
	return printable(string(eid))
}

// printable is a text that does nothing to a terminal.
func printable(text string) string {
	if snapshot.CheckText("", text) != nil {
		return strconv.QuoteToASCII(text)
	}
	return text
}
