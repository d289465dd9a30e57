package change

import (
	"errors"
	"fmt"
	"slices"

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
		return Current(f, a.EID), nil
	}
	r := a.request(&env, by.Now)
	before := f.AttachedTo(a.EID)
	if r.Count == 0 && len(r.Indices) == 0 && len(r.Instances) == 0 {
		return Current(f, a.EID), nil
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

// request is empty if Configured and no number is configured.
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

// Wanted is how many or which devices this change will ask for.
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

// Within limits the change to these devices, which are free for it.
func (c Change) Within(only []snapshot.DeviceIndex) Change {
	available := state.Availability{Only: only}
	if c.Attach != nil {
		c.Attach = new(*c.Attach)
		c.Attach.OverSubscribe, c.Attach.Availability = false, available
	} else {
		c.Enter = new(*c.Enter)
		c.Enter.OverSubscribe, c.Enter.Availability = false, available
	}
	return c
}

// Avoid excludes devices that are kept for others.
func (c Change) Avoid(kept []snapshot.DeviceIndex) {
	if c.Attach != nil {
		c.Attach.Kept = kept
	}
	if c.Enter != nil {
		c.Enter.Kept = kept
	}
}

// apply refuses unknown devices, likely typing errors, but not unattached ones.
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

// changeable copies an environment that the requester may change. An unregistered one belongs to no user.
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

// apply registers and attaches both or neither. An existing environment keeps its devices.
func (e *Enter) apply(f *state.Files, by Requester) (Result, error) {
	uid, err := by.userOf(e.PID)
	if err != nil {
		return Result{}, err
	}
	eid := e.EID
	if eid == "" && e.PID != 0 {
		eid = f.FreeID(fmt.Sprint(e.PID)) // named like in 1.4.3, unless an earlier process with this PID left one
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

func resultOf(f *state.Files, eid snapshot.EnvID, before []snapshot.DeviceIndex) Result {
	result := Result{EID: eid, Before: before, Now: f.AttachedTo(eid)}
	if env := f.Environment(eid); env != nil {
		result.Config = env.Config
	}
	for i := range f.Devices {
		if a := f.Devices[i].Attachment(eid); a != nil && len(a.Instances) > 0 {
			result.Instances = append(result.Instances, Part{f.Devices[i].Index, a.Instances})
		}
	}
	return result
}

// Current is the Result of a change without effect.
func Current(f *state.Files, eid snapshot.EnvID) Result { return resultOf(f, eid, f.AttachedTo(eid)) }

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
			f.Leave(l.PID, uid) // a shell started in an environment, as in tmux
		}
		return Result{}, nil
	}
	eid, before := env.EID, f.AttachedTo(env.EID)
	if err := f.CheckOwner(eid, by.UID); err != nil {
		return Result{}, err
	}
	remaining := f.Remove(env, l.PID, l.Kernel)
	result := resultOf(f, eid, before)
	result.Remaining = remaining
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
	return Current(f, c.EID), nil
}
