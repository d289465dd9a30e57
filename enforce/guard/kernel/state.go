package kernel

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/seed-3119e985/genv/snapshot"
)

// State is what the guard in the kernel does at this moment.
type State struct {
	Control           // Lease is what is left of it
	Dir        string // of the pins; empty if there are none
	Cgroup     string
	CgroupRoot bool // the cgroup is the root of the machine's hierarchy
	PIDs       bool // events say which process it was
	Guarded    Minors
	Watched    Minors
	Allowed    map[snapshot.UID]Minors
	// Lost is how many events there was no room for since the guard began.
	Lost uint64
}

// State reads it from the kernel. ErrRemoved means that there is no guard any more.
func (g *Guard) State() (State, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.attached(); err != nil {
		return State{}, err
	}
	s, err := g.maps.state()
	if err != nil {
		return State{}, err
	}
	s.Dir, s.Cgroup, s.CgroupRoot, s.PIDs = g.dir, g.cgroup.path, g.cgroup.id == rootID, g.pids
	return s, nil
}

// Inspect reads what is pinned and changes nothing: for a process that only looks. Its
// state says neither the cgroup's folder nor PIDs. ErrRemoved means that no guard is pinned.
func Inspect(dir string) (State, error) {
	if dir == "" {
		dir = DefaultDir
	}
	l, err := pinnedLink(linkPin(dir))
	if err != nil {
		return State{}, inspectError(err)
	}
	defer l.Close()
	facts, err := l.facts()
	switch {
	case err != nil:
		return State{}, err
	case facts.cgroup == 0:
		return State{}, fmt.Errorf("%w: it is pinned, but its cgroup is gone", ErrRemoved)
	}
	m, err := loadMaps(dir)
	if err != nil {
		return State{}, inspectError(err)
	}
	defer m.close()
	s, err := m.state()
	s.Dir, s.CgroupRoot = dir, facts.cgroup == rootID
	return s, err
}

func (m *maps) state() (s State, err error) {
	if s.Control, err = m.readControl(); err != nil {
		return State{}, err
	}
	if s.Guarded, s.Watched, err = m.readMinors(); err != nil {
		return State{}, err
	}
	if s.Allowed, err = m.readAllowed(); err != nil {
		return State{}, err
	}
	if err := m.lost.Lookup(uint32(0), &s.Lost); err != nil {
		return State{}, fmt.Errorf("read how many events were lost: %w", err)
	}
	return s, nil
}

// inspectError says whether there is no guard, or whether it can't be read.
func inspectError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w, or never was there: %w", ErrRemoved, err)
	}
	return classify("read the pinned guard", err)
}
