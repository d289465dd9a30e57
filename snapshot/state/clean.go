package state

import (
	"os"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// verdict is what a look at its processes says of an environment in which
// nothing that is registered lives.
type verdict struct {
	successors []snapshot.PID // that are registered instead
	unsure     bool           // there may be some: nothing changes
}

// clean drops the processes and kernels that are gone, the environments that
// had no others and in which nothing else works, and the attachments of
// environments that do not exist. gone says no of what cannot be told.
func (b *Books) clean(goneProcess func(snapshot.PID) bool, goneKernel func(string) bool, work func([]*snapshot.Environment) []verdict) {
	var empty []*snapshot.Environment
	for i := range b.Environments {
		env := &b.Environments[i]
		pids, kernels := without(env.PIDs, goneProcess), without(env.KernelIDs, goneKernel)
		if len(pids) == 0 && len(kernels) == 0 {
			empty = append(empty, env)
			continue
		}
		env.PIDs, env.KernelIDs = pids, kernels
	}
	unsure := map[snapshot.EnvID]bool{}
	for i, v := range work(empty) {
		if len(v.successors) == 0 && v.unsure {
			unsure[empty[i].EID] = true
			continue
		}
		empty[i].PIDs, empty[i].KernelIDs = v.successors, nil
	}
	b.drop(func(e *snapshot.Environment) bool { return len(e.PIDs) == 0 && len(e.KernelIDs) == 0 && !unsure[e.EID] })
}

// removeDead cleans the books by what the machine says.
func (s *Store) removeDead(b *Books, known *identities, process func(snapshot.PID) Process, all *census) {
	var kernels []string
	for i := range b.Environments {
		kernels = append(kernels, b.Environments[i].KernelIDs...)
	}
	var lives map[string]Life
	if len(kernels) > 0 { // only then is it worth a walk through /proc
		lives = s.machine.Kernels(kernels)
	}
	b.clean(
		func(pid snapshot.PID) bool { return known.gone(pid, process(pid)) },
		func(id string) bool { return lives[id] == Gone },
		func(empty []*snapshot.Environment) []verdict {
			if known.rebooted { // no work outlives that
				return make([]verdict, len(empty))
			}
			return work(empty, all)
		},
	)
	known.forget(b)
}

// work looks for what goes on in environments in which nothing that is
// registered lives. Only then is it worth a walk through /proc.
func work(empty []*snapshot.Environment, all *census) []verdict {
	if len(empty) == 0 {
		return nil
	}
	uids := make([]snapshot.UID, 0, len(empty))
	for _, env := range empty {
		uids = append(uids, env.UID)
	}
	list, complete := all.of(uids...)
	byUser := map[snapshot.UID][]Running{}
	for _, p := range list {
		byUser[p.UID] = append(byUser[p.UID], p)
	}
	claimsOfUser := once(func(uid snapshot.UID) claims { return claimsOf(uid, byUser[uid], itself) })
	verdicts := make([]verdict, len(empty))
	for i, env := range empty {
		c := claimsOfUser(env.UID)
		verdicts[i] = verdict{successors: c.pids[env.EID], unsure: c.unsure}
		if !complete && int(env.UID) != os.Geteuid() {
			verdicts[i].unsure = true
		}
	}
	return verdicts
}

// once asks no question twice: who writes the same PID into envs.json a million
// times keeps nobody waiting for the lock.
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
func (b *Books) drop(ended func(*snapshot.Environment) bool) {
	b.Environments = slices.DeleteFunc(slices.Clone(b.Environments), func(e snapshot.Environment) bool { return ended(&e) })
	registered := b.byID()
	for i := range b.Devices {
		d := &b.Devices[i]
		d.Attachments = without(d.Attachments, func(a snapshot.Attachment) bool { return registered[a.EID] == nil })
	}
}
