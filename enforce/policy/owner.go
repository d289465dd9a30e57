package policy

import (
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// owner is the user to whom a subject belongs, as far as that can be believed: who is exempt
// depends on it. Unknown fields are empty.
type owner struct {
	User        snapshot.Username
	UID         *snapshot.UID
	Environment *snapshot.Environment // nil if another user owns it
}

// ownerOf is the owner of a subject: of a process by the uid that the kernel reports or, in a
// container of root's runtime, by the user who started it. Without a proof of that, such a
// process has no known owner. Where the host doesn't report uids, as 1.4.3 doesn't, the owner
// of the environment counts; and otherwise the owner of an environment, which is a claim of the
// state files, does not.
func ownerOf(s enforce.Subject) owner {
	switch p := s.Process; {
	case p == nil:
		return owner{User: s.User, Environment: s.Environment}
	case p.UID == nil && s.Environment != nil:
		return owner{User: s.Environment.Username, Environment: s.Environment}
	case p.UID == nil:
		return owner{User: p.Username}
	case p.Unproved():
		return owner{} // any user who may start containers can be any user in one
	default:
		return byUID(p, s.Environment)
	}
}

// byUID is the owner that the kernel reports for a process.
func byUID(p *snapshot.Process, environment *snapshot.Environment) owner {
	o := owner{UID: p.CountedUID(), User: p.CountedUser()}
	own := environment != nil && environment.UID == *o.UID
	if own {
		o.Environment = environment
	}
	switch {
	case o.User != "":
	case own:
		o.User = environment.Username
	case *o.UID == 0:
		o.User = "root"
	}
	return o
}
