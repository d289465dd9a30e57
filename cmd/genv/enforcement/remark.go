package enforcement

import (
	"fmt"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// Remark is a line about an outcome that is not simply what was asked for.
func Remark(o enforce.Outcome) string {
	what := fmt.Sprintf("process %d", o.PID)
	if o.PID == 0 {
		what = fmt.Sprintf("environment %s on device %s", snapshot.Shown(string(o.EID)), o.Device)
	}
	switch o.Status {
	case enforce.StatusTerminated, enforce.StatusDetached, enforce.StatusGone, enforce.StatusNotAttached, enforce.StatusSignalled:
		return ""
	}
	if o.Reason == "" {
		return fmt.Sprintf("%s: %s", what, o.Status)
	}
	return fmt.Sprintf("%s: %s: %s", what, o.Status, o.Reason)
}
