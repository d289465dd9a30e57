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

// Store keeps the memory of a controller over restarts and, with an election, over changes of the leader.
type Store interface {
	// Load returns the memory to continue with, even with an error, which says what could not be read.
	Load(ctx context.Context) (FleetMemory, error)
	// Save keeps a memory. One goroutine at a time calls it.
	Save(ctx context.Context, saved Saved) error
}

// FleetMemory is what a controller remembers; on disk what has a JSON key. Rules changes with each recorded judgement
// and each outcome.
type FleetMemory struct {
	Rules      enforce.Memory             `json:"rules"`
	Machines   Machines                   `json:"machines"`
	Companions map[string]json.RawMessage `json:"companions,omitempty"` // the memories of companions, by name
	// Operator has holds and exemptions. It has a file of its own, since it doesn't age.
	Operator operator.State                 `json:"-"`
	recorded HourlyQuota[snapshot.Username] // bytes of records about users of hosts
	ReadOnly bool                           `json:"-"` // another controller writes this memory, and counts its rounds
	// FormerHours are the GPU hours that an earlier version kept in the memory, where they stay until a table has them.
	FormerHours map[string]enforce.Hours `json:"-"`
}

// Saved is an encoded memory. The loop changes its own while a Store writes this.
type Saved struct {
	// Memory is read by DecodeMemory; empty if it doesn't fit into the Store.
	Memory json.RawMessage `json:"memory,omitempty"`
	// Operator is from operator.State.Encode; empty without holds and exemptions.
	Operator json.RawMessage `json:"operator,omitempty"`
}

type savedMemory struct {
	Schema string      `json:"schema"`
	Time   time.Time   `json:"time"`
	Memory FleetMemory `json:"memory"`
}

const (
	savedSchema = "genv.controller.memory/1"
	MaxSaved    = 1 << 30 // bytes of a saved memory
	// MaxMemoryAge is how old a memory may be. After it, "without a break" would be a guess.
	MaxMemoryAge = time.Hour
	saveEvery    = 10 * time.Second // since nearly every event changes the memory
)

// Encode encodes the memory. Its times are adjusted to now, in case the clock was set since.
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

// DecodeMemory reads Saved.Memory. If it is too old, only FormerHours are left.
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

var errOtherFleet = errors.New("the saved memory is of another fleet: it knows none of these hosts, so all times " +
	"start again")

// For returns the memory to continue with on hosts. With an error only Operator and FormerHours are left.
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

// restoreCompanions gives companions their memories. If one can't be read, its companion begins with an empty one.
func (m *FleetMemory) restoreCompanions(companions []Companion) {
	for _, c := range companions {
		if keeper, ok := c.(MemoryKeeper); ok && m.Companions[keeper.Name()] != nil {
			_ = json.Unmarshal(m.Companions[keeper.Name()], keeper.Memory())
			delete(m.Companions, keeper.Name())
		}
	}
}

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
