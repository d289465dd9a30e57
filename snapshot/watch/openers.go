package watch

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// sourcesOf finds out who opened a device. Processes that have ended since are left out, and
// so is an nvidia-smi that root runs, as every genv does.
func (w *Watcher) sourcesOf(pids map[snapshot.PID]bool) []source {
	var list []source
	for pid := range pids {
		if pid == 0 {
			list = append(list, source{party: unknownOpener})
			continue
		}
		stat, err := w.config.Proc.Stat(pid)
		if err != nil || stat.Gone() {
			continue
		}
		uid, err := w.config.Proc.UID(pid)
		switch {
		case errors.Is(err, proc.ErrGone): // in between
		case err != nil:
			list = append(list, source{party: unknownOpener})
		case uid == 0 && w.isSMI(pid):
		default:
			list = append(list, source{party(uid), opener{pid, stat.Start}})
		}
	}
	return list
}

// isSMI reports whether a process runs this machine's nvidia-smi. Another user could have it
// run something else (LD_PRELOAD), so it says nothing about processes that root didn't start.
func (w *Watcher) isSMI(pid snapshot.PID) bool {
	if w.config.SMI == nil {
		return false
	}
	smi, err := os.Stat(w.config.SMI())
	if err != nil {
		return false
	}
	program, err := os.Stat(fmt.Sprintf("%s/%d/exe", cmp.Or(w.config.Proc.Root, "/proc"), pid))
	return err == nil && os.SameFile(smi, program)
}
