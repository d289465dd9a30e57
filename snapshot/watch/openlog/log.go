package openlog

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// pause is the least time between two versions of the file.
const pause = 100 * time.Millisecond

// Log writes the file. It is safe for concurrent use.
type Log struct {
	dir   string
	added chan struct{} // there is something to write; buffered

	mu      sync.Mutex
	content content
	unsaid  map[snapshot.PID]bool // are not in the file yet
}

// New is a Log in root's run folder.
func New(dir string) *Log {
	return &Log{
		dir: dir, added: make(chan struct{}, 1), unsaid: map[snapshot.PID]bool{},
		content: content{Schema: schema, Epoch: rand.Text(), PIDs: []snapshot.PID{}},
	}
}

// Add notes that a process opened a device, 0 for one that is not known. It never blocks.
func (l *Log) Add(pid snapshot.PID) {
	l.mu.Lock()
	if l.unsaid[pid] {
		l.mu.Unlock()
		return
	}
	c := &l.content
	c.Last++
	if c.PIDs = append(c.PIDs, pid); len(c.PIDs) > most {
		delete(l.unsaid, c.PIDs[0])
		c.PIDs = slices.Delete(c.PIDs, 0, 1)
	}
	l.unsaid[pid] = true
	l.mu.Unlock()
	select {
	case l.added <- struct{}{}:
	default:
	}
}

// Run writes what is added until ctx ends. It calls failed when the file can't be written, and
// not again before it could be.
func (l *Log) Run(ctx context.Context, failed func(error)) {
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
		case <-time.After(pause):
		}
	}
}

func (l *Log) write() error {
	l.mu.Lock()
	now := l.content
	now.PIDs = slices.Clone(now.PIDs)
	clear(l.unsaid)
	l.mu.Unlock()
	return now.write(l.dir)
}
