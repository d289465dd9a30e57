package local

import (
	"maps"
	"sync"

	"github.com/seed-3119e985/genv/snapshot/proc"
)

// processRecord is what an Executor remembers of a process between cycles.
type processRecord struct {
	unkillable bool // SIGKILL did not end it
	// evasions counts how often it was not signalled since something was different that it may have changed itself:
	// its environ, which it can write to, or some of its devices.
	evasions int
}

// memories are shared by the orders that are carried out at the same time.
type memories struct {
	mu sync.Mutex
	of map[proc.ID]processRecord
}

func (m *memories) get(key proc.ID) processRecord {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[key]
}

// change changes what is remembered of a process, and returns it.
func (m *memories) change(key proc.ID, change func(*processRecord)) processRecord {
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
	maps.DeleteFunc(m.of, func(key proc.ID, _ processRecord) bool {
		alive, err := fs.Alive(key.PID, key.Start)
		return err == nil && !alive
	})
}

// maxEvasions is how often that counts as chance: an honest process may start a program in another environment, or
// free a device, between the judgement and the signal. One that did so each time would otherwise never be signalled.
const maxEvasions = 2
