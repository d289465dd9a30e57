package guard

import (
	"context"
	"errors"
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
	// tick is how often a Keeper looks whether it missed a change, and renews the lease.
	tick = time.Second
	// lookEvery is how often the state files are read without a change: processes end, and
	// with them environments.
	lookEvery = 5 * time.Second
	// listEvery is how often the devices are listed; every tick until there are some.
	listEvery = 30 * time.Second
)

// lockedKeeper is a Keeper that holds the lock. One goroutine runs its methods.
type lockedKeeper struct {
	*Keeper
	watch   *stateWatch
	learned chan func() // what the workers found
	glances *worker
	looks   *worker
	lists   *worker
	names   *worker // of exempt users
	denials *denialWriter

	began       snapshot.StartTime // of this process; 0 if unknown
	order       Order              // the last order; its mode is off if there is none
	veto        bool
	loaded      *loaded // the guard in the kernel; nil while it is off
	failedAt    time.Time
	view        view
	versions    disk.Versions
	lookedAt    time.Time
	listedAt    time.Time
	resolvedAt  time.Time
	wantedUsers atomic.Pointer[[]snapshot.Username]

	problems problems
	present  present
	written  Status
	removed  bool // whatever an earlier Keeper left in the kernel
}

func newSession(k *Keeper) *lockedKeeper {
	return &lockedKeeper{
		Keeper: k, learned: make(chan func()), problems: problems{log: k.Log, now: map[string]string{}},
	}
}

func (s *lockedKeeper) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	s.begin(ctx)
	defer func() {
		cancel()
		s.release()
		s.glances.wait()
		s.looks.wait()
		s.denials.writing.Wait() // the denials of the last moment are written
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

// begin starts what runs next to the session.
func (s *lockedKeeper) begin(ctx context.Context) {
	var err error
	s.watch, err = newStateWatch(OrderFile, filepath.Base(s.Veto), state.Envs.String(), state.Devices.String())
	if err != nil {
		s.problems.set("inotify", "changes are noticed only once a second: "+err.Error())
	}
	go s.watch.run(ctx)
	s.glances = startWorker(ctx, s.learned, func(context.Context) func() {
		e := s.glance()
		return func() { s.view.glanced(e) }
	})
	s.looks = startWorker(ctx, s.learned, func(ctx context.Context) func() {
		e := s.look(ctx)
		return func() {
			s.lookedAt = time.Now()
			s.view.looked(e, s.loaded.allowed())
			s.problems.set("state", s.view.problem())
		}
	})
	s.lists = startWorker(ctx, s.learned, func(context.Context) func() {
		devices, err := s.Devices()
		return func() { s.listed(devices, err) }
	})
	s.names = startWorker(ctx, s.learned, func(ctx context.Context) func() {
		e := s.resolve(ctx, *s.wantedUsers.Load())
		return func() { s.resolved(e) }
	})
	s.denials = startDenialWriter(ctx, s.Keeper)
	if self, err := (proc.FS{}).Stat(snapshot.PID(os.Getpid())); err == nil {
		s.began = self.Start
	}
	s.follow()
	s.readOrder()
}

// follow watches the files that matter, where they are now. Where that is not known, the next
// call finds out.
func (s *lockedKeeper) follow() {
	place, _, err := s.Place()
	if err != nil {
		return
	}
	s.watch.follow(s.RunDir, filepath.Dir(s.Veto), place)
}

// request starts to read the state files, unless the guard is to be off.
func (s *lockedKeeper) request() {
	if s.order.Mode == Off {
		return
	}
	s.glances.request()
	s.looks.request()
}

// again looks at what may have changed without an event of inotify.
func (s *lockedKeeper) again() {
	s.follow()
	if s.order.Mode == Off {
		return
	}
	if place, _, err := s.Place(); err != nil {
		s.request() // which says why
	} else if now := disk.VersionsIn(place); now != s.versions {
		s.versions = now
		s.request()
	}
	if time.Since(s.lookedAt) >= lookEvery {
		s.looks.request()
	}
	if !s.view.knowsDevices() || time.Since(s.listedAt) >= listEvery {
		s.lists.request()
	}
}

// readOrder reads the order and the veto.
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
			s.Log.Info().Stringer("mode", given.Mode).Dur("lease", given.Lease).Str("by", given.By).
				Msg("order for the guard")
		}
		s.order = given
	}
	s.problems.set("order", "")
}

// exists says whether there is a file, or may be: a veto that can't be read is one.
func exists(path string) bool {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR)
}
