package change

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Change is one change: exactly one of its pointers is set. It is JSON as it is; see
// Decode for what comes from another process.
type Change struct {
	Enter     *Enter     `json:"enter,omitempty"`
	Attach    *Attach    `json:"attach,omitempty"`
	Detach    *Detach    `json:"detach,omitempty"`
	Configure *Configure `json:"configure,omitempty"`
	Leave     *Leave     `json:"leave,omitempty"`
}

// Enter registers a process or a Jupyter kernel in an environment, which is new if it is not registered. The process
// belongs to the asker; only root may register the process of another user.
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
	Availability
	// Whole fails if a cap of the policy doesn't allow all of it. Otherwise it attaches nothing then: see
	// Result.Refused.
	Whole bool `json:"whole,omitempty"`
}

// Availability is what the asker knows of the devices that others use, or may use.
type Availability = state.Availability

// Attach attaches an environment to devices. Without Count and Indices it is as many as
// the environment is configured with; if that is not set, one.
type Attach struct {
	EID           snapshot.EnvID         `json:"eid"`
	Count         int                    `json:"count,omitempty"` // in all, with those that it has; 0 for none
	Indices       []snapshot.DeviceIndex `json:"indices,omitzero"`
	OverSubscribe bool                   `json:"over_subscribe,omitempty"`
	Availability
	// Instances are MIG instances to attach instead of devices.
	Instances []state.InstanceRequest `json:"mig,omitempty"`
	// Memory is the capacity on each device, instead of that of the environment.
	Memory snapshot.Memory `json:"gpu_memory,omitzero"`
	// Configured attaches nothing if no number is configured.
	Configured bool `json:"configured,omitempty"`
	// Exact detaches the last devices of more than the number.
	Exact bool `json:"exact,omitempty"`
	// Refresh attaches nothing: the asker's shell learns the present indices of its GPUs.
	Refresh bool `json:"refresh,omitempty"`
	// Unregistered allows an environment that is not registered. As in 1.4.3, its
	// attachments end when the state is next read.
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
	// Resize also changes the capacity on attached devices. If one has too little free memory,
	// nothing is changed. Without Resize, attachments stay as they are.
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

// Leave removes a process or a Jupyter kernel from its environment, which ends with its
// last one. For one that is in no environment it does nothing.
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
	// Remaining are the processes that still run in an environment after its last
	// registered process has left: it lasts until they end.
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

// operation is the one that is set.
func (c Change) operation() (operation, error) {
	var set []operation
	add := func(isSet bool, o operation) {
		if isSet {
			set = append(set, o)
		}
	}
	add(c.Enter != nil, c.Enter)
	add(c.Attach != nil, c.Attach)
	add(c.Detach != nil, c.Detach)
	add(c.Configure != nil, c.Configure)
	add(c.Leave != nil, c.Leave)
	if len(set) != 1 {
		return nil, fmt.Errorf("%w: a change has one operation, and this one has %d", state.ErrRequest, len(set))
	}
	return set[0], nil
}

// Apply changes the state files for an asker. After an error, which wraps one of the
// errors of package state, the files are not to be written.
func (c Change) Apply(f *state.Files, by Requester) (Result, error) {
	o, err := c.operation()
	if err != nil {
		return Result{}, err
	}
	f.Asker = by.PID
	before := f.Overbooked(by.Reserved, by.Instant)
	envs := f.EnvironmentsOf(by.UID)
	result, err := o.apply(f, by)
	if grows := c.Enter != nil || c.Attach != nil || c.Configure != nil; err == nil && grows {
		err = CheckShare(f, by.UID)
		if err == nil && by.UID != 0 {
			err = f.CheckReserved(by.Reserved, before, by.Instant)
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
