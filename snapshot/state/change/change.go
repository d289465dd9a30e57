// Package change is what a person can ask for to be changed in the state files, as a value: the same code applies it in
// the process of that person, under the lock of the state files, and in the service to which it was sent as JSON.
//
//	c, err := change.Decode(request)
//	result, err := c.Apply(files, change.Requester{UID: uid, …}) // under the lock
//
// Who may change what is decided here. A change never says who wants it: that is the Requester, as the kernel reports
// it. This package has no clock and touches no file or process.
package change

import (
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Change is one change: exactly one pointer is set. It is JSON; see Decode for that of another process.
type Change struct {
	Enter     *Enter     `json:"enter,omitempty"`
	Attach    *Attach    `json:"attach,omitempty"`
	Detach    *Detach    `json:"detach,omitempty"`
	Configure *Configure `json:"configure,omitempty"`
	Leave     *Leave     `json:"leave,omitempty"`
}

// Enter registers a process or a Jupyter kernel in an environment, new or not. The process belongs to the asker; root
// may register any.
type Enter struct {
	// EID is the environment. If it is empty, a new one is named after the process.
	EID    snapshot.EnvID `json:"eid,omitempty"`
	PID    snapshot.PID   `json:"pid,omitempty"`       // 0 for none
	Kernel string         `json:"kernel_id,omitempty"` // of a Jupyter kernel; empty for none
	// Config is that of a new environment; in an existing one what is set replaces what it had.
	Config snapshot.EnvConfig `json:"config,omitzero"`
	// Attach attaches as many devices as Config has, if it has a number.
	Attach        bool `json:"attach,omitempty"`
	OverSubscribe bool `json:"over_subscribe,omitempty"`
	state.Availability
	// Whole fails if a cap doesn't allow all of it; otherwise nothing is attached then: see Result.Refused.
	Whole bool `json:"whole,omitempty"`
}

// Attach attaches an environment to devices: without a number, to as many as are configured, else one. Unknown Memory
// is that of the environment.
type Attach struct {
	state.AttachRequest
	// Configured attaches nothing if no number is configured.
	Configured bool `json:"configured,omitempty"`
	// Exact detaches the last devices of more than the number.
	Exact bool `json:"exact,omitempty"`
	// Refresh attaches nothing: the asker's shell learns the present indices of its GPUs.
	Refresh bool `json:"refresh,omitempty"`
	// Unregistered allows an environment that isn't registered: its attachments end when the state is read next.
	Unregistered bool `json:"unregistered,omitempty"`
}

// Detach ends attachments of an environment: those to Indices, or all if there are none.
type Detach struct {
	EID          snapshot.EnvID         `json:"eid"`
	Indices      []snapshot.DeviceIndex `json:"indices,omitzero"`
	Unregistered bool                   `json:"unregistered,omitempty"` // as in Attach
}

// Configure changes settings of an environment.
type Configure struct {
	EID snapshot.EnvID `json:"eid"`
	// Clear are the settings to remove, before those in Set are set.
	Clear []ConfigField      `json:"clear,omitzero"`
	Set   snapshot.EnvConfig `json:"set,omitzero"`
	// Resize also changes the capacity on attached devices: on all, or nothing if there is no room.
	Resize bool `json:"resize,omitempty"`
}

// ConfigField names a setting of an environment.
type ConfigField string

// The settings, with the names that people use.
const (
	Name      ConfigField = "name"
	GPUMemory ConfigField = "gpu-memory"
	GPUs      ConfigField = "gpus"
)

// Leave removes a process or a Jupyter kernel from its environment, if it is in one.
type Leave struct {
	PID    snapshot.PID `json:"pid,omitempty"`       // 0 for none
	Kernel string       `json:"kernel_id,omitempty"` // of a Jupyter kernel; empty for none
	// Own says that the process is the asker's shell: it must belong to the asker, also if it is in no environment.
	Own bool `json:"own,omitempty"`
}

// Result is what a change has done, for what commands print. It is JSON as it is.
type Result struct {
	EID    snapshot.EnvID     `json:"eid,omitempty"` // of the environment; empty for none
	Config snapshot.EnvConfig `json:"config,omitzero"`
	// Before and Now are the devices of the environment before and after the change.
	Before []snapshot.DeviceIndex `json:"before,omitempty"`
	Now    []snapshot.DeviceIndex `json:"now,omitempty"`
	// Instances are the MIG instances of those in Now that are attached by instance.
	Instances []Part `json:"mig,omitempty"`
	// Refused is why nothing was attached, although that was asked for.
	Refused string `json:"refused,omitempty"`
	// Remaining are the processes that still run in an environment after its last registered one: it lasts until they
	// end.
	Remaining []snapshot.PID `json:"remaining,omitempty"`
}

// Part is a device of which an environment has MIG instances.
type Part struct {
	Index     snapshot.DeviceIndex `json:"device"`
	Instances []snapshot.GPUUUID   `json:"mig"`
}

type operation interface {
	// check refuses what no asker may send; see Decode.
	check() error
	apply(f *state.Files, by Requester) (Result, error)
}

func (c Change) operation() (set operation, err error) {
	n := 0
	for o, isSet := range map[operation]bool{
		c.Enter: c.Enter != nil, c.Attach: c.Attach != nil, c.Detach: c.Detach != nil,
		c.Configure: c.Configure != nil, c.Leave: c.Leave != nil,
	} {
		if isSet {
			set, n = o, n+1
		}
	}
	if n != 1 {
		return nil, state.Refuse("a change has one operation, and this one has %d", n)
	}
	return set, nil
}

// Apply changes the state files for an asker. After an error, of package state, they are not to be written.
func (c Change) Apply(f *state.Files, by Requester) (Result, error) {
	o, err := c.operation()
	if err != nil {
		return Result{}, err
	}
	f.Asker = by.PID
	before := f.Overbooked(by.Reserved, by.Instant, by.Used)
	envs := f.EnvironmentsOf(by.UID)
	result, err := o.apply(f, by)
	if grows := c.Enter != nil || c.Attach != nil || c.Configure != nil; err == nil && grows {
		err = CheckShare(f, by.UID)
		if err == nil && by.UID != 0 {
			after := f.Overbooked(by.Reserved, by.Instant, by.Used)
			err = state.CheckReserved(by.Reserved, before, after, by.Instant)
		}
	}
	if err == nil && by.Caps != nil && (c.Attach != nil || c.Enter != nil) {
		entered := c.Enter != nil && c.Enter.Whole && f.EnvironmentsOf(by.UID) > envs
		err = by.Caps(f, &result, entered)
	}
	if err != nil {
		return Result{}, err
	}
	return result, nil
}
