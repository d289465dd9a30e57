package disk

import (
	"os"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// removeDead removes what has ended: processes, kernels, environments without either, and their attachments. What is
// unknown has not ended. A process that doesn't belong to its environment doesn't keep it alive, since any user can
// register any.
func (t *transaction) removeDead() {
	kernels := t.running.kernelStates(registeredKernels(&t.files))
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

// findOwner sets the owner of an environment of which envs.json says none: that of a registered process.
func (t *transaction) findOwner(env *snapshot.Environment) {
	for _, pid := range env.PIDs {
		p := t.process(pid)
		lives := p.Liveness == system.Alive && !t.ended(env, pid)
		if env.UID == snapshot.NoUID && lives && p.Owner != nil && *p.Owner != 0 {
			env.UID = *p.Owner
		}
	}
}

func registeredKernels(f *state.Files) (kernels []system.Kernel) {
	for i := range f.Environments {
		for _, id := range f.Environments[i].KernelIDs {
			kernels = append(kernels, system.Kernel{ID: id, UID: f.Environments[i].UID})
		}
	}
	return kernels
}

// belongs is false if a registered process is certainly not the environment's: another user's, or root's without its id
// (with sudo it has it).
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
	return listed && p.UID == 0 && (p.Environ.IsUnknown() || owner.Carries(env.EID))
}

// registerRemaining registers what still runs in environments without a living registered process. unsure are those in
// which there may be others: they stay. Only here it is worth a walk through /proc.
func (t *transaction) registerRemaining(empty []*snapshot.Environment) (unsure map[snapshot.EnvID]bool) {
	for _, env := range empty {
		if t.rebooted(env) {
			env.PIDs, env.KernelIDs = nil, nil
		}
	}
	if empty = slices.DeleteFunc(empty, t.rebooted); len(empty) == 0 {
		return nil
	}
	membersOf, complete := t.membersByUser(empty, isSelf)
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

// once caches answers: the same PID a million times in envs.json makes no others wait.
func once[K comparable, V any](ask func(K) V) func(K) V {
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
