package state

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// namesWithin is how long the users of the state files are named for at most, one
// directory service after the other.
const namesWithin = 5 * time.Second

// maxUnproven is how many users are named at most of whom no registered process
// is: any user can register environments for as many uids as there are.
const maxUnproven = 64

// flagOwners marks the environments whose entries disagree with the kernel. It
// runs after the lock is given back, since to name a user can take a while.
func (s *Store) flagOwners(ctx context.Context, b *Files) {
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	proven, process := make(map[snapshot.UID]bool), once(s.machine.Process)
	for i := range b.Environments {
		env := &b.Environments[i]
		owners := make([]snapshot.UID, 0, len(env.PIDs))
		for _, pid := range env.PIDs {
			if p := process(pid); p.Liveness == Alive && p.Owner != nil {
				owners = append(owners, *p.Owner)
			}
		}
		env.OwnerMismatch = ownersDiffer(env.UID, owners)
		proven[env.UID] = proven[env.UID] || slices.Contains(owners, env.UID)
	}
	if s.name != nil {
		s.nameOwners(ctx, b, proven)
	}
}

// nameOwners gives each environment the name of its user, those first of whom a
// registered process is.
func (s *Store) nameOwners(ctx context.Context, b *Files, proven map[snapshot.UID]bool) {
	unproven, unnamed := 0, 0
	name := once(func(uid snapshot.UID) snapshot.Username {
		if !proven[uid] {
			unproven++
		}
		if ctx.Err() != nil || unproven > maxUnproven && !proven[uid] {
			unnamed++
			return ""
		}
		return s.name(ctx, uid)
	})
	for _, first := range []bool{true, false} {
		for i := range b.Environments {
			if env := &b.Environments[i]; proven[env.UID] == first {
				env.OwnerMismatch = rename(env, name(env.UID)) || env.OwnerMismatch
			}
		}
	}
	if unnamed > 0 {
		b.Warnings = append(b.Warnings, fmt.Sprintf("%d users of environments could not be named within %s, or have no process here", unnamed, namesWithin))
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

// rename gives the environment the name that its uid has, and says whether it had
// another one: whatever name is written into envs.json, the environment counts
// for the user whose uid it has. A name that isn't known changes nothing.
func rename(env *snapshot.Environment, name snapshot.Username) (misnamed bool) {
	if name == "" || name == env.Username {
		return false
	}
	misnamed = env.Username != ""
	env.Username = name
	return misnamed
}
