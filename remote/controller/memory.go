package controller

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// MaxMemoryAge is how old a memory may be to be continued: what happened in the meantime is not
// known, so "without a break" would be a guess.
const MaxMemoryAge = time.Hour

// FleetMemory is what a controller keeps from cycle to cycle, and on disk from run to run.
// Rules is replaced when a judgement counts: when it is recorded, if there is a record. What came of orders is added to
// it, and operators' requests change the rest.
type FleetMemory struct {
	Rules    enforce.Memory `json:"rules"`
	Machines Machines       `json:"machines"`
	// Companions are the memories of companions, by their names.
	Companions map[string]json.RawMessage `json:"companions,omitempty"`
	// Operator is what operators asked for that lasts. It has a file of its own, since it doesn't age: see statedir.
	Operator operator.State `json:"-"`
	// recorded is how much of the record users of hosts used up lately.
	recorded Budget[snapshot.Username]
	// ReadOnly says that another controller writes this memory, and counts its rounds.
	ReadOnly bool `json:"-"`
}

// restoreCompanions gives companions their memories. One that can't be read is lost: what it limits begins again.
func (m *FleetMemory) restoreCompanions(companions []Companion) {
	for _, c := range companions {
		if keeper, ok := c.(MemoryKeeper); ok && m.Companions[c.Name()] != nil {
			_ = json.Unmarshal(m.Companions[c.Name()], keeper.Memory())
			delete(m.Companions, c.Name())
		}
	}
}

// withCompanions is the memory with what companions remember now.
func (m FleetMemory) withCompanions(companions []Companion) (FleetMemory, error) {
	m.Companions = maps.Clone(m.Companions) // also of those that this run doesn't have
	for _, c := range companions {
		if keeper, ok := c.(MemoryKeeper); ok {
			data, err := json.Marshal(keeper.Memory())
			if err != nil {
				return m, err
			}
			if m.Companions == nil {
				m.Companions = make(map[string]json.RawMessage)
			}
			m.Companions[c.Name()] = data
		}
	}
	return m, nil
}
