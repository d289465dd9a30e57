package kernel

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard/mode"
	"github.com/seed-3119e985/genv/snapshot"
)

// DefaultFirstUID is the first uid of ordinary users on common distributions.
const DefaultFirstUID snapshot.UID = 1000

// Control is what the guard does, and for how long.
type Control struct {
	Mode mode.Mode
	// Lease is how long from now the guard acts. Then it lets everything through, until
	// the next SetControl. 0 ends it now.
	Lease time.Duration
	// FirstUID is the first uid that is guarded; users below it, and root, are never
	// denied. 0 is DefaultFirstUID.
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
	if !c.Mode.Valid() {
		return fmt.Errorf("set the guard's control: %s", c.Mode)
	}
	if c.FirstUID == 0 {
		c.FirstUID = DefaultFirstUID
	}
	if err := g.attached(); err != nil {
		return err
	}
	now, err := bootTime()
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
	now, err := bootTime()
	if err != nil {
		return Control{}, err
	}
	left := max(time.Duration(v.Deadline)-now, 0)
	return Control{Mode: mode.Mode(v.Mode), Lease: left, FirstUID: snapshot.UID(v.FirstUID)}, nil
}

// bootTime is the time since boot, suspend included: the clock of the lease.
func bootTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, fmt.Errorf("read the time since boot: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
