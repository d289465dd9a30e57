package local

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/seed-3119e985/genv/snapshot"
)

// inspection is what the Inspector read right before the signals.
type inspection struct {
	processes map[snapshot.PID]*snapshot.Process
	gpus      uuids // nil if the order names none
	// environments reads the registered environments, once, and only if needed.
	environments func() ([]snapshot.Environment, error)
	devices      func() ([]snapshot.Device, error) // likewise
}

// inspect reads which processes use devices now. It comes after the pidfds are
// opened: a process that lives through it is the one that the driver reports.
func (x *execution) inspect(ctx context.Context) (*inspection, error) {
	var gpus uuids
	if len(x.gpus) > 0 { // first, so that the processes are on these
		var err error
		if gpus, err = x.inspector.GPUs(ctx); err != nil {
			return nil, err
		}
	}
	processes, _, err := x.inspector.Processes(ctx) // its warnings are about other processes
	if err != nil {
		return nil, err
	}
	byPID := make(map[snapshot.PID]*snapshot.Process, len(processes))
	for i := range processes {
		byPID[processes[i].PID] = &processes[i]
	}
	return &inspection{byPID, gpus, once(ctx, x.inspector.Environments), once(ctx, x.inspector.Devices)}, nil
}

func once[T any](ctx context.Context, read func(context.Context) (T, []string, error)) func() (T, error) {
	return sync.OnceValues(func() (T, error) {
		value, _, err := read(ctx)
		return value, err
	})
}

// registered says whether a process is registered in an environment, so that its environ doesn't count.
func (n *inspection) registered(pid snapshot.PID, eid snapshot.EnvID) bool {
	environments, err := n.environments()
	env := snapshot.FindEnvironment(environments, eid)
	return err == nil && env != nil && slices.Contains(env.PIDs, pid)
}

// outside says whether a process of a user is certainly in no environment, whatever the policy says about sudo.
func (n *inspection) outside(seen *snapshot.Process, uid snapshot.UID) bool {
	environments, err := n.environments()
	if err != nil || seen.EnvUnknown {
		return false
	}
	env := snapshot.FindEnvironment(environments, cmp.Or(seen.EID, seen.Inherited))
	return env == nil || env.UID != uid && uid != 0 && env.EID != seen.Inherited
}
