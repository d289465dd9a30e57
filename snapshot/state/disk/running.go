package disk

import (
	"errors"
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// running is what /proc says about processes and kernels. Users can make that slow, so it isn't read under the lock: a
// transaction that needs more ends with errUnread, and begins again. What isn't read then is unknown.
type running struct {
	system   system.System
	readings int
	unread   bool // the transaction needs more

	wanted   map[snapshot.UID]bool
	users    map[snapshot.UID]bool // with processes in the list
	list     []system.RunningProcess
	complete bool // false where processes may be hidden
	// emptied are the environments that had no registered process before the last reading.
	emptied map[snapshot.EnvID]bool

	kernels map[system.Kernel]system.Liveness // nil before they were asked for
	asked   []system.Kernel
}

var errUnread = errors.New("processes or kernels have to be read")

const maxReadings = 3

// afterReading runs a transaction, and again after each reading that it needs.
func (s *Store) afterReading(transaction func(*running) error) error {
	r := &running{system: s.System, wanted: map[snapshot.UID]bool{}, emptied: map[snapshot.EnvID]bool{}}
	for {
		r.unread = false
		if err := transaction(r); !errors.Is(err, errUnread) {
			return err
		}
		r.read()
	}
}

// processes lists the living processes of some users. complete is false where some may be missing.
func (r *running) processes(users ...snapshot.UID) (list []system.RunningProcess, complete bool) {
	if !r.covers(users...) {
		for _, uid := range users {
			r.wanted[uid] = true
		}
		r.unread = r.readings < maxReadings
		return nil, false
	}
	return r.list, r.complete
}

func (r *running) covers(users ...snapshot.UID) bool {
	return !slices.ContainsFunc(users, func(uid snapshot.UID) bool { return !r.users[uid] })
}

// kernelStates says which kernels live. Those that are registered after the first reading are unknown.
func (r *running) kernelStates(kernels []system.Kernel) map[system.Kernel]system.Liveness {
	if r.kernels == nil && len(kernels) > 0 {
		r.asked, r.unread = kernels, true
	}
	return r.kernels
}

func (r *running) read() {
	r.readings++
	r.list, r.complete = r.system.Running(func(uid snapshot.UID) bool { return r.wanted[uid] })
	r.users = maps.Clone(r.wanted)
	if r.kernels == nil && len(r.asked) > 0 {
		r.kernels = map[system.Kernel]system.Liveness{} // unknown, if /proc can't be read
		maps.Copy(r.kernels, r.system.Kernels(r.asked))
	}
}
