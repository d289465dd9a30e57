package change

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (a *Attach) apply(f *state.Files, by Asker) (Result, error) {
	env, err := changeable(f, a.EID, by, a.Unregistered)
	if err != nil {
		return Result{}, err
	}
	r := state.AttachRequest{
		EID: a.EID, Count: a.Count, Indices: a.Indices, Memory: env.Config.GPUMemory,
		OverSubscribe: a.OverSubscribe, Busy: a.Busy, At: by.Now, Instances: a.Instances,
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
// device that isn't attached is no error.
func (d *Detach) apply(f *state.Files, by Asker) (Result, error) {
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

// changeable is a copy of an environment that the asker may change. One that isn't
// registered belongs to no user.
func changeable(f *state.Files, eid snapshot.EnvID, by Asker, unregistered bool) (snapshot.Environment, error) {
	switch err := f.CheckOwner(eid, by.UID); {
	case err == nil:
		return *f.Environment(eid), nil
	case unregistered && errors.Is(err, state.ErrNoEnvironment):
		return snapshot.Environment{EID: eid}, nil
	default:
		return snapshot.Environment{}, err
	}
}

func (e *Extend) apply(f *state.Files, by Asker) (Result, error) {
	if err := f.CheckOwner(e.EID, by.UID); err != nil {
		return Result{}, err
	}
	if env := f.Environment(e.EID); env.UID != by.UID { // root may change it, and has no need to ask
		owner := fmt.Sprint(env.UID)
		if env.Username != "" {
			owner = fmt.Sprintf("%s(%d)", text.Shown(string(env.Username)), env.UID)
		}
		return Result{}, fmt.Errorf("environment %s belongs to %s, who alone can ask; an administrator can use `genv remote exempt`", text.Shown(string(e.EID)), owner)
	}
	attached := f.AttachedTo(e.EID)
	if len(attached) == 0 {
		return Result{}, fmt.Errorf("environment %s is attached to no device: genv attach attaches one", text.Shown(string(e.EID)))
	}
	wanted := attached
	if len(e.Indices) > 0 {
		wanted = slices.Compact(slices.Sorted(slices.Values(e.Indices)))
	}
	result := resultOf(f, e.EID, attached)
	for _, index := range wanted {
		if !slices.Contains(attached, index) {
			return Result{}, fmt.Errorf("environment %s is not attached to device %s: it has %s", text.Shown(string(e.EID)), index, text.JoinIndices(attached))
		}
		result.Extended = append(result.Extended, index)
		result.Extensions = append(result.Extensions, snapshot.Extension{
			UID: by.UID, EID: e.EID, Index: index,
			Attached: f.Device(index).Attachment(e.EID).Time, For: time.Duration(e.Seconds) * time.Second,
		})
	}
	return result, nil
}
