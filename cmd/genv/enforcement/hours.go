package enforcement

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/usage"
	usagestore "github.com/seed-3119e985/genv/remote/usage/store"
)

// hoursTable keeps the GPU hours of caps during one run or term, in the background: each minute it reads what the table
// has of caps that are new here, and writes what was counted. Until then they count from 0: less than was used.
type hoursTable struct {
	*loop
	place  string // a file, or the URL of a server; empty for a run without a memory, which keeps none
	fleet  string // on a server
	writes bool

	busy   sync.Mutex // held during an access, which begins in the loop and may end in the background
	begun  time.Time  // when the last one began
	found  map[string]enforce.Hours
	err    error
	failed bool                     // which was logged
	added  map[string]enforce.Hours // has the caps that count what the table had; nil before the first one does
}

const (
	hoursEvery  = time.Minute
	hoursWithin = 5 * time.Second // a run or term waits for an access when it begins, and at its end
)

func (l *loop) keepHours() *hoursTable {
	h, hours := &hoursTable{loop: l, fleet: l.options.UsageFleet}, make(map[string]enforce.Hours)
	if l.store == nil {
		return h
	}
	if h.place = l.options.UsageURL; !usagestore.IsServer(h.place) {
		h.place = filepath.Join(l.folder.Path(), usagestore.HoursName)
	}
	h.writes = l.options.loops() && !l.options.DryRun && l.folder.Holds()
	for _, c := range l.options.Policy.Caps(l.program.Now()) {
		if c.Kind == enforce.CapHours {
			hours[c.ID] = enforce.Hours{Period: c.Period}
		}
	}
	l.controller.Memory.Rules.Hours = hours
	h.exchange(true)
	return h
}

// exchange adds what was found, and begins another access: after a minute, in the background, or at once, and then it
// waits. A file is made when there is something to count.
func (h *hoursTable) exchange(wait bool) {
	if wait {
		h.busy.Lock()
	} else if !h.busy.TryLock() {
		return
	}
	h.learn()
	memory, now := &h.controller.Memory, h.program.Now()
	counted, former, since := memory.Rules.Hours, memory.FormerHours, now.Sub(h.begun)
	if h.place == "" || len(counted) == 0 || !wait && since >= 0 && since < hoursEvery {
		h.busy.Unlock()
		return
	}
	h.begun = now
	access := func() {
		h.found, h.err = h.access(counted, former)
		h.busy.Unlock()
	}
	if wait {
		access()
		h.learn()
	} else {
		go access()
	}
}

// access returns what the table has, or an earlier version kept, and isn't added yet; nil if it can't be read.
func (h *hoursTable) access(counted, former map[string]enforce.Hours) (found map[string]enforce.Hours, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), hoursWithin)
	defer cancel()
	open := usagestore.OpenToRead
	if h.writes {
		open = usagestore.Open
	}
	s, err := open(ctx, h.place, usagestore.Options{Fleet: h.fleet, In: time.Local})
	switch isMissing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, usage.ErrNone); {
	case err == nil:
		defer s.Close()
		found, _, err = s.Hours(ctx)
	case isMissing && !h.writes:
		found, err = make(map[string]enforce.Hours), nil
	}
	if errors.Is(err, usage.ErrDamaged) && h.writes { // the next access makes a new one
		err = errors.Join(err, usagestore.SetDamagedApart(h.place, err, h.begun, h.log))
	}
	if err != nil {
		return nil, err
	}
	for id := range counted {
		if former[id].Period.After(found[id].Period) {
			found[id] = former[id]
		}
		if _, isAdded := h.added[id]; isAdded {
			delete(found, id)
		}
	}
	if h.writes {
		err = s.SaveHours(ctx, sumOf(counted, found), h.begun)
	}
	return found, err
}

// sumOf adds what was found to what was counted, unless that is in a later period. A period never goes back.
func sumOf(counted, found map[string]enforce.Hours) map[string]enforce.Hours {
	all := maps.Clone(counted)
	for id, hours := range counted {
		if sum := found[id]; sum.Seconds != nil && !sum.Period.Before(hours.Period) {
			sum.Seconds = maps.Clone(sum.Seconds)
			for user, seconds := range hours.Seconds {
				sum.Seconds[user] += seconds
			}
			all[id] = sum
		}
	}
	return all
}

// learn adds what was found, once, and logs the first of several failures.
func (h *hoursTable) learn() {
	memory := &h.controller.Memory
	if h.found != nil {
		memory.Rules.Hours, h.found = sumOf(memory.Rules.Hours, h.found), nil
		h.added = memory.Rules.Hours
	}
	if h.err != nil && !h.failed {
		h.log.Warn().Err(h.err).Str("database", h.place).Msg("the GPU hours of caps can't be kept: hours that were not " +
			"written are lost at a restart, and those that can't be read don't count. It is tried again each minute. " +
			"Look why the database doesn't answer, or can't be written")
	}
	if h.failed = h.err != nil; !h.failed && h.writes && h.added != nil {
		memory.FormerHours = nil // the table has them
	}
}
