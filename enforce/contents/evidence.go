package contents

import "github.com/seed-3119e985/genv/snapshot"

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
