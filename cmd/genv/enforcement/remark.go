package enforcement

import (
	"fmt"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Remark is a line about an outcome, or "" if it is what was asked for.
func Remark(o enforce.Outcome) string {
	switch o.Status {
	case enforce.StatusTerminated, enforce.StatusDetached, enforce.StatusGone, enforce.StatusNotAttached, enforce.StatusSignalled:
		return ""
	}
	what := fmt.Sprintf("process %d", o.PID)
	if o.PID == 0 {
		what = fmt.Sprintf("environment %s on device %s", text.Shown(string(o.EID)), o.Device)
	}
	if o.Reason == "" {
		return fmt.Sprintf("%s: %s", what, o.Status)
	}
	return fmt.Sprintf("%s: %s: %s", what, o.Status, o.Reason)
}
