package state

import (
	"os"
	"slices"
	"sync"

	"github.com/seed-3119e985/genv/snapshot"
)

// foundWork is what still runs in an environment of which no registered process
// lives.
type foundWork struct {
	pids   []snapshot.PID // that are registered instead
	unsure bool           // there may be others, so the environment stays as it is
}

// clean drops the processes and kernels that are gone, the environments in which
// no others run, and the attachments of environments that do not exist. What is
// unknown is not gone. A process that is foreign to its environment lives, but
// doesn't keep that alive: anybody can register any process.
func (b *Files) clean(goneProcess func(snapshot.PID) bool, foreign func(*snapshot.Environment, snapshot.PID) bool, goneKernel func(string) bool, work func([]*snapshot.Environment) []foundWork) {
	var empty []*snapshot.Environment
	for i := range b.Environments {
		env := &b.Environments[i]
		pids, kernels := without(env.PIDs, goneProcess), without(env.KernelIDs, goneKernel)
		strange := func(pid snapshot.PID) bool { return foreign(env, pid) }
		if len(kernels) == 0 && !slices.ContainsFunc(pids, func(pid snapshot.PID) bool { return !strange(pid) }) {
			empty = append(empty, env)
			continue
		}
		env.PIDs, env.KernelIDs = pids, kernels
	}
	unsure := map[snapshot.EnvID]bool{}
	for i, w := range work(empty) {
		if len(w.pids) == 0 && w.unsure {
			unsure[empty[i].EID] = true
			continue
		}
		empty[i].PIDs, empty[i].KernelIDs = w.pids, nil
	}
	b.drop(func(e *snapshot.Environment) bool { return len(e.PIDs) == 0 && len(e.KernelIDs) == 0 && !unsure[e.EID] })
}

// removeDead removes what the machine says is gone.
func (s *Store) removeDead(b *Files, known *identities, process func(snapshot.PID) ProcessStatus, all *census) {
	var kernels []string
	for i := range b.Environments {
		kernels = append(kernels, b.Environments[i].KernelIDs...)
	}
	var lives map[string]Liveness
	if len(kernels) > 0 { // only then is it worth a walk through /proc
		lives = s.machine.Kernels(kernels)
	}
	b.clean(
		func(pid snapshot.PID) bool { return known.gone(pid, process(pid)) },
		foreigners(process, all),
		func(id string) bool { return lives[id] == Gone },
		func(empty []*snapshot.Environment) []foundWork {
			if known.rebooted { // which ends all work
				return make([]foundWork, len(empty))
			}
			return findWork(empty, all)
		},
	)
	known.forget(b)
}

// foreigners says whether a registered process is certainly none of the
// environment: another user's, or root's unless it carries the id, as with sudo.
func foreigners(process func(snapshot.PID) ProcessStatus, all *census) func(*snapshot.Environment, snapshot.PID) bool {
	roots := sync.OnceValue(func() map[snapshot.PID]RunningProcess {
		list, _ := all.of(0)
		processes := make(map[snapshot.PID]RunningProcess, len(list))
		for _, p := range list {
			processes[p.PID] = p
		}
		return processes
	})
	return func(env *snapshot.Environment, pid snapshot.PID) bool {
		switch owner := process(pid).Owner; {
		case owner == nil || *owner == env.UID:
			return false
		case *owner != 0 || pid == 1:
			return true
		}
		p, listed := roots()[pid]
		return !listed || p.Environ != EnvironHidden && p.EID != env.EID
	}
}

// findWork looks for processes in environments of which no registered process
// lives. Only for these is it worth a walk through /proc.
func findWork(empty []*snapshot.Environment, all *census) []foundWork {
	if len(empty) == 0 {
		return nil
	}
	uids := make([]snapshot.UID, 0, len(empty))
	for _, env := range empty {
		uids = append(uids, env.UID)
	}
	list, complete := all.of(uids...)
	byUser := map[snapshot.UID][]RunningProcess{}
	for _, p := range list {
		byUser[p.UID] = append(byUser[p.UID], p)
	}
	claimsOfUser := once(func(uid snapshot.UID) claims { return claimsOf(uid, byUser[uid], itself) })
	found := make([]foundWork, len(empty))
	for i, env := range empty {
		c := claimsOfUser(env.UID)
		found[i] = foundWork{pids: c.pids[env.EID], unsure: c.unsure}
		if !complete && int(env.UID) != os.Geteuid() {
			found[i].unsure = true
		}
	}
	return found
}

// once asks no question twice, so that a user who writes the same PID into
// envs.json a million times doesn't keep the others waiting for the lock.
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

// drop ends environments, and the attachments of environments that do not exist.
func (b *Files) drop(ended func(*snapshot.Environment) bool) {
	b.Environments = slices.DeleteFunc(slices.Clone(b.Environments), func(e snapshot.Environment) bool { return ended(&e) })
	registered := b.byID()
	for i := range b.Devices {
		d := &b.Devices[i]
		d.Attachments = without(d.Attachments, func(a snapshot.Attachment) bool { return registered[a.EID] == nil })
	}
}
