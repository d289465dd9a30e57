package container

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

type knownContainer struct {
	info  snapshot.ContainerInfo
	path  string       // of its cgroup; empty if unknown
	found bool         // it exists, or may: see info.Unknown
	init  snapshot.PID // its first process; 0 if unknown
	start snapshot.StartTime
	at    time.Time // zero if there was no time to ask
	late  bool      // there was no time to ask
}

// When to ask again: a container may get another name.
const (
	maxAge            = time.Minute
	maxAgeWithoutInit = 30 * time.Second // without a first process, which shows that another container has its place
)

// recall returns what is known, and what to ask about: true if a user may have made the cgroup.
func (s *Lookup) recall(members []ContainedProcess, now time.Time) (
	wanted map[proc.Cgroup]bool, entries map[proc.Cgroup]*knownContainer,
) {
	wanted, entries = make(map[proc.Cgroup]bool), make(map[proc.Cgroup]*knownContainer, len(members))
	runs := map[proc.Cgroup]bool{} // whether first processes run
	for i := range members {
		m := &members[i]
		if _, asked := wanted[m.Place]; asked || !m.inspectable() {
			continue
		}
		s.mu.Lock()
		e := s.known[m.Place]
		s.mu.Unlock()
		entries[m.Place] = e
		if e.isFresh(now) && (e.shows(m) || runs[m.Place]) {
			continue
		}
		if runs[m.Place] = e.isFresh(now) && s.runs(e); !runs[m.Place] {
			wanted[m.Place] = m.ofUser()
		}
	}
	return wanted, entries
}

func (e *knownContainer) isFresh(now time.Time) bool {
	if e == nil {
		return false
	}
	age, limit := now.Sub(e.at), maxAge
	if e.init == 0 {
		limit = maxAgeWithoutInit
	}
	return age >= 0 && age < limit
}

// shows says whether a process is in the entry's run. With `docker exec` it needn't be below the first process.
func (e *knownContainer) shows(m *ContainedProcess) bool {
	if e.init == 0 || e.init == m.PID && m.Start != 0 && e.start == m.Start {
		return true
	}
	return slices.Contains(m.Ancestors, proc.ID{PID: e.init, Start: e.start})
}

func (s *Lookup) runs(e *knownContainer) bool {
	if e.init == 0 {
		return false
	}
	stat, err := s.Proc.Stat(e.init)
	return err == nil && stat.Start == e.start && !stat.Gone()
}

// update puts found into entries. What is known stays known while the container runs.
func (s *Lookup) update(wanted map[proc.Cgroup]bool, found, entries map[proc.Cgroup]*knownContainer, now time.Time) {
	for place := range wanted {
		before, e := entries[place], found[place]
		less := e == nil || e.info.Unknown && (e.init == 0 || before != nil && !before.info.Unknown)
		still := before != nil && less && s.runs(before)
		switch {
		case e == nil && still:
			continue
		case e == nil:
			e = &knownContainer{found: true, info: snapshot.ContainerInfo{Runtime: place.Runtime, Unknown: true}}
		case still:
			e = new(*before)
			fallthrough
		default:
			if !e.late {
				e.at = now
			}
		}
		entries[place] = e
	}
}

// keep stores the answers, and forgets containers that have ended.
func (s *Lookup) keep(wanted map[proc.Cgroup]bool, entries map[proc.Cgroup]*knownContainer, now time.Time) {
	if s.known == nil {
		s.known = make(map[proc.Cgroup]*knownContainer)
	}
	for place, e := range s.known {
		if age := now.Sub(e.at); age < 0 || age > 2*maxAge || e.init == 0 && age > maxAgeWithoutInit {
			delete(s.known, place)
		}
	}
	for place := range wanted {
		if e := entries[place]; !e.at.IsZero() {
			s.known[place] = e
		}
	}
}

// ContainedProcess is a process in a container.
type ContainedProcess struct {
	PID      snapshot.PID
	Start    snapshot.StartTime // 0 if unknown
	Place    proc.Cgroup
	Rootless bool // it is in a user namespace that UID made
	UID      snapshot.UID

	Ancestors      []proc.ID // empty unless just read
	InnerNamespace bool      // in another PID namespace than the machine's
}

// inspectable says whether one of root's engines may know the container.
func (m *ContainedProcess) inspectable() bool {
	return m.Place.ID != "" && m.Place.ID != snapshot.UnnamedContainer && m.Place.Runtime != proc.Apptainer
}

// ofUser says that a user may have made the cgroup or the user namespace, but not who: in root's engine, one can put a
// container below another's slice, and be any uid in it.
func (m *ContainedProcess) ofUser() bool { return m.Rootless || m.Place.Delegated }

func (m *ContainedProcess) info(e *knownContainer) *snapshot.ContainerInfo {
	switch {
	case m.isIn(e):
		info := e.info
		info.Init = e.init != 0 && e.init == m.PID
		if m.Place.Nested { // the user who started the outer one may not have started this one
			info.UID, info.Proof = nil, ""
		}
		return &info
	case m.Rootless && m.Place.ID != "":
		return &snapshot.ContainerInfo{Runtime: m.Place.Runtime, UID: new(m.UID), Proof: snapshot.ProofRootless}
	}
	return nil
}

// isIn says whether the process is in this container, not just in a cgroup with its name.
func (m *ContainedProcess) isIn(e *knownContainer) bool {
	switch {
	case !m.inspectable(), e == nil, !e.found:
		return false
	case e.path != "":
		return e.path == m.Place.Path
	case m.ofUser():
		return false
	}
	return !e.info.Unknown || m.InnerNamespace
}
