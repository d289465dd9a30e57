package container

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/cgroup"
	"github.com/seed-3119e985/genv/snapshot/container/engine"
	"github.com/seed-3119e985/genv/snapshot/container/record"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Engines know containers; engine.Engines are those of this machine.
type Engines interface {
	// Inspect asks until ctx ends, and then reads records. Its errors are those of package
	// engine.
	Inspect(ctx context.Context, place cgroup.Place) (engine.Details, error)
}

// Source finds out about containers. Its exported fields are set before its first use; it
// is safe for concurrent use.
type Source struct {
	Engines Engines
	Stopper Stopper       // for Stop
	Run     string        // root's run folder, in which the hook's records are
	Proc    proc.FS       // the zero FS is /proc
	Wait    time.Duration // for how long one look asks engines at most; 0 for 250 ms
	Now     func() time.Time

	mu    sync.Mutex
	known map[cgroup.Place]entry
	// silentUntil is until when engines are not asked, since one didn't answer in time.
	silentUntil time.Time
}

// entry is what is known about a container.
type entry struct {
	info snapshot.ContainerInfo
	path string // of its cgroup; empty if that isn't known
	// found says that it exists, or may exist: see info.Unknown.
	found bool
	init  snapshot.PID // its first process; 0 if that isn't known
	start snapshot.StartTime
	at    time.Time
}

const (
	defaultWait = 250 * time.Millisecond
	// silence is for how long engines are left alone after one didn't answer in time.
	silence = 30 * time.Second
	// maxAge is when an answer is asked for again: a container can be given another name.
	maxAge = 10 * time.Minute
	// maxAgeWithoutInit is the same for an answer that doesn't name the first process of a
	// container: without it, a container that has taken the place of this one isn't noticed.
	maxAgeWithoutInit = 30 * time.Second
	// maxParallel is how many containers engines are asked about at the same time.
	maxParallel = 8
)

// Look finds out about the containers of processes, in their order. It is nil for a
// process in no container of root's, except for a rootless one.
func (s *Source) Look(ctx context.Context, members []Member) []*snapshot.ContainerInfo {
	now := s.now()
	wanted := map[cgroup.Place]Member{}
	entries := map[cgroup.Place]entry{}
	for _, m := range members {
		if _, seen := entries[m.Place]; seen || !m.inspectable() {
			continue
		}
		e, known := s.valid(&m, now)
		entries[m.Place] = e
		if !known {
			wanted[m.Place] = m
		}
	}
	s.ask(ctx, wanted, entries, now)
	infos := make([]*snapshot.ContainerInfo, len(members))
	for i, m := range members {
		infos[i] = m.info(entries[m.Place])
	}
	return infos
}

func (s *Source) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

// valid is what is known about the container of a process that runs, if it is still the
// same container.
func (s *Source) valid(m *Member, now time.Time) (entry, bool) {
	s.mu.Lock()
	e, known := s.known[m.Place]
	s.mu.Unlock()
	age := now.Sub(e.at)
	switch {
	case !known, age < 0, age > maxAge:
		return e, false
	case e.init == 0:
		return e, age < maxAgeWithoutInit
	case e.init == m.PID && m.Start != 0: // it was just read
		return e, e.start == m.Start
	case slices.Contains(m.Ancestors, proc.Ancestor{PID: e.init, Start: e.start}):
		return e, true
	}
	return e, s.runs(&e)
}

// runs says whether the first process of a container still runs.
func (s *Source) runs(e *entry) bool {
	if e.init == 0 {
		return false
	}
	stat, err := s.Proc.Stat(e.init)
	return err == nil && stat.Start == e.start && !stat.Gone()
}

// ask finds out about containers, and keeps that. The cgroups of users come last, so that
// they take no time from root's containers.
func (s *Source) ask(ctx context.Context, wanted map[cgroup.Place]Member, entries map[cgroup.Place]entry, now time.Time) {
	if len(wanted) == 0 {
		return
	}
	s.mu.Lock()
	silent := now.Before(s.silentUntil)
	s.mu.Unlock()
	asking, cancel := context.WithTimeout(ctx, cmp.Or(s.Wait, defaultWait))
	defer cancel()
	if silent {
		cancel()
	}
	s.askAll(asking, wanted, false, entries, now)
	late := !silent && ctx.Err() == nil && asking.Err() != nil
	s.askAll(asking, wanted, true, entries, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if late {
		s.silentUntil = now.Add(silence)
	}
	s.keep(wanted, entries, now)
}

// askAll finds out about the containers that are, or are not, in cgroups of users.
func (s *Source) askAll(ctx context.Context, wanted map[cgroup.Place]Member, ofUsers bool, entries map[cgroup.Place]entry, now time.Time) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(maxParallel)
	for place, m := range wanted {
		if m.ofUser() != ofUsers {
			continue
		}
		group.Go(func() error {
			found := s.find(ctx, place)
			mu.Lock()
			defer mu.Unlock()
			if before := entries[place]; found.info.Unknown && s.runs(&before) { // the earlier answer is still about it
				found = before
			}
			found.at = now
			entries[place] = found
			return nil
		})
	}
	_ = group.Wait() // none returns an error
}

// keep keeps new entries, and forgets containers that have ended.
func (s *Source) keep(wanted map[cgroup.Place]Member, entries map[cgroup.Place]entry, now time.Time) {
	if s.known == nil {
		s.known = make(map[cgroup.Place]entry)
	}
	for place, e := range s.known {
		if age := now.Sub(e.at); age < 0 || age > 2*maxAge || e.init == 0 && age > maxAgeWithoutInit {
			delete(s.known, place)
		}
	}
	for place := range wanted {
		s.known[place] = entries[place]
	}
}

// find finds out about one container.
func (s *Source) find(ctx context.Context, place cgroup.Place) entry {
	e := entry{found: true, info: snapshot.ContainerInfo{Runtime: place.Runtime}}
	if place.Runtime == cgroup.LXC || place.Runtime == cgroup.Nspawn { // what the cgroup shows is the name
		e.info.Name = place.ID
		return e
	}
	details, err := s.Engines.Inspect(ctx, place)
	if errors.Is(err, engine.ErrNotFound) {
		return entry{}
	}
	e.info.Unknown = err != nil
	e.info.Name, e.info.Image, e.info.EID = details.Name, details.Image, details.EID
	e.info.Labels, e.info.LabelsCut = snapshot.BoundedLabels(details.Labels)
	if first, runs := s.first(details.Init); runs {
		e.init, e.start, e.path = details.Init, first.start, first.place.Path
	}
	s.readRecord(&e, place.ID)
	return e
}

// process is what the kernel shows of the first process of a container.
type process struct {
	start snapshot.StartTime
	place cgroup.Place
}

// first reads a process; false if it doesn't run.
func (s *Source) first(pid snapshot.PID) (process, bool) {
	if pid <= 0 {
		return process{}, false
	}
	h, err := s.Proc.Open(pid)
	if err != nil {
		return process{}, false
	}
	defer func() { _ = h.Close() }() // it was only read
	stat, err := h.Stat()
	if err != nil || stat.Gone() {
		return process{}, false
	}
	return process{stat.Start, h.Container(proc.Credentials{})}, true
}

// readRecord adds what root's hook has recorded when this first process of the container
// was made. A record of an earlier start of the container proves nothing.
func (s *Source) readRecord(e *entry, id string) {
	r, err := record.Read(s.Run, id)
	if err != nil || r.Proof == record.Rootless { // root's engines have no such container
		return
	}
	recorded, runs := s.first(r.PID)
	switch {
	case !runs, recorded.start != r.Start, recorded.place.ID != id:
		return
	case e.init != 0 && e.init != r.PID: // 0: the engine doesn't say
		return
	}
	e.info.EID = cmp.Or(r.EID, e.info.EID)
	if r.UID != nil {
		e.info.UID, e.info.Proof = r.UID, snapshot.ProofRecord
	}
}
