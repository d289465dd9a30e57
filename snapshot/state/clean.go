package state

import "github.com/seed-3119e985/genv/snapshot"

// clean drops the processes and kernels that are gone, the environments that
// had no others, and the attachments of environments that do not exist. gone
// says no of what cannot be told.
func (b *Books) clean(goneProcess func(snapshot.PID) bool, goneKernel func(string) bool) {
	for i := range b.Environments {
		env := &b.Environments[i]
		env.PIDs = without(env.PIDs, goneProcess)
		env.KernelIDs = without(env.KernelIDs, goneKernel)
	}
	b.dropEmpty()
}

// bury cleans the books by what the machine says.
func (s *Store) bury(b *Books, known *identities, process func(snapshot.PID) Process) {
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
	)
	known.forget(b)
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
