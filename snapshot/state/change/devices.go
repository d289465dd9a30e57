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
		return resultOf(f, a.EID, f.AttachedTo(a.EID)), nil
	}
	r := a.request(&env, by.Now)
	before := f.AttachedTo(a.EID)
	if r.Count == 0 && len(r.Indices) == 0 && len(r.Instances) == 0 {
		return resultOf(f, a.EID, before), nil
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

// request is what is asked of the state files for an environment. It asks for nothing if no number is configured.
func (a *Attach) request(env *snapshot.Environment, at snapshot.Date) state.AttachRequest {
	r := a.AttachRequest
	if r.At = at; !r.Memory.Known() {
		r.Memory = env.Config.GPUMemory
	}
	if r.Count == 0 && len(r.Indices) == 0 && len(r.Instances) == 0 {
		switch {
		case env.Config.GPUs != nil:
			r.Count = *env.Config.GPUs
		case !a.Configured:
			r.Count = 1
		}
	}
	return r
}

// Wanted is what a change of this user is going to ask of the state files: how many devices, or which.
func (c Change) Wanted(f *state.Files, uid snapshot.UID) (state.AttachRequest, error) {
	switch e := c.Enter; {
	case c.Attach != nil:
		env, err := changeable(f, c.Attach.EID, Requester{UID: uid}, false)
		return c.Attach.request(&env, snapshot.Date{}), err
	case e != nil && e.Attach && e.Config.GPUs != nil:
		r := state.AttachRequest{EID: e.EID, Count: *e.Config.GPUs, Memory: e.Config.GPUMemory}
		if env := f.Environment(e.EID); env != nil {
			r.Memory = env.Config.With(e.Config).GPUMemory
		}
		return r, nil
	}
	return state.AttachRequest{}, state.Refuse("it attaches no number of GPUs, so there is nothing to wait for")
}

// Within has a change attach none but these devices, which are free for it.
func (c Change) Within(only []snapshot.DeviceIndex) Change {
	available := state.Availability{Only: only}
	if c.Attach != nil {
		a := *c.Attach
		a.OverSubscribe, a.Availability = false, available
		return Change{Attach: &a}
	}
	e := *c.Enter
	e.OverSubscribe, e.Availability = false, available
	return Change{Enter: &e}
}

// Avoid has a change attach no device that is kept for others, who wait for it.
func (c Change) Avoid(kept []snapshot.DeviceIndex) {
	if c.Attach != nil {
		c.Attach.Kept = kept
	}
	if c.Enter != nil {
		c.Enter.Kept = kept
	}
}

// apply refuses devices that the host doesn't have: likely a typing error. One that isn't attached is no error.
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
