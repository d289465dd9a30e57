package local

import (
	"maps"
	"sync"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// bootProcess identifies a process of this boot.
type bootProcess struct {
	pid   snapshot.PID
	start snapshot.StartTime
}

// processRecord is what an Executor remembers of a process between cycles.
type processRecord struct {
	unkillable bool // SIGKILL did not end it
	// evasions counts how often it was not signalled since something was different
	// that it may have changed itself: its environ, which it can write to, or some
	// of its devices.
	evasions int
}

// memories are shared by the orders that are carried out at the same time.
type memories struct {
	mu sync.Mutex
	of map[bootProcess]processRecord
}

func (m *memories) get(key bootProcess) processRecord {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[key]
}

// change changes what is remembered of a process, and returns it.
func (m *memories) change(key bootProcess, change func(*processRecord)) processRecord {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := m.of[key]
	change(&changed)
	m.of[key] = changed
	return changed
}

// removeDead removes the processes that have ended.
func (m *memories) removeDead(fs proc.FS) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.of, func(key bootProcess, _ processRecord) bool {
		alive, err := fs.Alive(key.pid, key.start)
		return err == nil && !alive
	})
}

// maxEvasions is how often that counts as chance: an honest process may start a
// program in another environment, or free a device, between the judgement and
// the signal. One that did so each time would otherwise never be signalled.
const maxEvasions = 2
