package kernel

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/seed-3119e985/genv/enforce/guard/mode"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Control is what the guard does, and for how long.
type Control struct {
	Mode mode.Mode
	// Lease is how long from now the guard acts. Then it lets everything through, until
	// the next SetControl. 0 ends it now.
	Lease time.Duration
	// FirstUID is the first uid that is guarded; users below it, and root, are never
	// denied. It is not 0.
	FirstUID snapshot.UID
}

// control is Control as the program reads it. It is one element of a hash map, which the
// kernel replaces as a whole: the program never sees half of a change.
type control struct {
	Deadline uint64 // CLOCK_BOOTTIME, ns
	Mode     uint32
	FirstUID uint32
}

// SetControl sets mode, lease and first uid, from now on and all at once. ErrRemoved means
// that nothing is guarded any more.
func (g *Guard) SetControl(c Control) error {
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
func (m *maps) readControl() (Control, error) {
	var v control
	switch err := m.control.Lookup(uint32(0), &v); {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return Control{}, nil
	case err != nil:
		return Control{}, fmt.Errorf("read the guard's control: %w", err)
	}
	now, err := proc.SinceBoot()
	if err != nil {
		return Control{}, err
	}
	left := max(time.Duration(v.Deadline)-now, 0)
	return Control{Mode: mode.Mode(v.Mode), Lease: left, FirstUID: snapshot.UID(v.FirstUID)}, nil
}
