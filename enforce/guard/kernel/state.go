package kernel

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/seed-3119e985/genv/enforce/guard"
)

// State reads it from the kernel. ErrRemoved means that there is no guard any more.
func (g *Guard) State() (guard.KernelState, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.attached(); err != nil {
		return guard.KernelState{}, err
	}
	s, err := g.maps.state()
	if err != nil {
		return guard.KernelState{}, err
	}
	s.Dir, s.Cgroup, s.CgroupRoot, s.PIDs = g.dir, g.cgroup.path, g.cgroup.id == rootID, g.pids
	return s, nil
}

// Inspect reads what is pinned and changes nothing: for a process that only looks. Its
// state says neither the cgroup's folder nor PIDs. ErrRemoved means that no guard is pinned.
func Inspect(dir string) (guard.KernelState, error) {
	if dir == "" {
		dir = DefaultDir
	}
	l, err := pinnedLink(linkPin(dir))
	if err != nil {
		return guard.KernelState{}, inspectError(err)
	}
	defer l.Close()
	facts, err := l.facts()
	switch {
	case err != nil:
		return guard.KernelState{}, err
	case facts.cgroup == 0:
		return guard.KernelState{}, fmt.Errorf("%w: it is pinned, but its cgroup is gone", guard.ErrRemoved)
	}
	m, err := loadMaps(dir)
	if err != nil {
		return guard.KernelState{}, inspectError(err)
	}
	defer m.close()
	s, err := m.state()
	s.Dir, s.CgroupRoot = dir, facts.cgroup == rootID
	return s, err
}

func (m *maps) state() (s guard.KernelState, err error) {
	if s.Control, err = m.readControl(); err != nil {
		return guard.KernelState{}, err
	}
	if s.Guarded, s.Watched, err = m.readMinors(); err != nil {
		return guard.KernelState{}, err
	}
	if s.Allowed, err = m.readAllowed(); err != nil {
		return guard.KernelState{}, err
	}
	if err := m.lost.Lookup(uint32(0), &s.Lost); err != nil {
		return guard.KernelState{}, fmt.Errorf("read how many events were lost: %w", err)
	}
	return s, nil
}

// inspectError says whether there is no guard, or whether it can't be read.
func inspectError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w, or never was there: %w", guard.ErrRemoved, err)
	}
	return classify("read the pinned guard", err)
}
