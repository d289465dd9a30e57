package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
)

// MaxUsers is how many users the guard has room for.
const MaxUsers = 65536

// SetAllowed says which minors each user may open; users who are not in the map may open
// no guarded one. Only what differs from before is written, and permissions are given
// before others are taken away. With ErrFull, some users of the map have no permission;
// the rest was set.
func (g *Guard) SetAllowed(allowed map[snapshot.UID]guard.Minors) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	left, err := g.give(allowed)
	if err != nil {
		return err
	}
	for uid := range g.allowed {
		if _, stays := allowed[uid]; stays {
			continue
		}
		if err := g.maps.allowed.Delete(uint32(uid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("take uid %d's permission away: %w", uid, err)
		}
		delete(g.allowed, uid)
	}
	if left == 0 {
		return nil
	}
	// Those who were taken out have left room.
	if left, err = g.give(allowed); err != nil || left == 0 {
		return err
	}
	return fmt.Errorf("%w: %d of %d have no permission", guard.ErrFull, left, len(allowed))
}

// give writes the permissions that differ from what is written already, and says how many
// users there was no room for.
func (g *Guard) give(allowed map[snapshot.UID]guard.Minors) (left int, err error) {
	for uid, minors := range allowed {
		if now, ok := g.allowed[uid]; ok && now == minors {
			continue
		}
		switch err := g.maps.allowed.Put(uint32(uid), &minors); {
		case errors.Is(err, unix.E2BIG):
			left++
		case err != nil:
			return left, fmt.Errorf("let uid %d open its GPUs: %w", uid, err)
		default:
			g.allowed[uid] = minors
		}
	}
	return left, nil
}

// readAllowed is what is written in the kernel.
func (m *maps) readAllowed() (map[snapshot.UID]guard.Minors, error) {
	allowed := map[snapshot.UID]guard.Minors{}
	var (
		uid    uint32
		minors guard.Minors
	)
	for it := m.allowed.Iterate(); ; {
		if !it.Next(&uid, &minors) {
			if err := it.Err(); err != nil {
				return nil, fmt.Errorf("read who may open what: %w", err)
			}
			return allowed, nil
		}
		allowed[snapshot.UID(uid)] = minors
	}
}

// SetMinors says which devices are guarded. Allowed opens of these are events, too, in every mode as long as the
// lease lasts.
func (g *Guard) SetMinors(guarded guard.Minors) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for minor := range uint32(guard.LastGPU + 1) {
		var is uint32
		if guarded.Has(int(minor)) {
			is = 1
		}
		if err := g.maps.minors.Put(minor, is); err != nil {
			return fmt.Errorf("guard minor %d: %w", minor, err)
		}
	}
	return nil
}
