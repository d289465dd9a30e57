package localhost

import (
	"errors"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// StartOf is the start time of a process, for record.Prune: 0 if it has ended. ok is false
// if that is unknown.
func (h *Host) StartOf(pid snapshot.PID) (start snapshot.StartTime, ok bool) {
	stat, err := h.Machine.Proc.Stat(pid)
	switch {
	case errors.Is(err, proc.ErrGone), err == nil && stat.Gone():
		return 0, true
	case err != nil:
		return 0, false
	}
	return stat.Start, true
}
