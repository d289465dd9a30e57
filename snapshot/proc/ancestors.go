package proc

import (
	"errors"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// ID identifies a process of this boot.
type ID struct {
	PID   snapshot.PID       `json:"pid"`
	Start snapshot.StartTime `json:"start"`
}

// AncestorFinder finds the ancestors of many processes, and reads each ancestor once.
// It is for one moment, and not safe for concurrent use.
type AncestorFinder struct {
	fs    FS
	limit int // ancestors beyond this many are ignored
	seen  map[snapshot.PID]Stat
}

// maxAncestors is far more than processes usually have. Ignoring those beyond is no error: otherwise a user could make
// the environment of a process unknown by nesting it deeply.
const maxAncestors = 256

// NewAncestorFinder returns an AncestorFinder for at most 256 ancestors of a process.
func (fs FS) NewAncestorFinder() *AncestorFinder {
	return &AncestorFinder{fs: fs, limit: maxAncestors, seen: map[snapshot.PID]Stat{}}
}

// Ancestors lists the ancestors, the nearest first, up to PID 1 or the first process of a PID namespace. If a parent
// ends meanwhile it begins again. With an error, the list ends before the first one that can't be read.
func (f *AncestorFinder) Ancestors(of Stat) ([]ID, error) {
	const attempts = 5
	ancestors, err := f.walk(of)
	for i := 0; i < attempts && errors.Is(err, ErrGone); i++ {
		clear(f.seen) // the children of the parent that ended have another one now
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

func (f *AncestorFinder) walk(of Stat) ([]ID, error) {
	var ancestors []ID
	for at := of.PPID; at != 0 && len(ancestors) < f.limit; {
		stat, ok := f.seen[at]
		if !ok {
			var err error
			if stat, err = f.fs.Stat(at); err != nil {
				return ancestors, err
			}
			f.seen[at] = stat
		}
		ancestors = append(ancestors, ID{PID: at, Start: stat.Start})
		at = stat.PPID
	}
	return ancestors, nil
}

// Ancestors lists all ancestors of one process, as AncestorFinder.Ancestors does. If
// they can't all be read, there is only an error.
func (fs FS) Ancestors(pid snapshot.PID) ([]ID, error) {
	stat, err := fs.Stat(pid)
	if err != nil {
		return nil, fmt.Errorf("the parents of PID %d: %w", pid, err)
	}
	finder := fs.NewAncestorFinder()
	finder.limit = 4096 // PIDs in a ring, which no kernel makes
	ancestors, err := finder.Ancestors(stat)
	if err == nil && len(ancestors) == finder.limit {
		err = fmt.Errorf("%w: PID %d has %d ancestors or more", ErrUnreadable, pid, finder.limit)
	}
	if err != nil {
		return nil, err
	}
	return ancestors, nil
}
