// Package container finds out what the containers of GPU processes are, and who started them: from the kernel, from
// records of root's hook, and from root's container engines; never from the container itself.
//
//	source := &container.Lookup{Engines: container.Engines{}, Run: "/run/genv", Now: time.Now}
//	infos := source.Look(ctx, members) // one for each member, nil for what isn't a container of root's
//
// It is for root only. Answers hold while a container's first process lives, so that a look without new processes is
// free. A slow engine delays one look, and then isn't asked for a while.
//
// Engines asks Docker and Podman by their API on root's socket, never on a user's, which could answer anything. Of
// other engines' containers only the existence is known. Except for Stop it only reads.
//
// A Record is what root's hook knows about a started container: its environment, and its user if proved, in a file
// <run>/containers/ID.json that only root can write and everybody may read. Each start replaces it:
//
//	record := container.Record{ID: id, EID: eid, UID: &uid, Proof: container.ProofToken, StartedAt: now}
//	err := container.WriteRecord("/run/genv", record)
//	r, err := container.ReadRecord("/run/genv", id)
package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Inspector knows containers, with the errors of Engines.
type Inspector interface {
	Inspect(ctx context.Context, place proc.Cgroup) (Details, error)
	Stop(ctx context.Context, place proc.Cgroup, grace time.Duration) error
}

// Lookup finds out about containers. Set its exported fields before use; it is safe for concurrent use.
type Lookup struct {
	Engines Inspector
	Run     string  // root's run folder with the hook's records
	Proc    proc.FS // the zero FS is /proc
	// Wait limits asking engines in one look, and then reading records; 0 for 250 ms.
	Wait time.Duration
	Now  func() time.Time

	mu          sync.Mutex
	known       map[proc.Cgroup]*knownContainer
	silentUntil time.Time // engines are not asked until then
}

const (
	silence     = 30 * time.Second // without questions after an engine didn't answer in time
	maxParallel = 8                // questions to engines at the same time
)

// Look returns the containers of processes in order: nil unless root's or rootless. It takes at most twice Wait; what
// it can't find out is Unknown, and the next look continues.
func (s *Lookup) Look(ctx context.Context, members []ContainedProcess) []*snapshot.ContainerInfo {
	now := s.Now()
	wanted, entries := s.recall(members, now)
	s.ask(ctx, wanted, entries, now)
	infos := make([]*snapshot.ContainerInfo, len(members))
	for i := range members {
		infos[i] = members[i].info(entries[members[i].Place])
	}
	return infos
}

// ask stores what it finds out. Users' cgroups come last, to take no time from root's.
func (s *Lookup) ask(
	ctx context.Context, wanted map[proc.Cgroup]bool, entries map[proc.Cgroup]*knownContainer, now time.Time,
) {
	if len(wanted) == 0 {
		return
	}
	s.mu.Lock()
	silent := now.Before(s.silentUntil)
	s.mu.Unlock()
	wait := cmp.Or(s.Wait, 250*time.Millisecond)
	reading, cancelReading := context.WithTimeout(ctx, 2*wait)
	defer cancelReading()
	asking, cancel := context.WithTimeout(reading, wait)
	defer cancel()
	if silent {
		cancel()
	}
	found := make(map[proc.Cgroup]*knownContainer, len(wanted))
	inTime := s.askAll(asking, reading, wanted, false, found)
	late := !silent && ctx.Err() == nil && asking.Err() != nil && inTime == 0
	s.askAll(asking, reading, wanted, true, found)
	s.update(wanted, found, entries, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if late {
		s.silentUntil = now.Add(silence)
	}
	s.keep(wanted, entries, now)
}

// askAll asks about the containers in cgroups of users, or about all others: engines until asking ends, and records
// until reading ends.
func (s *Lookup) askAll(asking, reading context.Context, wanted map[proc.Cgroup]bool, ofUsers bool,
	found map[proc.Cgroup]*knownContainer,
) (inTime int) {
	var group errgroup.Group
	group.SetLimit(maxParallel)
	var mu sync.Mutex
	for place, ofUser := range wanted {
		if ofUser != ofUsers {
			continue
		}
		group.Go(func() error {
			if reading.Err() != nil {
				return nil
			}
			e := s.find(asking, place)
			mu.Lock()
			defer mu.Unlock()
			if found[place] = e; asking.Err() == nil && !e.info.Unknown {
				inTime++
			}
			return nil
		})
	}
	_ = group.Wait() // none returns an error
	return inTime
}

func (s *Lookup) find(ctx context.Context, place proc.Cgroup) *knownContainer {
	e := &knownContainer{found: true, info: snapshot.ContainerInfo{Runtime: place.Runtime}}
	if place.Runtime == proc.LXC || place.Runtime == proc.Nspawn { // the cgroup shows the name
		e.info.Name = place.ID
		return e
	}
	details, err := s.Engines.Inspect(ctx, place)
	if errors.Is(err, ErrNotFound) {
		return &knownContainer{}
	}
	e.info.Unknown, e.late = err != nil, err != nil && ctx.Err() != nil
	e.info.Name, e.info.Image, e.info.EID = details.Name, details.Image, details.EID
	e.info.Labels, e.info.LabelsCut = snapshot.BoundedLabels(details.Labels)
	if start, first, runs := s.first(details.Init); runs {
		e.init, e.start, e.path = details.Init, start, first.Path
	}
	s.readRecord(e, place.ID)
	return e
}

// first returns a process's start and cgroup; runs is false if it has ended.
func (s *Lookup) first(pid snapshot.PID) (start snapshot.StartTime, place proc.Cgroup, runs bool) {
	h, err := s.Proc.Open(pid) // 0 is no process
	if err != nil {
		return 0, place, false
	}
	defer h.Close()
	stat, err := h.Stat()
	if err != nil || stat.Gone() {
		return 0, place, false
	}
	return stat.Start, h.Place(), true
}

// readRecord adds the record of this run of the container, not of an earlier one.
func (s *Lookup) readRecord(e *knownContainer, id string) {
	r, err := ReadRecord(s.Run, id)
	if err != nil {
		return
	}
	start, place, runs := s.first(r.PID)
	switch {
	case !runs, start != r.Start, place.ID != id:
		return
	case e.init != 0 && e.init != r.PID: // 0: the engine doesn't say
		return
	}
	e.info.EID = cmp.Or(r.EID, e.info.EID)
	if r.UID != nil {
		e.info.UID, e.info.Proof = r.UID, snapshot.ProofRecord
	}
}

// Running is a running container.
type Running struct {
	place proc.Cgroup
	Text  string // its name, safe to show, as in "container web (pytorch:24.10)"
}

// ErrNotInit means that a process is not, or no longer, the first one of a container of root's.
var ErrNotInit = errors.New("it is not the first process of a container")

// Init returns the container whose first process this is now. The error wraps ErrNotInit, or is of Inspect or package
// proc.
func (s *Lookup) Init(ctx context.Context, pid snapshot.PID) (Running, error) {
	const askInit = 5 * time.Second // to ask an engine about a container to stop
	h, err := s.Proc.Open(pid)
	if err != nil {
		return Running{}, err
	}
	defer h.Close()
	uid, err := h.RealUID()
	if err != nil {
		return Running{}, err
	}
	_, rootless := h.OwnerOfUID(uid, s.Proc.UserNamespace())
	m := ContainedProcess{PID: pid, Place: h.Container(), Rootless: rootless}
	if !m.inspectable() {
		return Running{}, ErrNotInit
	}
	ctx, cancel := context.WithTimeout(ctx, askInit)
	defer cancel()
	details, err := s.Engines.Inspect(ctx, m.Place)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && details.Init != pid:
		return Running{}, ErrNotInit
	case err != nil:
		return Running{}, err
	}
	process := snapshot.Process{Container: m.Place.ID, ContainerInfo: &snapshot.ContainerInfo{
		Name: details.Name, Image: details.Image,
	}}
	return Running{place: m.Place, Text: process.ContainerName()}, nil
}

// Stop waits until the engine has stopped a container. The caller makes sure that Init's process is still its first
// one. The error wraps one of Engines.Stop.
func (s *Lookup) Stop(ctx context.Context, r Running, grace time.Duration) error {
	if err := s.Engines.Stop(ctx, r.place, grace); err != nil {
		return fmt.Errorf("stop %s: %w", r.Text, err)
	}
	return nil
}
