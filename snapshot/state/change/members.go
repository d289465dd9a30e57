package change

import (
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// apply registers and attaches both or neither. An existing environment keeps its devices.
func (e *Enter) apply(f *state.Files, by Requester) (Result, error) {
	uid, err := by.userOf(e.PID)
	if err != nil {
		return Result{}, err
	}
	eid := e.EID
	if eid == "" && e.PID != 0 {
		eid = freeID(f, e.PID)
	}
	before := f.AttachedTo(eid)
	err = f.Activate(state.Activation{
		EID: eid, UID: uid, Username: by.Username(uid), PID: e.PID, KernelID: e.Kernel,
		Config: e.Config, At: by.Now,
	})
	if err != nil {
		return Result{}, err
	}
	if e.Attach && e.Config.GPUs != nil {
		if _, err := f.Attach(state.AttachRequest{
			EID: eid, Count: *e.Config.GPUs, Memory: f.Environment(eid).Config.GPUMemory,
			OverSubscribe: e.OverSubscribe, Availability: e.Availability, At: by.Now,
		}); err != nil {
			return Result{}, err
		}
	}
	return resultOf(f, eid, before), nil
}

// freeID is the PID, as in 1.4.3, unless there still is an environment that an earlier process with this PID began.
func freeID(f *state.Files, pid snapshot.PID) snapshot.EnvID {
	eid := snapshot.EnvID(fmt.Sprint(pid))
	for n := 2; f.Environment(eid) != nil; n++ {
		eid = snapshot.EnvID(fmt.Sprintf("%d-%d", pid, n))
	}
	return eid
}

func resultOf(f *state.Files, eid snapshot.EnvID, before []snapshot.DeviceIndex) Result {
	result := Result{EID: eid, Before: before, Now: f.AttachedTo(eid), Instances: Parts(f, eid)}
	if env := f.Environment(eid); env != nil {
		result.Config = env.Config
	}
	return result
}

// Parts are the devices of an environment of which it has MIG instances.
func Parts(f *state.Files, eid snapshot.EnvID) (parts []Part) {
	for i := range f.Devices {
		if a := f.Devices[i].Attachment(eid); a != nil && len(a.Instances) > 0 {
			parts = append(parts, Part{f.Devices[i].Index, a.Instances})
		}
	}
	return parts
}

func (l *Leave) apply(f *state.Files, by Requester) (Result, error) {
	if l.Own {
		if _, err := by.userOf(l.PID); err != nil {
			return Result{}, err
		}
	}
	env := f.EnvironmentOf(l.PID)
	if l.Kernel != "" {
		env = f.EnvironmentOfKernel(l.Kernel, by.UID)
	}
	if env == nil {
		if uid, err := by.userOf(l.PID); err == nil && l.PID != 0 {
			f.Leave(l.PID, uid) // a shell that was started in an environment, as in tmux
		}
		return Result{}, nil
	}
	eid, before := env.EID, f.AttachedTo(env.EID)
	if err := f.CheckOwner(eid, by.UID); err != nil {
		return Result{}, err
	}
	if l.Kernel != "" {
		f.DeactivateKernel(l.Kernel, by.UID)
	} else {
		f.Deactivate(l.PID)
	}
	result := resultOf(f, eid, before)
	result.Remaining = f.Successors(eid)
	return result, nil
}

func (c *Configure) apply(f *state.Files, by Requester) (Result, error) {
	if err := f.CheckOwner(c.EID, by.UID); err != nil {
		return Result{}, err
	}
	config := f.Environment(c.EID).Config
	for _, setting := range c.Clear {
		switch setting {
		case Name:
			config.Name = ""
		case GPUMemory:
			config.GPUMemory = snapshot.Memory{}
		case GPUs:
			config.GPUs = nil
		}
	}
	config = config.With(c.Set)
	if err := f.Configure(c.EID, config); err != nil {
		return Result{}, err
	}
	if c.Resize && (c.Set.GPUMemory.Known() || slices.Contains(c.Clear, GPUMemory)) {
		if err := f.Resize(c.EID, config.GPUMemory); err != nil {
			return Result{}, err
		}
	}
	return resultOf(f, c.EID, f.AttachedTo(c.EID)), nil
}
