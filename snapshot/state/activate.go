package state

import (
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Activation is a process or a Jupyter kernel that enters an environment.
type Activation struct {
	EID      snapshot.EnvID
	UID      snapshot.UID // of who asks, as the kernel reports it
	Username snapshot.Username
	PID      snapshot.PID // 0 for none
	KernelID string       // empty for none
	// Config is taken by a new environment; for one that exists, what is given
	// in it replaces what stands there.
	Config snapshot.EnvConfig
	At     snapshot.Date
}

// Activate registers the environment if it is new, and the process or kernel in
// it. Only the user of an environment and root may enter it, and no process of
// another PID namespace. Nothing changes when there is an error, which wraps
// ErrRequest, ErrNotOwner or ErrActive.
func (b *Files) Activate(a Activation) error {
	if err := a.check(); err != nil {
		return err
	}
	if b.foreign && a.PID != 0 {
		return fmt.Errorf("%w: this process is in another PID namespace than the state folder, where its PID %d is another process: set GENV_TMPDIR to a folder of this container's own", ErrRequest, a.PID)
	}
	if other := b.elsewhere(a); other != nil {
		return fmt.Errorf("%w: it is in %q; run `genv deactivate` there first", ErrActive, other.EID)
	}
	env := b.Environment(a.EID)
	if env == nil {
		b.Environments = append(b.Environments, snapshot.Environment{
			EID: a.EID, UID: a.UID, Username: a.Username, Creation: a.At,
		})
		env = &b.Environments[len(b.Environments)-1]
	} else if err := b.CheckOwner(a.EID, a.UID); err != nil {
		return err
	}
	enter(env, a)
	return nil
}

// check refuses what the state files could not hold.
func (a *Activation) check() error {
	if a.EID == "" {
		return fmt.Errorf("%w: an environment needs an id", ErrRequest)
	}
	if a.PID < 0 || (a.PID == 0 && a.KernelID == "") {
		return fmt.Errorf("%w: an environment needs a process or a Jupyter kernel to live", ErrRequest)
	}
	for name, text := range map[string]string{
		"the environment id": string(a.EID), "the username": string(a.Username), "the kernel id": a.KernelID,
	} {
		if err := snapshot.CheckName(name, text); err != nil {
			return fmt.Errorf("%w: %w", ErrRequest, err)
		}
	}
	return checkConfig(a.Config)
}

// elsewhere is the other environment that the process or kernel is in.
func (b *Files) elsewhere(a Activation) *snapshot.Environment {
	if env := b.EnvironmentOf(a.PID); env != nil && env.EID != a.EID {
		return env
	}
	if env := b.EnvironmentOfKernel(a.KernelID); env != nil && env.EID != a.EID {
		return env
	}
	return nil
}

func enter(env *snapshot.Environment, a Activation) {
	if a.PID != 0 && !slices.Contains(env.PIDs, a.PID) {
		env.PIDs = append(slices.Clone(env.PIDs), a.PID)
	}
	if a.KernelID != "" && !slices.Contains(env.KernelIDs, a.KernelID) {
		env.KernelIDs = append(slices.Clone(env.KernelIDs), a.KernelID)
	}
	if a.Config.Name != "" {
		env.Config.Name = a.Config.Name
	}
	if a.Config.GPUMemory.Known() {
		env.Config.GPUMemory = a.Config.GPUMemory
	}
	if a.Config.GPUs != nil {
		env.Config.GPUs = a.Config.GPUs
	}
}
