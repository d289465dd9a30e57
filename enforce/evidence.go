package enforce

import "github.com/seed-3119e985/genv/snapshot"

// evidence is how sure it is that a user uses a device.
type evidence int

const (
	unused evidence = iota
	// reported: a process of root in the user's environment uses it, or a process
	// of a host that doesn't report uids.
	reported
	// proven: a process of the user's uid uses it.
	proven
)

// useBy says what a process that uses a device proves about its use by uid, the
// user for whom an environment is registered. The process is in that environment,
// or its environment is unknown.
func useBy(uid snapshot.UID, p *snapshot.Process) evidence {
	switch {
	case p.UID == nil || *p.UID == 0:
		return reported
	case *p.UID == uid:
		return proven
	}
	return unused
}
