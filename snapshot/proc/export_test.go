package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// Later moves the stalls that are known into the past.
func (r *ReaderProcess) Later(by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, s := range r.stalled {
		s.at = s.at.Add(-by)
		r.stalled[key] = s
	}
}

// FindHolder finds the holder of a lock in the text of /proc/locks.
func FindHolder(locks string, dev, ino uint64) int {
	return int(findHolder(locks, &unix.Stat_t{Dev: dev, Ino: ino}))
}
