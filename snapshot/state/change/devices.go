package change

import (
	"errors"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

func (a *Attach) apply(f *state.Files, by Requester) (Result, error) {
	env, err := changeable(f, a.EID, by, a.Unregistered)
	if err != nil {
		return Result{}, err
	}
	if a.Refresh {
		f.Refresh(a.EID, by.Now)
		attached := f.AttachedTo(a.EID)
		return resultOf(f, a.EID, attached), nil
	}
	r := state.AttachRequest{
		EID: a.EID, Count: a.Count, Indices: a.Indices, Memory: env.Config.GPUMemory,
		OverSubscribe: a.OverSubscribe, Availability: a.Availability, At: by.Now, Instances: a.Instances,
	}
	if a.Memory.Known() {
		r.Memory = a.Memory
	}
	before := f.AttachedTo(a.EID)
	if r.Count == 0 && len(r.Indices) == 0 && len(r.Instances) == 0 {
		switch {
		case env.Config.GPUs != nil:
			r.Count = *env.Config.GPUs
		case a.Configured:
			return resultOf(f, a.EID, before), nil
		default:
			r.Count = 1
		}
	}
	now, err := f.Attach(r)
	if err != nil {
		return Result{}, err
	}
	if a.Exact && r.Count > 0 && len(now) > r.Count {
		f.Detach(a.EID, now[r.Count:]...)
	}
	return resultOf(f, a.EID, before), nil
}

// apply refuses devices that the host doesn't have, which are likely typing errors. A
// device that isn't attached isn't an error.
func (d *Detach) apply(f *state.Files, by Requester) (Result, error) {
	if _, err := changeable(f, d.EID, by, d.Unregistered); err != nil {
		return Result{}, err
	}
	for _, index := range d.Indices {
		if f.Device(index) == nil {
			return Result{}, f.NoDevice(index)
		}
	}
	before := f.AttachedTo(d.EID)
	f.Detach(d.EID, d.Indices...)
	return resultOf(f, d.EID, before), nil
}

// changeable is a copy of an environment that the asker may change. One that isn't registered belongs to no user.
func changeable(f *state.Files, eid snapshot.EnvID, by Requester, unregistered bool) (snapshot.Environment, error) {
	switch err := f.CheckOwner(eid, by.UID); {
	case err == nil:
		return *f.Environment(eid), nil
	case unregistered && errors.Is(err, state.ErrNoEnvironment):
		return snapshot.Environment{EID: eid}, nil
	default:
		return snapshot.Environment{}, err
	}
}
