package gpus

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Living is the host without the apps whose process has ended: a zombie holds
// no GPU. root is where /proc is mounted.
func (h Host) Living(root string) Host {
	h.Apps = slices.DeleteFunc(slices.Clone(h.Apps), func(a App) bool {
		alive, err := proc.FS{Root: root}.Alive(snapshot.PID(a.PID), snapshot.StartTime(a.Start))
		return err != nil || !alive
	})
	return h
}
