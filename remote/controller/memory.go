package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// Store keeps the memory of a controller from run to run and, with an election, from leader to leader.
type Store interface {
	// Load returns the memory to continue with, also with an error, which says what could not be read.
	Load(ctx context.Context) (FleetMemory, error)
	// Save keeps a memory. It may be called in the background, but not twice at a time.
	Save(ctx context.Context, saved Saved) error
}

// FleetMemory is what a controller keeps from cycle to cycle, and on disk what has a key. Rules changes when a judgement
// is recorded, and with each outcome.
type FleetMemory struct {
	Rules      enforce.Memory             `json:"rules"`
	Machines   Machines                   `json:"machines"`
	Companions map[string]json.RawMessage `json:"companions,omitempty"` // the memories of companions, by their names
	// Operator is what operators asked for that lasts. It has a file of its own, since it doesn't age: see statedir.
	Operator operator.State                 `json:"-"`
	recorded HourlyQuota[snapshot.Username] // how much of the record users of hosts used up lately
	ReadOnly bool                           `json:"-"` // another controller writes this memory, and counts its rounds
	// FormerHours are the GPU hours that an earlier version kept in the memory, where they stay until a table has them.
	FormerHours map[string]enforce.Hours `json:"-"`
}

// Saved is an encoded memory: the loop continues to change its own while a Store writes this.
type Saved struct {
	// Memory is what DecodeMemory reads; empty if it doesn't fit into the Store.
	Memory json.RawMessage `json:"memory,omitempty"`
	// Operator is what operators asked for, which doesn't age; empty for nothing. See operator.State.Encode.
	Operator json.RawMessage `json:"operator,omitempty"`
}

// savedMemory is the content of Saved.Memory.
type savedMemory struct {
	Schema string      `json:"schema"`
	Time   time.Time   `json:"time"`
	Memory FleetMemory `json:"memory"`
}

const (
	savedSchema = "genv.controller.memory/1"
	MaxSaved    = 1 << 30 // bytes of a saved memory
	// MaxMemoryAge is how old a memory may be to be continued: after it, "without a break" would be a guess.
	MaxMemoryAge = time.Hour
	saveEvery    = 10 * time.Second // a memory that changes in every cycle
)

// Encode returns the memory as it is now, with its times by the clock of now, also if that was set since.
func (m *FleetMemory) Encode(now time.Time) (saved Saved, err error) {
	memory := *m
	memory.Rules = m.Rules.At(now)
	memory.Rules.Hours = m.FormerHours
	saved.Memory, err = json.Marshal(savedMemory{savedSchema, now, memory})
	if err == nil && len(saved.Memory) > MaxSaved {
		err = fmt.Errorf("it has %d bytes, more than the %d that are read again", len(saved.Memory), MaxSaved)
	}
	if err == nil && !m.Operator.Empty() {
		saved.Operator, err = m.Operator.Encode(now)
	}
	if err != nil {
		return Saved{}, fmt.Errorf("encode the memory: %w", err)
	}
	return saved, nil
}

// DecodeMemory reads Saved.Memory, with its times by the clock of now. Of one that is too old it has FormerHours.
func DecodeMemory(data []byte, now time.Time) (m FleetMemory, written time.Time, err error) {
	var s savedMemory
	if err := json.Unmarshal(data, &s); err != nil {
		return m, written, fmt.Errorf("damaged: %w", err)
	}
	s.Memory.FormerHours, s.Memory.Rules.Hours = s.Memory.Rules.Hours, nil
	age := now.Sub(s.Time)
	switch {
	case s.Schema != savedSchema:
		return m, s.Time, fmt.Errorf("of another version: %q", s.Schema)
	case age > MaxMemoryAge || age < 0:
		m.FormerHours = s.Memory.FormerHours
		return m, s.Time, fmt.Errorf("written at %s, which is too long ago or in the future",
			s.Time.Format(time.RFC3339))
	}
	s.Memory.Rules = s.Memory.Rules.At(now) // measured by the monotonic clock from here on
	s.Memory.Rules.Resumed = true
	return s.Memory, s.Time, nil
}

// errOtherFleet says that a memory knows none of the hosts.
var errOtherFleet = errors.New("the saved memory is of another fleet: it knows none of these hosts, so all times " +
	"start again")

// For returns the memory to continue with on hosts. With an error only what operators asked for and FormerHours are left.
func (m FleetMemory) For(hosts []remote.Host) (FleetMemory, error) {
	for _, h := range hosts {
		if _, known := m.Rules.Hosts[snapshot.Hostname(h.Name)]; known {
			return m, nil
		}
	}
	if len(m.Rules.Hosts) == 0 {
		return m, nil
	}
	return FleetMemory{Operator: m.Operator, FormerHours: m.FormerHours}, errOtherFleet
}

// restoreCompanions gives companions their memories. One that can't be read is lost: what it limits begins again.
func (m *FleetMemory) restoreCompanions(companions []Companion) {
	for _, c := range companions {
		if keeper, ok := c.(MemoryKeeper); ok && m.Companions[keeper.Name()] != nil {
			_ = json.Unmarshal(m.Companions[keeper.Name()], keeper.Memory())
			delete(m.Companions, keeper.Name())
		}
	}
}

// withCompanions is the memory with what companions remember now.
func (m FleetMemory) withCompanions(companions []Companion) (FleetMemory, error) {
	all := make(map[string]json.RawMessage)
	maps.Copy(all, m.Companions) // also of those that this run doesn't have
	m.Companions = all
	for _, c := range companions {
		if keeper, ok := c.(MemoryKeeper); ok {
			data, err := json.Marshal(keeper.Memory())
			if err != nil {
				return m, err
			}
			all[keeper.Name()] = data
		}
	}
	return m, nil
}
