package guard

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// maxLease is the longest lease that the kernel gets. An order may hold for longer, but
	// if its Keeper dies, the guard stays as it was, and that may be wrong soon.
	maxLease = time.Minute
	// openEvery is how often it is tried to attach a guard that could not be attached.
	openEvery = 10 * time.Second
)

// present is what the guard does at this moment, for its status.
type present struct {
	mode   Mode
	reason string // why it is off, or less than was ordered
}

// step does what the order, the state files and the kernel call for at this moment.
func (s *lockedKeeper) step(ctx context.Context) {
	now, err := s.now()
	if err != nil {
		s.problems.set("clock", err.Error())
		return // the lease in the kernel ends by itself
	}
	s.problems.set("clock", "")
	if off := s.offReason(now); off != "" {
		s.turnOff(off)
	} else {
		s.keep(ctx, now)
	}
	s.publish(now)
}

func (s *lockedKeeper) now() (At, error) {
	if s.Clock != nil {
		return s.Clock()
	}
	return Now()
}

// offReason is why the guard has to be off, or empty.
func (s *lockedKeeper) offReason(now At) string {
	switch {
	case s.veto:
		return fmt.Sprintf("%s exists: the guard stays off as long as it does", s.Veto)
	case s.order.ID == "":
		return "it has no order"
	case s.order.Mode == Off:
		return "it was turned off by " + s.order.By
	case s.order.Left(now) == 0:
		return "the time of its last order has ended"
	}
	return ""
}

// turnOff ends the guard in the kernel at once. The first time, that is also one that an
// earlier Keeper left.
func (s *lockedKeeper) turnOff(reason string) {
	s.present = present{Off, reason}
	if s.loaded == nil && s.removed {
		return
	}
	s.release()
	s.view.reset()
	err := s.Remove()
	s.removed = err == nil
	if err != nil {
		s.problems.set("kernel", "the guard can't be removed: "+err.Error())
		return
	}
	s.problems.forget()
	s.Log.Info().Str("reason", reason).Msg("guard off")
}

// keep makes the kernel do what was ordered.
func (s *lockedKeeper) keep(ctx context.Context, now At) {
	s.askForUsers()
	if s.loaded == nil && !s.start(ctx) {
		return
	}
	plan, ok := s.view.plan(&s.order)
	if ok {
		if s.failed(s.loaded.write(plan)) {
			return
		}
	} else if s.loaded.left == nil { // nothing is known, so nothing is denied
		s.present = present{Off, "it waits for the state files and the list of GPUs"}
		return
	}
	s.renew(now)
}

// start opens the guard, and starts to read all that a plan needs.
func (s *lockedKeeper) start(ctx context.Context) bool {
	if time.Since(s.failedAt) < openEvery {
		return false
	}
	g, err := s.open(ctx)
	if err != nil {
		s.failedAt = time.Now()
		s.present = present{Off, "the guard can't be attached"}
		s.problems.set("kernel", err.Error())
		return false
	}
	s.problems.set("kernel", "")
	s.loaded, s.removed = g, false
	if g.unpinned {
		s.problems.set("pins", "without a bpffs the guard can't be pinned: it ends at once with its process, and is "+
			"off for a moment when another one takes over. Mount one: mount -t bpf bpf /sys/fs/bpf")
	}
	if g.left != nil {
		s.view.tookOver(g.left)
		s.Log.Info().Msg("took over the guard of another process")
	}
	s.glances.request()
	s.looks.request()
	s.lists.request()
	return true
}

// renew sets mode and lease in the kernel.
func (s *lockedKeeper) renew(now At) {
	m, reason := s.order.Mode, ""
	unknown := s.view.knowsUsers(&s.order)
	switch {
	case m != Enforce:
	case s.loaded.full:
		m, reason = Watch, "more users may open GPUs than the kernel has room for"
	case unknown != nil:
		m, reason = Watch, unknown.Error()
	}
	c := Control{Mode: m, Lease: min(s.order.Left(now), maxLease), FirstUID: s.order.First()}
	if s.failed(s.loaded.renew(c, now.Time)) {
		return
	}
	if s.present.mode != m || s.present.reason != reason {
		s.Log.Info().Stringer("mode", m).Int("devices", s.loaded.plan.Guarded.Len()).
			Int("users", len(s.loaded.plan.Allowed)).
			Str("reason", reason).Msg("guard on")
	}
	s.present = present{m, reason}
}

// failed handles an error of the kernel.
func (s *lockedKeeper) failed(err error) bool {
	if err == nil {
		return false
	}
	s.release()
	if errors.Is(err, ErrRemoved) {
		s.wasRemoved()
		return true
	}
	s.failedAt = time.Now()
	s.present = present{Off, "the guard in the kernel failed"}
	s.problems.set("kernel", err.Error())
	return true
}

// wasRemoved follows the removal of the guard. By hand, that is the same as an order to turn it
// off; it may also be a part of a veto or of an order that this session doesn't know yet.
func (s *lockedKeeper) wasRemoved() {
	s.readOrder()
	now, err := s.now()
	if err == nil && s.offReason(now) == "" {
		following := s.order.ID
		s.order, _, err = OfferOrder(s.RunDir, Order{Mode: Off, By: "removal of its pins by hand"}, "", now,
			func(g Order, _ error) bool {
				return g.ID == following
			})
		s.Log.Warn().Msg("the guard was removed by hand: off until the next order on this host")
	}
	if err != nil {
		s.order.Mode = Off
		s.problems.set("order", err.Error())
	}
	if off := s.offReason(now); off != "" {
		s.turnOff(off)
	}
}
