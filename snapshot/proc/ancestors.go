package proc

import (
	"errors"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// maxDepth bounds a walk over parents, which change while one walks.
const maxDepth = 4096

// attempts is how often a walk begins again because a parent ended meanwhile.
const attempts = 5

// Ancestors are the parent of a process, its parent, and so on up to PID 1, or
// up to where a PID namespace ends. When a parent ends meanwhile, the walk
// starts again from the process, which then has another parent.
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

// Ancestor is an ancestor of a process as it was when it was looked at.
type Ancestor struct {
	PID   snapshot.PID
	Start snapshot.StartTime
}

// AncestorFinder finds the ancestors of many processes, and looks at each ancestor once.
// It is for one moment, and not safe for concurrent use.
type AncestorFinder struct {
	fs   FS
	seen map[snapshot.PID]Stat
}

// NewAncestorFinder returns an AncestorFinder that has looked at no process yet.
func (fs FS) NewAncestorFinder() *AncestorFinder {
	return &AncestorFinder{fs: fs, seen: map[snapshot.PID]Stat{}}
}

// familyDepth is how many ancestors are looked at: far more than processes usually
// have. Those beyond are ignored, which is no error: otherwise a user could make
// the environment of a process unknown by nesting it deeply.
const familyDepth = 256

// Ancestors are the ancestors of a process, the nearest first, at most
// familyDepth of them. With an error they are those up to the first one that
// can't be looked at.
func (f *AncestorFinder) Ancestors(of Stat) ([]Ancestor, error) {
	ancestors, err := f.walk(of)
	for range attempts {
		if !errors.Is(err, ErrGone) {
			break
		}
		clear(f.seen) // a parent ended: its children have another one now
		now, statErr := f.fs.Stat(of.PID)
		if statErr != nil || now.Start != of.Start {
			break
		}
		ancestors, err = f.walk(now)
	}
	if err != nil {
		return ancestors, fmt.Errorf("the parents of PID %d: %w", of.PID, err)
	}
	return ancestors, nil
}

func (f *AncestorFinder) walk(of Stat) ([]Ancestor, error) {
	var ancestors []Ancestor
	for at := of.PPID; at != 0 && len(ancestors) < familyDepth; {
		stat, ok := f.seen[at]
		if !ok {
			var err error
			if stat, err = f.fs.Stat(at); err != nil {
				return ancestors, err
			}
			f.seen[at] = stat
		}
		ancestors = append(ancestors, Ancestor{PID: at, Start: stat.Start})
		at = stat.PPID
	}
	return ancestors, nil
}
