package state

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// namesWithin is how long the users of the books are named for at most, one
// directory service after the other: anybody can register as many as there is
// room for.
const namesWithin = 5 * time.Second

// flagOwners marks the environments whose books disagree with the kernel. It
// runs after the lock is given back, since to name a user can take a while.
func (s *Store) flagOwners(ctx context.Context, b *Books) {
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	process, unnamed := once(s.machine.Process), 0
	name := once(func(uid snapshot.UID) snapshot.Username {
		if ctx.Err() != nil {
			unnamed++
			return ""
		}
		return s.name(ctx, uid)
	})
	for i := range b.Environments {
		env := &b.Environments[i]
		owners := make([]snapshot.UID, 0, len(env.PIDs))
		for _, pid := range env.PIDs {
			if p := process(pid); p.Life == Alive && p.Owner != nil {
				owners = append(owners, *p.Owner)
			}
		}
		env.OwnerMismatch = ownersDiffer(env.UID, owners)
		if s.name != nil {
			env.OwnerMismatch = rename(env, name(env.UID)) || env.OwnerMismatch
		}
	}
	if unnamed > 0 {
		b.Warnings = append(b.Warnings, fmt.Sprintf("%d users of environments could not be named within %s", unnamed, namesWithin))
	}
}

// ownersDiffer says whether processes of these owners speak against an
// environment of uid. Root may be in anyone's environment (sudo), but not alone.
func ownersDiffer(uid snapshot.UID, owners []snapshot.UID) bool {
	own := false
	for _, o := range owners {
		if o != uid && o != 0 {
			return true
		}
		own = own || o == uid
	}
	return len(owners) > 0 && !own
}

// rename has the environment stand under the name that its uid has, and says
// whether it stood under another one: what counts for a user is what the kernel
// says is his, whatever is written into envs.json. A name that is not known
// speaks against nobody.
func rename(env *snapshot.Environment, name snapshot.Username) (misnamed bool) {
	if name == "" || name == env.Username {
		return false
	}
	misnamed = env.Username != ""
	env.Username = name
	return misnamed
}
