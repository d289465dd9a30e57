package state

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Activation registers a process or a Jupyter kernel in an environment.
type Activation struct {
	EID      snapshot.EnvID
	UID      snapshot.UID // of the caller, as reported by the kernel
	Username snapshot.Username
	PID      snapshot.PID       // 0 for none
	KernelID string             // empty for none
	Config   snapshot.EnvConfig // of a new environment; what it sets replaces an existing one's
	At       snapshot.Date
}

// Activate registers the process or kernel in the environment, a new one if needed. Only its user and root may. An
// error, which wraps ErrRequest, ErrNotOwner or ErrActive, changes nothing.
func (f *Files) Activate(a Activation) error {
	if err := a.check(); err != nil {
		return err
	}
	if f.Foreign && a.PID != 0 {
		return Refuse("this process is in another PID namespace than the state folder, where its PID %d is "+
			"another process: set GENV_TMPDIR to a folder of this container's own", a.PID)
	}
	if other := f.elsewhere(a); other != nil {
		return fmt.Errorf("%w: it is in %q; run `genv deactivate` there first", ErrActive, other.EID)
	}
	env := f.Environment(a.EID)
	if env == nil {
		f.Environments = append(f.Environments, snapshot.Environment{
			EID: a.EID, UID: a.UID, Username: a.Username, Creation: a.At,
		})
		env = &f.Environments[len(f.Environments)-1]
	} else if err := f.CheckOwner(a.EID, a.UID); err != nil {
		return err
	}
	env.PIDs, env.KernelIDs = with(env.PIDs, a.PID), with(env.KernelIDs, a.KernelID)
	env.Config = env.Config.With(a.Config)
	f.Answers = without(f.Answers, func(old snapshot.Answer) bool { return old.PID == a.PID })
	return nil
}

func (a *Activation) check() error {
	if a.PID < 0 || (a.PID == 0 && a.KernelID == "") {
		return Refuse("an environment needs a process or a Jupyter kernel")
	}
	return cmp.Or(CheckEID(a.EID), CheckName("the username", string(a.Username)),
		CheckName("the kernel id", a.KernelID), CheckConfig(a.Config))
}

// elsewhere returns another environment with the process or kernel. A kernel belongs to its environment's user, even
// for root.
func (f *Files) elsewhere(a Activation) *snapshot.Environment {
	user := a.UID
	if env := f.Environment(a.EID); env != nil {
		user = env.UID
	}
	for _, env := range []*snapshot.Environment{f.EnvironmentOf(a.PID), f.EnvironmentOfKernel(a.KernelID, user)} {
		if env != nil && env.EID != a.EID {
			return env
		}
	}
	return nil
}

// Deactivate removes a process, if it is in an environment.
func (f *Files) Deactivate(pid snapshot.PID) (successors []snapshot.PID) {
	if env := f.EnvironmentOf(pid); env != nil {
		successors = f.Remove(env, pid, "")
	}
	return successors
}

// Remove removes a process (0: none) or a Jupyter kernel. After the last one, processes that still run in the
// environment are registered; without any it ends.
func (f *Files) Remove(env *snapshot.Environment, pid snapshot.PID, kernel string) (successors []snapshot.PID) {
	if pid != 0 {
		f.Leave(pid, env.UID)
	}
	env.PIDs = without(env.PIDs, func(p snapshot.PID) bool { return p == pid })
	env.KernelIDs = without(env.KernelIDs, func(k string) bool { return k == kernel })
	if f.FindSuccessors != nil && isEmpty(env) {
		successors = f.FindSuccessors(env, pid)
		env.PIDs = successors
	}
	f.RemoveEmpty(nil)
	return successors
}

// Leave notes that a process left its environment until activated again, whatever its environ says.
func (f *Files) Leave(pid snapshot.PID, uid snapshot.UID) {
	f.Answers = without(f.Answers, func(old snapshot.Answer) bool { return old.PID == pid })
	f.answer(snapshot.Answer{PID: pid, UID: uid})
}

// Remember adds a look's answers, except about processes that left since.
func (f *Files) Remember(answers []snapshot.Answer) {
	for _, a := range answers {
		same := func(old snapshot.Answer) bool { return old.PID == a.PID && old.Start == a.Start }
		if i := slices.IndexFunc(f.Answers, same); i >= 0 && f.Answers[i].EID == "" {
			continue
		}
		f.Answers = without(f.Answers, same)
		f.answer(a)
	}
}

func (f *Files) answer(a snapshot.Answer) {
	const maxAnswers = 512
	n := 0
	for i := range f.Answers {
		if f.Answers[i].UID == a.UID {
			n++
		}
	}
	if n < maxAnswers {
		f.Answers = append(f.Answers, a)
	}
}

// Configure replaces the configuration. The error wraps ErrNoEnvironment or ErrRequest.
func (f *Files) Configure(eid snapshot.EnvID, config snapshot.EnvConfig) error {
	env, err := f.registered(eid)
	if err != nil {
		return err
	}
	if err := CheckConfig(config); err != nil {
		return err
	}
	env.Config = config
	return nil
}

// CheckConfig refuses values that no environment can have. The error wraps ErrRequest.
func CheckConfig(c snapshot.EnvConfig) error {
	switch {
	case c.GPUs != nil && *c.GPUs < 1:
		return Refuse("%d GPUs: ask for at least 1", *c.GPUs)
	case c.GPUs != nil && *c.GPUs > math.MaxInt32: // couldn't be read back from the state files
		return Refuse("%d GPUs: no host has as many", *c.GPUs)
	}
	return CheckName("the name", c.Name)
}
