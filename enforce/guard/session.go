package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

const (
	tick = time.Second // how often a Keeper looks for missed changes, and renews the lease
	// lookEvery is for processes that end, and with them environments, without a change of the files.
	lookEvery = 5 * time.Second
	listEvery = 30 * time.Second // how often the devices are listed; every tick until there are some
)

// One goroutine runs the methods of a lockedKeeper.
type lockedKeeper struct {
	*Keeper
	watch   *stateWatch
	learned chan func() // the workers' results
	glances *worker
	looks   *worker
	lists   *worker
	names   *worker // of exempt users
	denials *denialWriter

	began       snapshot.StartTime // of this process; 0 if unknown
	order       Order              // the last one; its mode is off if there is none
	veto        bool
	loaded      *loaded // nil while the guard is off
	failedAt    time.Time
	view        view
	versions    disk.Versions
	lookedAt    time.Time
	listedAt    time.Time
	resolvedAt  time.Time
	wantedUsers atomic.Pointer[[]snapshot.Username]

	problems problems
	mode     Mode   // of the guard now
	reason   string // why it is off, or less than was ordered
	written  Status
	removed  bool // the guard that an earlier Keeper left
}

func (s *lockedKeeper) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	s.begin(ctx)
	defer func() {
		cancel()
		s.release()
		s.glances.wait()
		s.looks.wait()
		s.denials.end()
	}()
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for {
		s.step(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-s.watch.changed:
			s.readOrder()
			s.request()
		case learn := <-s.learned:
			learn()
		case <-ticks.C:
			s.readOrder()
			s.again()
		}
	}
}

func (s *lockedKeeper) begin(ctx context.Context) {
	var err error
	s.watch, err = newStateWatch(OrderFile, filepath.Base(s.Veto), state.Envs.String(), state.Devices.String())
	if err != nil {
		s.problems.set("inotify", "changes are noticed only once a second: "+err.Error())
	}
	go s.watch.run(ctx)
	s.glances = startWorker(ctx, s.learned, func(context.Context) func() {
		e := s.glance()
		return func() {
			if e.err == nil { // else a look finds out more
				s.view.glance = &e
			}
		}
	})
	s.looks = startWorker(ctx, s.learned, func(ctx context.Context) func() {
		e := s.look(ctx)
		return func() {
			s.lookedAt = time.Now()
			s.view.looked(e, s.loaded.allowed())
			problem := ""
			if s.view.doubt != "" {
				problem = "nothing is taken away from users until this is over: " + s.view.doubt
			}
			s.problems.set("state", problem)
		}
	})
	s.lists = startWorker(ctx, s.learned, func(context.Context) func() {
		devices, err := s.Devices()
		return func() { s.listed(devices, err) }
	})
	s.names = startWorker(ctx, s.learned, func(ctx context.Context) func() {
		e := s.resolve(ctx, *s.wantedUsers.Load())
		return func() {
			s.view.users, s.resolvedAt = e, time.Now()
			s.problems.set("users", e.missing)
		}
	})
	s.denials = startDenialWriter(ctx, s.Keeper)
	if self, err := (proc.FS{}).Stat(snapshot.PID(os.Getpid())); err == nil {
		s.began = self.Start
	}
	s.follow()
	s.readOrder()
}

// If the place is unknown now, the next call finds out.
func (s *lockedKeeper) follow() {
	if place, _, err := s.Place(); err == nil {
		s.watch.follow(s.RunDir, filepath.Dir(s.Veto), place)
	}
}

func (s *lockedKeeper) request() {
	if s.order.Mode == Off {
		return
	}
	s.glances.request()
	s.looks.request()
}

func (s *lockedKeeper) again() {
	s.follow()
	if s.order.Mode == Off {
		return
	}
	if place, _, err := s.Place(); err != nil {
		s.request() // reports the error
	} else if now := disk.VersionsIn(place); now != s.versions {
		s.versions = now
		s.request()
	}
	if time.Since(s.lookedAt) >= lookEvery {
		s.looks.request()
	}
	if len(s.view.devices) == 0 || time.Since(s.listedAt) >= listEvery {
		s.lists.request()
	}
}

func (s *lockedKeeper) readOrder() {
	s.veto = exists(s.Veto)
	given, err := ReadOrder(s.RunDir)
	switch {
	case errors.Is(err, ErrNoOrder):
		s.order = Order{}
	case err != nil: // the one before holds until its lease ends
		s.problems.set("order", "the order can't be read: "+err.Error())
		return
	default:
		if s.order.ID != given.ID || s.order.Mode != given.Mode {
			s.Log.Info().Stringer("mode", given.Mode).Dur("lease", given.Lease()).Str("by", given.By).
				Msg("order for the guard")
		}
		s.order = given
	}
	s.problems.set("order", "")
}

// A veto that can't be read is one.
func exists(path string) bool {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR)
}

const (
	maxLease  = time.Minute      // limits the kernel's lease: if its Keeper dies, the guard stays as it was
	openEvery = 10 * time.Second // how often attaching a guard is tried again
)

func (s *lockedKeeper) step(ctx context.Context) {
	now, err := s.Clock()
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

func (s *lockedKeeper) turnOff(reason string) {
	s.mode, s.reason = Off, reason
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

func (s *lockedKeeper) keep(ctx context.Context, now At) {
	s.askForUsers()
	if s.loaded == nil && !s.start(ctx) {
		return
	}
	switch plan, ok := s.view.plan(&s.order); {
	case ok && s.failed(s.loaded.write(plan)):
	case !ok && s.loaded.left == nil: // nothing is known, so nothing is denied
		s.mode, s.reason = Off, "it waits for the state files and the list of GPUs"
	default:
		s.renew(now)
	}
}

func (s *lockedKeeper) start(ctx context.Context) bool {
	if time.Since(s.failedAt) < openEvery {
		return false
	}
	g, err := s.open(ctx)
	if err != nil {
		s.failedAt = time.Now()
		s.mode, s.reason = Off, "the guard can't be attached"
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
		if s.view.look == nil || s.view.doubt != "" {
			s.view.kept = g.left
		}
		s.Log.Info().Msg("took over the guard of another process")
	}
	s.glances.request()
	s.looks.request()
	s.lists.request()
	return true
}

func (s *lockedKeeper) renew(now At) {
	m, reason := s.order.Mode, ""
	if unknown := s.view.knowsUsers(&s.order); m == Enforce && s.loaded.full {
		m, reason = Watch, "more users may open GPUs than the kernel has room for"
	} else if m == Enforce && unknown != nil {
		m, reason = Watch, unknown.Error()
	}
	c := Control{Mode: m, Lease: min(s.order.Left(now), maxLease), FirstUID: s.order.First()}
	if s.failed(s.loaded.renew(c, now.Time)) {
		return
	}
	if m != s.mode || reason != s.reason {
		s.mode, s.reason = m, reason
		s.Log.Info().Stringer("mode", m).Int("devices", s.loaded.plan.Guarded.Len()).
			Int("users", len(s.loaded.plan.Allowed)).Str("reason", reason).Msg("guard on")
	}
}

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
	s.mode, s.reason = Off, "the guard in the kernel failed"
	s.problems.set("kernel", err.Error())
	return true
}

// wasRemoved handles the guard's removal: by hand, which counts as an order to turn it off, or with a veto or order
// that this session doesn't know yet.
func (s *lockedKeeper) wasRemoved() {
	s.readOrder()
	now, err := s.Clock()
	if err == nil && s.offReason(now) == "" {
		following := s.order.ID
		s.order, _, err = OfferOrder(s.RunDir, Order{Mode: Off, By: "removal of its pins by hand"}, "", now,
			func(g Order, _ error) bool { return g.ID == following })
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
