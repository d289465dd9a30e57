// Package change is what a person can ask for to be changed in the state files, as a value: the same code applies it in
// the process of that person and in the service to which it was sent as JSON.
//
//	c, err := change.Decode(request)
//	result, err := c.Apply(files, change.Requester{UID: uid, …}) // under the lock of the state files
//
// Who may change what is decided here. A change never says who wants it: that is the Requester. This package has no
// clock and touches no file or process.
package change

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/quota"
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

// Enter registers a process of the asker (for root, of anybody) or a Jupyter kernel in an environment, new or not.
type Enter struct {
	EID    snapshot.EnvID `json:"eid,omitempty"`       // if it is empty, a new one is named after the process
	PID    snapshot.PID   `json:"pid,omitempty"`       // 0 for none
	Kernel string         `json:"kernel_id,omitempty"` // of a Jupyter kernel; empty for none
	// Config is that of a new environment; in an existing one what is set replaces what it had.
	Config        snapshot.EnvConfig `json:"config,omitzero"`
	Attach        bool               `json:"attach,omitempty"` // as many devices as Config has, if it has a number
	OverSubscribe bool               `json:"over_subscribe,omitempty"`
	state.Availability
	// Whole fails if a cap doesn't allow all of it; otherwise nothing is attached then: see Result.Refused.
	Whole bool `json:"whole,omitempty"`
}

// Attach attaches as many devices as configured, else one, unless a number is given. Unknown Memory is as configured.
type Attach struct {
	state.AttachRequest
	Configured bool `json:"configured,omitempty"` // attach nothing if no number is configured
	Exact      bool `json:"exact,omitempty"`      // detach the last devices of more than the number
	Refresh    bool `json:"refresh,omitempty"`    // only learn the present indices of the GPUs
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
	EID   snapshot.EnvID     `json:"eid"`
	Clear []string           `json:"clear,omitzero"` // the settings to remove, before those in Set are set
	Set   snapshot.EnvConfig `json:"set,omitzero"`
	// Resize also changes the capacity on attached devices: on all, or on none if one has no room.
	Resize bool `json:"resize,omitempty"`
}

// The settings of an environment, with the names that people use.
const (
	Name      = "name"
	GPUMemory = "gpu-memory"
	GPUs      = "gpus"
)

// Leave removes a process or a Jupyter kernel from its environment, if it is in one.
type Leave struct {
	PID    snapshot.PID `json:"pid,omitempty"`       // 0 for none
	Kernel string       `json:"kernel_id,omitempty"` // of a Jupyter kernel; empty for none
	// Own says that the process is the asker's shell: it must belong to the asker, also if it is in no environment.
	Own bool `json:"own,omitempty"`
}

// Result is what a change has done, as JSON and for what commands print.
type Result struct {
	EID       snapshot.EnvID         `json:"eid,omitempty"` // of the environment; empty for none
	Config    snapshot.EnvConfig     `json:"config,omitzero"`
	Before    []snapshot.DeviceIndex `json:"before,omitempty"`    // its devices before the change
	Now       []snapshot.DeviceIndex `json:"now,omitempty"`       // its devices after the change
	Instances []Part                 `json:"mig,omitempty"`       // of those in Now that are attached by instance
	Refused   string                 `json:"refused,omitempty"`   // why nothing was attached, although it was asked for
	Remaining []snapshot.PID         `json:"remaining,omitempty"` // that keep it after its last registered process
}

// Part is a device of which an environment has MIG instances.
type Part struct {
	Index     snapshot.DeviceIndex `json:"device"`
	Instances []snapshot.GPUUUID   `json:"mig"`
}

// InstancesOf are the MIG instances of one of the devices; nil for the whole device.
func (r *Result) InstancesOf(index snapshot.DeviceIndex) []snapshot.GPUUUID {
	for _, part := range r.Instances {
		if part.Index == index {
			return part.Instances
		}
	}
	return nil
}

type operation interface {
	check() error // refuses what no asker may send; see Decode
	apply(f *state.Files, by Requester) (Result, error)
}

func (c Change) operation() (set operation, err error) {
	n := 0
	for _, value := range reflect.ValueOf(c).Fields() {
		if !value.IsNil() {
			set, n = value.Interface().(operation), n+1
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
		err = checkShare(f, by.UID)
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

// Requester is who asks for a change, as the kernel and whoever applies it say: nothing is taken from a request.
type Requester struct {
	UID      snapshot.UID
	PID      snapshot.PID // the process that asks: it doesn't keep an environment that it leaves
	Now      snapshot.Date
	Owner    func(snapshot.PID) (snapshot.UID, error) // the account of a process; is called under the lock
	Username func(snapshot.UID) snapshot.Username     // empty for none; may take seconds: see Prepare
	Lacks    func(snapshot.UID) bool                  // certainly no account, so no environment; nil doesn't ask
	Reserved []snapshot.Reservation                   // of the host; nil refuses nothing
	Instant  time.Time                                // for Reserved
	Used     map[snapshot.DeviceIndex][]snapshot.UID  // who used GPUs lately
	// Caps returns an error, which wraps state.ErrCap, if the policy doesn't allow the files after the change; nil
	// allows all. entered says that there is one environment more.
	Caps func(f *state.Files, r *Result, entered bool) error
}

// Prepare looks up what takes too long under the lock. Its errors are those of Apply.
func (c Change) Prepare(by Requester) (Requester, error) {
	if c.Enter == nil {
		return by, nil
	}
	uid, err := by.userOf(c.Enter.PID)
	if err != nil {
		return by, err
	}
	if by.Lacks != nil && by.Lacks(uid) {
		return by, state.Refuse("uid %d has no account on this host, so it gets no environment", uid)
	}
	name := by.Username(uid)
	by.Username = func(of snapshot.UID) snapshot.Username {
		if of != uid { // the process has changed its user
			return ""
		}
		return name
	}
	return by, nil
}

// userOf is for whom a process is registered: its owner, for a kernel (PID 0) the asker. Root may ask for another's.
func (by Requester) userOf(pid snapshot.PID) (snapshot.UID, error) {
	if pid == 0 {
		return by.UID, nil
	}
	owner, err := by.Owner(pid)
	if err != nil {
		return 0, err
	}
	if by.UID != 0 && owner != by.UID {
		return 0, fmt.Errorf("%w: process %d belongs to uid %d: only that user and root may activate it",
			state.ErrNotOwner, pid, owner)
	}
	return owner, nil
}

// What may be in a state file. A weight is about the bytes.
const (
	maxShare  = 64 << 10 // of a user: about 450 environments
	maxWeight = 1_000_000

	entryWeight  = 112 // an environment or an attachment, without its texts
	memberWeight = 16  // a process or a Jupyter kernel, without its id
	commaWeight  = 8   // values are counted by the commas, also those in texts
)

// checkShare refuses more than a user's share, unless the user is root, or than there is room for.
func checkShare(f *state.Files, uid snapshot.UID) error {
	environments := snapshot.ByID(f.Environments)
	var own, all [2]int // the weights in each file
	add := func(file state.File, weight int, isOwn bool) {
		if all[file] += weight; isOwn {
			own[file] += weight
		}
	}
	for i := range f.Environments {
		e := &f.Environments[i]
		add(state.Envs, weightOf(e), e.UID == uid)
	}
	for i := range f.Devices {
		for _, a := range f.Devices[i].Attachments {
			env := environments[a.EID]
			weight := entryWeight + textWeight(string(a.EID)) + textWeight(a.GPUMemory.String())
			add(state.Devices, weight, env == nil || env.UID == uid)
		}
	}
	for file, what := range [2][2]string{
		{"environments, processes and kernels", "genv deactivate"}, {"attachments", "genv detach"},
	} {
		switch {
		case uid != 0 && own[file] > maxShare:
			return state.Refuse("uid %d has more %s than one user may have: end some with `%s`", uid, what[0], what[1])
		case uid != 0 && !quota.Leaves(own[file], all[file], maxWeight):
			return state.Refuse("the state files of this host are nearly full, and uid %d has its part of them", uid)
		case all[file] > maxWeight:
			return state.Refuse("the state files of this host are full")
		}
	}
	return nil
}

func weightOf(e *snapshot.Environment) int {
	weight := entryWeight + memberWeight*(len(e.PIDs)+len(e.KernelIDs))
	for _, text := range []string{string(e.EID), string(e.Username), e.Config.Name, e.Config.GPUMemory.String()} {
		weight += textWeight(text)
	}
	for _, id := range e.KernelIDs {
		weight += textWeight(id)
	}
	return weight
}

func textWeight(text string) int { return len(text) + (commaWeight-1)*strings.Count(text, ",") }
