package local

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// dropped makes the environment of a process unknown if it is in no file any more, although root's genv saw it
// registered for that user: genv 1.4.3 drops an environment with its shell, also while jobs go on in it, and any
// user can replace a file that all users write. It returns a warning about them.
func dropped(s *snapshot.Snapshot, files *state.Files) []string {
	found := 0
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.EID != "" && p.UID != nil && s.Environment(p.EID) == nil && files.WasRegistered(p.EID, *p.UID) {
			p.EID, p.EnvUnknown = "", true
			found++
		}
	}
	if found == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d processes are in environments that are no longer in the state files, so their "+
		"environments are unknown: genv 1.4.3 drops an environment with its shell, and every user can write "+
		"these files (docs/host.md says how root owns them)", found)}
}
