package amdgpu

import (
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// searchEvery is how often all open files of the machine are searched for render nodes: 500
// processes with 32 files each take about 70 ms.
const searchEvery = 10 * time.Second

// Recent remembers which processes had render nodes open, so that looks that follow each other
// don't search all processes. Any number of goroutines may use it.
type Recent struct {
	Now func() time.Time // the clock

	mu   sync.Mutex
	at   time.Time // of the last search; zero for none
	pids []snapshot.PID
}

// last returns the processes that the last search found; ok is false if it is time to search.
// A nil Recent remembers nothing.
func (r *Recent) last() (pids []snapshot.PID, ok bool) {
	if r == nil {
		return nil, false
	}
	now := r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	ago := now.Sub(r.at)
	return r.pids, !r.at.IsZero() && ago >= 0 && ago < searchEvery
}

// searched remembers what a search found.
func (r *Recent) searched(found map[snapshot.PID][]client) {
	if r == nil {
		return
	}
	pids := make([]snapshot.PID, 0, len(found))
	for pid := range found {
		pids = append(pids, pid)
	}
	now := r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.pids = now, pids
}
