package state

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Deactivate takes a process out of its environment and returns that
// environment's id, or "" when the process was in none. An environment whose
// last process and kernel has left ends, and so do its attachments. In a Store it
// lasts for as long as other processes run in it: see Successors.
func (b *Files) Deactivate(pid snapshot.PID) snapshot.EnvID {
	env := b.EnvironmentOf(pid)
	if env == nil {
		return ""
	}
	eid := env.EID
	env.PIDs = without(env.PIDs, func(p snapshot.PID) bool { return p == pid })
	b.adopt(env, pid)
	b.dropEmpty()
	return eid
}

// DeactivateKernel is Deactivate for a Jupyter kernel.
func (b *Files) DeactivateKernel(id string) snapshot.EnvID {
	env := b.EnvironmentOfKernel(id)
	if env == nil {
		return ""
	}
	eid := env.EID
	env.KernelIDs = without(env.KernelIDs, func(k string) bool { return k == id })
	b.adopt(env, 0)
	b.dropEmpty()
	return eid
}

// dropEmpty ends the environments that nothing lives in, and the attachments
// of environments that do not exist.
func (b *Files) dropEmpty() {
	b.drop(func(e *snapshot.Environment) bool { return len(e.PIDs) == 0 && len(e.KernelIDs) == 0 })
}

// without is slices.DeleteFunc that leaves its argument alone.
func without[T any](items []T, drop func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(items), drop)
}
