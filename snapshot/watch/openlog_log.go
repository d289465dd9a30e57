package watch

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// openLogPause is the least time between two versions of the file.
const openLogPause = 100 * time.Millisecond

// OpenLog writes the file. It is safe for concurrent use.
type OpenLog struct {
	dir   string
	added chan struct{} // there is something to write; buffered

	mu      sync.Mutex
	content openLogContent
	pending map[snapshot.PID]bool // are not in the file yet
}

// NewOpenLog is an OpenLog in root's run folder.
func NewOpenLog(dir string) *OpenLog {
	return &OpenLog{
		dir: dir, added: make(chan struct{}, 1), pending: map[snapshot.PID]bool{},
		content: openLogContent{Schema: schema, Epoch: rand.Text(), PIDs: []snapshot.PID{}},
	}
}

// Add notes that a process opened a device, 0 for one that is not known. It never blocks.
func (l *OpenLog) Add(pid snapshot.PID) {
	l.mu.Lock()
	if l.pending[pid] {
		l.mu.Unlock()
		return
	}
	c := &l.content
	c.Last++
	if c.PIDs = append(c.PIDs, pid); len(c.PIDs) > most {
		delete(l.pending, c.PIDs[0])
		c.PIDs = slices.Delete(c.PIDs, 0, 1)
	}
	l.pending[pid] = true
	l.mu.Unlock()
	select {
	case l.added <- struct{}{}:
	default:
	}
}

// Run writes what is added until ctx ends. It calls failed when the file can't be written, and
// not again before it could be.
func (l *OpenLog) Run(ctx context.Context, failed func(error)) {
	works := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.added:
		}
		err := l.write()
		if err != nil && works {
			failed(err)
		}
		works = err == nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(openLogPause):
		}
	}
}

func (l *OpenLog) write() error {
	l.mu.Lock()
	now := l.content
	now.PIDs = slices.Clone(now.PIDs)
	clear(l.pending)
	l.mu.Unlock()
	return openLogFile.Write(l.dir, now)
}
