// Package change has the changes that people can request, as values. The same code applies them in the requester's
// process, and in the service that receives them as JSON.
//
//	c, err := change.Decode(request)
//	result, err := c.Apply(files, change.Requester{UID: uid, …}) // under the lock of the state files
//
// It decides who may change what. A change never says who requests it: that is the Requester. It reads no clock, file
// or process.
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

// Change has exactly one pointer set. See Decode for JSON from other processes.
type Change struct {
	Enter     *Enter     `json:"enter,omitempty"`
	Attach    *Attach    `json:"attach,omitempty"`
	Detach    *Detach    `json:"detach,omitempty"`
	Configure *Configure `json:"configure,omitempty"`
	Leave     *Leave     `json:"leave,omitempty"`
}

// Enter registers a process of the requester (for root: of anyone) or a Jupyter kernel.
type Enter struct {
	EID    snapshot.EnvID `json:"eid,omitempty"`       // empty: a new one named after the process
	PID    snapshot.PID   `json:"pid,omitempty"`       // 0: none
	Kernel string         `json:"kernel_id,omitempty"` // of a Jupyter kernel; empty: none
	// Config is for a new environment; what it sets replaces the settings of an existing one.
	Config        snapshot.EnvConfig `json:"config,omitzero"`
	Attach        bool               `json:"attach,omitempty"` // as many devices as Config says, if it does
	OverSubscribe bool               `json:"over_subscribe,omitempty"`
	state.Availability
	// Whole: fail if a cap refuses part of it. Otherwise nothing is attached then: see Result.Refused.
	Whole bool `json:"whole,omitempty"`
}

// Attach attaches as many devices as given, else as configured, else one. Unknown Memory: as configured.
type Attach struct {
	state.AttachRequest
	Configured bool `json:"configured,omitempty"` // attach nothing if no number is configured
	Exact      bool `json:"exact,omitempty"`      // detach the last devices beyond the number
	Refresh    bool `json:"refresh,omitempty"`    // only learn the present indices of the GPUs
	// Unregistered allows an unregistered environment, whose attachments end at the next read.
	Unregistered bool `json:"unregistered,omitempty"`
}

// Detach ends attachments to Indices, or all if there are none.
type Detach struct {
	EID          snapshot.EnvID         `json:"eid"`
	Indices      []snapshot.DeviceIndex `json:"indices,omitzero"`
	Unregistered bool                   `json:"unregistered,omitempty"` // as in Attach
}

// Configure changes an environment's settings.
type Configure struct {
	EID   snapshot.EnvID     `json:"eid"`
	Clear []string           `json:"clear,omitzero"` // settings to remove before setting Set
	Set   snapshot.EnvConfig `json:"set,omitzero"`
	// Resize also changes the capacity on all attached devices, or none if one lacks room.
	Resize bool `json:"resize,omitempty"`
}

// Names of an environment's settings, as people write them.
const (
	Name      = "name"
	GPUMemory = "gpu-memory"
	GPUs      = "gpus"
)

// Leave removes a process or Jupyter kernel from its environment, if it is in one.
type Leave struct {
	PID    snapshot.PID `json:"pid,omitempty"`       // 0: none
	Kernel string       `json:"kernel_id,omitempty"` // of a Jupyter kernel; empty: none
	// Own: the process is the requester's shell, and must be the requester's even in no environment.
	Own bool `json:"own,omitempty"`
}

// Result is what a change has done.
type Result struct {
	EID       snapshot.EnvID         `json:"eid,omitempty"` // of the environment; may be empty
	Config    snapshot.EnvConfig     `json:"config,omitzero"`
	Before    []snapshot.DeviceIndex `json:"before,omitempty"`    // devices before the change
	Now       []snapshot.DeviceIndex `json:"now,omitempty"`       // devices after it
	Instances []Part                 `json:"mig,omitempty"`       // those in Now attached by instance
	Refused   string                 `json:"refused,omitempty"`   // why nothing was attached despite the request
	Remaining []snapshot.PID         `json:"remaining,omitempty"` // processes that keep it alive
}

// Part is a device with attached MIG instances.
type Part struct {
	Index     snapshot.DeviceIndex `json:"device"`
	Instances []snapshot.GPUUUID   `json:"mig"`
}

// InstancesOf returns the MIG instances on a device; nil: the whole device.
func (r *Result) InstancesOf(index snapshot.DeviceIndex) []snapshot.GPUUUID {
	for _, part := range r.Instances {
		if part.Index == index {
			return part.Instances
		}
	}
	return nil
}

type operation interface {
	check() error // refuses what no requester may send; see Decode
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

// Apply changes the files. After an error (of package state) they must not be written.
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

// Requester is who asks, by the kernel and the caller, never by the request.
type Requester struct {
	UID      snapshot.UID
	PID      snapshot.PID // the asking process: it doesn't keep an environment that it leaves
	Now      snapshot.Date
	Owner    func(snapshot.PID) (snapshot.UID, error) // account of a process; called under the lock
	Username func(snapshot.UID) snapshot.Username     // may be empty; may take seconds: see Prepare
	Lacks    func(snapshot.UID) bool                  // certainly no account, so no environment; may be nil
	Reserved []snapshot.Reservation                   // of the host; nil refuses nothing
	Instant  time.Time                                // for Reserved
	Used     map[snapshot.DeviceIndex][]snapshot.UID  // recent users of GPUs
	// Caps fails with state.ErrCap if the policy doesn't allow the result; may be nil. entered: there is one more
	// environment.
	Caps func(f *state.Files, r *Result, entered bool) error
}

// Prepare looks up what takes too long under the lock. Errors are like Apply's.
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

// userOf is a process's owner; for a kernel (PID 0) the requester. Root may ask for others' processes.
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

// Limits on a state file's content. Weights approximate bytes.
const (
	maxShare  = 64 << 10 // per user: about 450 environments
	maxWeight = 1_000_000

	entryWeight  = 112 // an environment or attachment without its texts
	memberWeight = 16  // a process or Jupyter kernel without its id
	commaWeight  = 8   // values are counted by commas, including those in texts
)

// checkShare refuses more than a user's share (except root) or the files' limit.
func checkShare(f *state.Files, uid snapshot.UID) error {
	environments := snapshot.ByID(f.Environments)
	var own, all [2]int // weights in each file
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
