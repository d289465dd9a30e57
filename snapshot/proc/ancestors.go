package proc

import (
	"errors"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// maxDepth bounds a walk over parents, which change while one walks.
const maxDepth = 4096

// attempts is how often a walk begins anew because a parent ended meanwhile.
const attempts = 5

// Ancestors are the parent of a process, its parent, and so on up to PID 1, or
// up to where a PID namespace ends. When a parent ends meanwhile, the walk
// starts anew from the process, which then has another parent.
func (fs FS) Ancestors(pid snapshot.PID) (ancestors []snapshot.PID, err error) {
	for range attempts {
		ancestors, err = fs.walk(pid)
		if !errors.Is(err, ErrGone) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the parents of PID %d: %w", pid, err)
	}
	return ancestors, nil
}

func (fs FS) walk(pid snapshot.PID) ([]snapshot.PID, error) {
	var ancestors []snapshot.PID
	for at := pid; len(ancestors) < maxDepth; {
		stat, err := fs.Stat(at)
		if err != nil {
			return nil, err
		}
		if stat.PPID == 0 {
			return ancestors, nil
		}
		ancestors = append(ancestors, stat.PPID)
		at = stat.PPID
	}
	return nil, fmt.Errorf("%w: more than %d of them", ErrUnreadable, maxDepth)
}
