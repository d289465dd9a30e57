package disk

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// removeDead removes ended processes and kernels, environments without either, and their attachments. Any user can
// register any process, so only those that belong to the environment count.
func (t *transaction) removeDead() {
	var registered []system.Kernel
	for i := range t.files.Environments {
		for _, id := range t.files.Environments[i].KernelIDs {
			registered = append(registered, system.Kernel{ID: id, UID: t.files.Environments[i].UID})
		}
	}
	kernels := t.running.kernelStates(registered)
	var empty []*snapshot.Environment
	for i := range t.files.Environments {
		env := &t.files.Environments[i]
		t.findOwner(env)
		pids := slices.DeleteFunc(slices.Clone(env.PIDs), func(pid snapshot.PID) bool { return t.ended(env, pid) })
		ids := slices.DeleteFunc(slices.Clone(env.KernelIDs), func(id string) bool {
			return t.rebooted(env) || kernels[system.Kernel{ID: id, UID: env.UID}] == system.Gone
		})
		if len(ids) == 0 && !slices.ContainsFunc(pids, func(pid snapshot.PID) bool { return t.belongs(env, pid) }) {
			empty = append(empty, env)
			continue
		}
		env.PIDs, env.KernelIDs = pids, ids
	}
	t.files.RemoveEmpty(t.registerRemaining(empty))
	t.forgetAnswers()
}

// findOwner sets the owner of an environment without one in envs.json: that of a registered process.
func (t *transaction) findOwner(env *snapshot.Environment) {
	for _, pid := range env.PIDs {
		p := t.process(pid)
		lives := p.Liveness == system.Alive && !t.ended(env, pid)
		if env.UID == snapshot.NoUID && lives && p.Owner != nil && *p.Owner != 0 {
			env.UID = *p.Owner
		}
	}
}

// belongs is false for another user's process, or root's without the environment's id.
func (t *transaction) belongs(env *snapshot.Environment, pid snapshot.PID) bool {
	now := t.process(pid)
	switch owner := now.Owner; {
	case owner == nil || *owner == env.UID || env.UID == snapshot.NoUID:
		return true
	case t.Keeps != nil && t.Keeps(env.EID, pid, now.Start):
		return true
	case *owner != 0 || pid == 1:
		return false
	}
	p, listed := t.rootProcesses()[pid]
	owner := t.registered(0, "").Owner(lineage(p, nil), "")
	return listed && p.UID == 0 && (p.IsUnknown() || owner.Carries(env.EID))
}

// registerRemaining registers what still runs in environments without a living process. Those in unsure stay.
func (t *transaction) registerRemaining(empty []*snapshot.Environment) (unsure map[snapshot.EnvID]bool) {
	for _, env := range empty {
		if t.rebooted(env) {
			env.PIDs, env.KernelIDs = nil, nil
		}
	}
	if empty = slices.DeleteFunc(empty, t.rebooted); len(empty) == 0 {
		return nil
	}
	membersOf, complete := t.membersByUser(empty)
	unsure = map[snapshot.EnvID]bool{}
	for _, env := range empty {
		m := membersOf(env)
		maybe := env.UID != snapshot.NoUID && (m.unsure || !complete && int(env.UID) != os.Geteuid())
		if len(m.of[env.EID]) == 0 && maybe {
			unsure[env.EID] = true
			continue
		}
		env.PIDs, env.KernelIDs = t.register(m.of[env.EID]), nil
	}
	return unsure
}

// memoize caches answers, as a PID may be in envs.json a million times.
func memoize[K comparable, V any](ask func(K) V) func(K) V {
	answers := make(map[K]V)
	return func(k K) V {
		answer, asked := answers[k]
		if !asked {
			answer = ask(k)
			answers[k] = answer
		}
		return answer
	}
}

const namesWithin = 5 * time.Second

// flagOwners marks environments with processes of others. It needs no lock: names can take seconds.
func (s *Store) flagOwners(ctx context.Context, f *state.Files) {
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	proven, process := make(map[snapshot.UID]bool), memoize(s.System.Process)
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

// nameOwners names the users, first those with a registered process.
func (s *Store) nameOwners(ctx context.Context, f *state.Files, proven map[snapshot.UID]bool) {
	const maxUnproven = 64 // users without one are looked up: anyone can write any uid
	unproven, unnamed := 0, 0
	name := memoize(func(uid snapshot.UID) *snapshot.Username { // empty: certainly none; nil: unknown
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
			if to := name(env.UID); to != nil && *to != env.Username { // the uid counts, not the file's name
				env.OwnerMismatch = env.OwnerMismatch || env.Username != ""
				env.Username = *to
			}
		}
	}
	if unnamed > 0 {
		f.Warn("%d users of environments could not be named within %s, or have no process here", unnamed, namesWithin)
	}
}

// ownersDiffer: the processes' owners contradict the uid. Root may own some, but not all.
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
