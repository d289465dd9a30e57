package disk

import (
	"context"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

const namesWithin = 5 * time.Second

// maxUnproven users without a registered process are looked up: any user can write any uid.
const maxUnproven = 64

// flagOwners marks environments with processes of other owners. It takes no lock, since names can take seconds.
func (s *Store) flagOwners(ctx context.Context, f *state.Files) {
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	proven, process := make(map[snapshot.UID]bool), once(s.System.Process)
	for i := range f.Environments {
		env := &f.Environments[i]
		owners := make([]snapshot.UID, 0, len(env.PIDs))
		for _, pid := range env.PIDs {
			p := process(pid)
			switch {
			case p.Liveness != system.Alive || p.Owner == nil:
			case s.Keeps != nil && *p.Owner != env.UID && s.Keeps(env.EID, pid, p.Start): // a container has any uid
				owners = append(owners, env.UID)
			default:
				owners = append(owners, *p.Owner)
			}
		}
		env.OwnerMismatch = ownersDiffer(env.UID, owners)
		proven[env.UID] = proven[env.UID] || slices.Contains(owners, env.UID)
	}
	if s.Username != nil {
		s.nameOwners(ctx, f, proven)
	}
}

// nameOwners sets the user names of the environments, first of those that have a registered process of their user.
func (s *Store) nameOwners(ctx context.Context, f *state.Files, proven map[snapshot.UID]bool) {
	unproven, unnamed := 0, 0
	name := once(func(uid snapshot.UID) *snapshot.Username { // empty for certainly none, nil if it isn't known
		if !proven[uid] {
			unproven++
		}
		if ctx.Err() != nil || unproven > maxUnproven && !proven[uid] {
			unnamed++
			return nil
		}
		name := s.Username(ctx, uid)
		if name == "" && (s.Lacks == nil || !s.Lacks(ctx, uid)) {
			return nil
		}
		return &name
	})
	for _, first := range []bool{true, false} {
		for i := range f.Environments {
			env := &f.Environments[i]
			if proven[env.UID] != first {
				continue
			}
			// It counts for its uid, not for the name in the file.
			if to := name(env.UID); to != nil && *to != env.Username {
				env.OwnerMismatch = env.OwnerMismatch || env.Username != ""
				env.Username = *to
			}
		}
	}
	if unnamed > 0 {
		f.Warn("%d users of environments could not be named within %s, or have no process here", unnamed, namesWithin)
	}
}

// ownersDiffer says whether the owners of its processes contradict its uid. Root's may be in any, but not alone.
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
