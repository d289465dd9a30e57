package state

import (
	"context"

	"github.com/seed-3119e985/genv/snapshot"
)

// flagOwners marks the environments whose books disagree with the kernel. It
// runs after the lock is given back, since to name a user can take a while.
func (s *Store) flagOwners(ctx context.Context, b *Books) {
	names := make(map[snapshot.UID]snapshot.Username)
	for i := range b.Environments {
		env := &b.Environments[i]
		owners := make([]snapshot.UID, 0, len(env.PIDs))
		for _, pid := range env.PIDs {
			if p := s.machine.Process(pid); p.Life == Alive && p.Owner != nil {
				owners = append(owners, *p.Owner)
			}
		}
		env.OwnerMismatch = ownersDiffer(env.UID, owners) || s.misnamed(ctx, env, names)
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

// misnamed says whether the environment stands under a name that its uid does
// not have. Names that are not known speak against nobody.
func (s *Store) misnamed(ctx context.Context, env *snapshot.Environment, names map[snapshot.UID]snapshot.Username) bool {
	if s.name == nil || env.Username == "" {
		return false
	}
	if _, asked := names[env.UID]; !asked {
		names[env.UID] = s.name(ctx, env.UID)
	}
	name := names[env.UID]
	return name != "" && name != env.Username
}
