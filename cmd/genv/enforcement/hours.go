package enforcement

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/usage"
	usagestore "github.com/seed-3119e985/genv/remote/usage/store"
)

// hoursTable keeps the GPU hours of caps during one run or term, in the background. Each minute it reads the hours of
// caps that are new here, and writes what was counted. Until they are read, hours are unknown.
type hoursTable struct {
	*loop
	place  string // a file, or a server's URL; empty for a run without a memory
	fleet  string // name on a server
	writes bool

	done   chan struct{} // closed after the last access; nil before the first one
	begun  time.Time     // of the last access
	found  map[string]enforce.Hours
	err    error
	failed bool                     // err was logged
	added  map[string]enforce.Hours // caps that include the table's hours; nil for none yet
}

const (
	hoursEvery  = time.Minute
	hoursWithin = 5 * time.Second        // limit of an access; a single cycle waits for it
	hoursSoon   = 200 * time.Millisecond // a run, a term or a reload waits so long: most accesses take less
	hoursAtEnd  = time.Second            // an ending run or term waits so long for each of two accesses
)

func (l *loop) keepHours() *hoursTable {
	h := &hoursTable{loop: l, fleet: l.options.UsageFleet}
	if l.store == nil {
		return h
	}
	if h.place = l.options.UsageURL; !usagestore.IsServer(h.place) {
		h.place = filepath.Join(l.folder.Path(), usagestore.HoursName)
	}
	h.writes = l.options.loops() && !l.options.DryRun && l.folder.Holds()
	h.expect()
	return h
}

// expect starts reading, because the policy may have new caps.
func (h *hoursTable) expect() {
	memory := &h.controller.Memory.Rules
	if h.place == "" {
		return
	}
	hours := make(map[string]enforce.Hours)
	for _, c := range h.options.Policy.Caps(h.program.Now()) {
		if c.Kind == enforce.CapHours {
			hours[c.ID] = enforce.Hours{Period: c.Period, Unread: true}
		}
	}
	maps.Copy(hours, memory.Hours)
	memory.Hours = hours
	if h.exchange(hoursSoon); !h.options.loops() {
		h.learn(hoursWithin)
	}
}

// exchange adds what was found, and begins another access in the background: after a minute, or at once if wait isn't
// 0. It creates a file only to write counted hours.
func (h *hoursTable) exchange(wait time.Duration) {
	if !h.learn(wait) {
		return
	}
	memory, now := &h.controller.Memory, h.program.Now()
	counted, former, since := memory.Rules.Hours, memory.FormerHours, now.Sub(h.begun)
	if h.place == "" || len(counted) == 0 || wait == 0 && since >= 0 && since < hoursEvery {
		return
	}
	h.begun, h.done = now, make(chan struct{})
	go func() {
		defer close(h.done)
		h.found, h.err = h.access(counted, former)
	}()
	h.learn(wait)
}

// access returns hours that the table or an earlier version kept, and that aren't added yet; nil if they can't be read.
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
	if errors.Is(err, usage.ErrDamaged) && h.writes { // the next access creates a new one
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

// sumOf adds found hours to counted ones, unless the counted period is later. A period never goes back.
func sumOf(counted, found map[string]enforce.Hours) map[string]enforce.Hours {
	all := make(map[string]enforce.Hours, len(counted))
	for id, hours := range counted {
		hours.Unread = false
		all[id] = hours
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

// learn adds what the last access found, and logs the first of consecutive failures. It returns false if the access
// isn't over in time.
func (h *hoursTable) learn(wait time.Duration) bool {
	if h.done != nil {
		select {
		case <-h.done:
		case <-time.After(max(wait, time.Millisecond)): // at 0, select could choose it although done is closed
			return false
		}
	}
	memory := &h.controller.Memory
	if h.found != nil {
		memory.Rules.Hours, h.found = sumOf(memory.Rules.Hours, h.found), nil
		h.added = memory.Rules.Hours
	}
	if h.err != nil && !h.failed {
		h.log.Warn().Err(h.err).Str("database", h.place).Msg("the GPU hours of caps can't be kept: hours that were not " +
			"written are lost at a restart, and while hours can't be read, their caps do nothing. It is tried again each " +
			"minute. Look why the database doesn't answer, or can't be written")
	}
	if h.failed = h.err != nil; !h.failed && h.writes && h.added != nil {
		memory.FormerHours = nil // the table has them
	}
	return true
}
