package judging

import (
	"github.com/seed-3119e985/genv/snapshot"
)

// Evidence is how sure it is that a user uses a device.
type Evidence int8

// The kinds of evidence, the weakest first.
const (
	Unused Evidence = iota
	// Reported: a process of root in the user's environment uses it, or a process
	// of a host that doesn't report uids.
	Reported
	// Proven: a process of the user's uid uses it.
	Proven
)

// UseBy says what a process that uses a device proves about its use by uid, the
// user for whom an environment is registered. The process is in that environment,
// or its environment is unknown.
func UseBy(uid snapshot.UID, p *snapshot.Process) Evidence {
	switch {
	case p.UID == nil || *p.CountedUID() == 0:
		return Reported
	case *p.CountedUID() == uid:
		return Proven
	}
	return Unused
}

// Cost is what losing the devices costs the user for whom the environment is registered: 0 if
// there is nothing to lose, then 1 without processes, and more the better their use is proven.
func (c *Contents) Cost(uid snapshot.UID) int8 {
	if len(c.Attachments) == 0 {
		return 0
	}
	most := Unused
	for _, p := range c.Processes {
		most = max(most, UseBy(uid, p))
	}
	return 1 + int8(most)
}
