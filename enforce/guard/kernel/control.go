package kernel

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// control is Control as the program reads it. It is one element of a hash map, which the
// kernel replaces as a whole: the program never sees half of a change.
type control struct {
	Deadline uint64 // CLOCK_BOOTTIME, ns
	Mode     uint32
	FirstUID uint32
}

// SetControl sets mode, lease and first uid, from now on and all at once. ErrRemoved means
// that nothing is guarded any more.
func (g *Guard) SetControl(c guard.Control) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !c.Mode.Valid() || c.FirstUID == 0 {
		return fmt.Errorf("set the guard's control: %s, uids from %d", c.Mode, c.FirstUID)
	}
	if err := g.attached(); err != nil {
		return err
	}
	now, err := proc.SinceBoot()
	if err != nil {
		return err
	}
	v := control{Deadline: uint64(now + max(c.Lease, 0)), Mode: uint32(c.Mode), FirstUID: uint32(c.FirstUID)}
	if err := g.maps.control.Put(uint32(0), &v); err != nil {
		return fmt.Errorf("set the guard's control: %w", err)
	}
	return nil
}

// readControl is what the guard does now; a guard for which none was ever set is off.
func (m *maps) readControl() (guard.Control, error) {
	var v control
	switch err := m.control.Lookup(uint32(0), &v); {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return guard.Control{}, nil
	case err != nil:
		return guard.Control{}, fmt.Errorf("read the guard's control: %w", err)
	}
	now, err := proc.SinceBoot()
	if err != nil {
		return guard.Control{}, err
	}
	left := max(time.Duration(v.Deadline)-now, 0)
	return guard.Control{Mode: guard.Mode(v.Mode), Lease: left, FirstUID: snapshot.UID(v.FirstUID)}, nil
}
