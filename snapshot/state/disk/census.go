package disk

import (
	"errors"
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// census says which processes and Jupyter kernels there are, which users can make slow to find out. With the lock
// held nothing is read: what is missing is noted, and the transaction is tried again after a reading.
type census struct {
	system  system.System
	locked  bool
	missing bool

	users    map[snapshot.UID]bool // whose processes are read
	everyone bool
	list     []system.RunningProcess
	complete bool // false where processes may be hidden
	// emptied are the environments that had no process before the reading.
	emptied map[snapshot.EnvID]bool

	asked   []system.Kernel
	kernels map[system.Kernel]system.Liveness // nil before a reading
}

// errMissing says that a census has to be read before a transaction.
var errMissing = errors.New("processes or kernels have to be looked for")

func newCensus(s system.System) *census {
	return &census{system: s, users: map[snapshot.UID]bool{}, emptied: map[snapshot.EnvID]bool{}}
}

// processes lists the living processes of some users at least, or of all if none are named. complete is false where
// /proc hides the processes of others.
func (c *census) processes(users ...snapshot.UID) (list []system.RunningProcess, complete bool) {
	if !c.covers(users) {
		again := !c.missing && len(c.users) > 0 // others change the files meanwhile: a third reading needs no more
		c.everyone = c.everyone || len(users) == 0 || again
		for _, uid := range users {
			c.users[uid] = true
		}
		if !c.mayRead() {
			return nil, false
		}
	}
	return c.list, c.complete
}

// covers says whether the list has all processes of some users.
func (c *census) covers(users []snapshot.UID) bool {
	return c.everyone || len(users) > 0 && !slices.ContainsFunc(users, func(uid snapshot.UID) bool { return !c.users[uid] })
}

// kernelStates says which kernels live. Those that are registered after the reading are unknown.
func (c *census) kernelStates(kernels []system.Kernel) map[system.Kernel]system.Liveness {
	if c.kernels == nil && len(kernels) > 0 {
		c.asked = kernels
		c.mayRead()
	}
	return c.kernels
}

// mayRead reads, or notes that something is missing.
func (c *census) mayRead() bool {
	if c.missing = c.locked; c.missing {
		return false
	}
	c.read()
	return true
}

// read looks for all that was asked for.
func (c *census) read() {
	c.missing = false
	if c.everyone || len(c.users) > 0 {
		c.list, c.complete = c.system.Running(func(uid snapshot.UID) bool { return c.everyone || c.users[uid] })
	}
	if c.kernels == nil && len(c.asked) > 0 {
		c.kernels = map[system.Kernel]system.Liveness{} // unknown, if /proc can't be read
		maps.Copy(c.kernels, c.system.Kernels(c.asked))
	}
}
