// Package state has the contents of a GPU host's state files, envs.json and devices.json, in the format of genv 1.4.3,
// and the rules for changing them. Files are the decoded contents, also of older versions; their methods are pure:
//
//	attached, err := files.Attach(state.AttachRequest{EID: "1667", Count: 2, At: now})
//
// Every user may write the files, so all fields are checked. Package disk reads and writes them.
package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Files are the decoded envs.json and devices.json.
type Files struct {
	Environments []snapshot.Environment
	// Devices is nil without a devices.json: see ErrNoDevices.
	Devices         []snapshot.Device
	Warnings        []string          // worked around, one line each; never written
	LivenessUnknown bool              // the PIDs may be of another PID namespace: nothing was cleaned up
	Foreign         bool              // the PIDs are certainly of another PID namespace
	KeepsNote       bool              // this process keeps root's note
	At              time.Time         // of the read, if another one without a change would be equal; or zero
	Answers         []snapshot.Answer // known environments of processes, and which processes left
	Asker           snapshot.PID      // the process that asks for a change; 0: this one
	// FindSuccessors lists what still runs after the last registered process leaves; nil if unknown.
	FindSuccessors func(env *snapshot.Environment, leaving snapshot.PID) []snapshot.PID

	// From root's note: environments registered since boot, and the GPUs of attachments.
	earlier map[EnvironmentOwner]bool
	madeTo  map[attachmentKey][]snapshot.GPUUUID
}

func isEmpty(env *snapshot.Environment) bool { return len(env.PIDs) == 0 && len(env.KernelIDs) == 0 }

// RemoveEmpty removes environments without processes and kernels, unless kept, and attachments of none.
func (f *Files) RemoveEmpty(keep map[snapshot.EnvID]bool) {
	f.Environments = without(f.Environments, func(e snapshot.Environment) bool { return isEmpty(&e) && !keep[e.EID] })
	registered := snapshot.ByID(f.Environments)
	for i := range f.Devices {
		d := &f.Devices[i]
		d.Attachments = without(d.Attachments, func(a snapshot.Attachment) bool { return registered[a.EID] == nil })
	}
}

// without is slices.DeleteFunc on a copy.
func without[T any](items []T, remove func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(items), remove)
}

// with adds an item to a copy of a list, unless zero or there already.
func with[T comparable](items []T, item T) []T {
	if item == *new(T) || slices.Contains(items, item) {
		return items
	}
	return append(slices.Clone(items), item)
}

// FreeID returns an unused id: the name, with a number if needed.
func (f *Files) FreeID(name string) snapshot.EnvID {
	eid := snapshot.EnvID(name)
	for n := 2; f.Environment(eid) != nil; n++ {
		eid = snapshot.EnvID(fmt.Sprintf("%s-%d", name, n))
	}
	return eid
}

// Environment returns the registered environment, or nil.
func (f *Files) Environment(eid snapshot.EnvID) *snapshot.Environment {
	return snapshot.FindEnvironment(f.Environments, eid)
}

// EnvironmentOf returns a process's environment, or nil.
func (f *Files) EnvironmentOf(pid snapshot.PID) *snapshot.Environment {
	return snapshot.Find(f.Environments, func(e *snapshot.Environment) bool { return slices.Contains(e.PIDs, pid) })
}

// EnvironmentOfKernel returns the environment of a user's (for root: any) Jupyter kernel, or nil.
func (f *Files) EnvironmentOfKernel(id string, uid snapshot.UID) *snapshot.Environment {
	has := func(e *snapshot.Environment) bool { return slices.Contains(e.KernelIDs, id) }
	own := func(e *snapshot.Environment) bool { return e.UID == uid && has(e) }
	if env := snapshot.Find(f.Environments, own); env != nil || uid != 0 {
		return env
	}
	return snapshot.Find(f.Environments, has)
}

// Device returns the device at an index, or nil.
func (f *Files) Device(index snapshot.DeviceIndex) *snapshot.Device {
	return snapshot.FindDevice(f.Devices, index)
}

// AttachedTo lists an environment's devices in ascending order.
func (f *Files) AttachedTo(eid snapshot.EnvID) []snapshot.DeviceIndex {
	indices := snapshot.AttachedTo(f.Devices, eid)
	slices.Sort(indices)
	return indices
}

func (f *Files) ownedBy(uid snapshot.UID) (eids []snapshot.EnvID) {
	for i := range f.Environments {
		if env := &f.Environments[i]; env.UID == uid && !env.OwnerMismatch {
			eids = append(eids, env.EID)
		}
	}
	return eids
}

// EnvironmentsOf counts a user's environments.
func (f *Files) EnvironmentsOf(uid snapshot.UID) int { return len(f.ownedBy(uid)) }

// OwnAttached lists the GPUs attached to a user's environments, in ascending order.
func (f *Files) OwnAttached(uid snapshot.UID) (indices []snapshot.DeviceIndex) {
	for _, eid := range f.ownedBy(uid) {
		indices = append(indices, f.AttachedTo(eid)...)
	}
	slices.Sort(indices)
	return slices.Compact(indices)
}

func (f *Files) registered(eid snapshot.EnvID) (*snapshot.Environment, error) {
	env := f.Environment(eid)
	if env == nil {
		return nil, fmt.Errorf("%w: %q; `genv envs` lists the active ones", ErrNoEnvironment, eid)
	}
	return env, nil
}

// CheckOwner refuses all but the environment's user and root. The error wraps ErrNotOwner or ErrNoEnvironment.
func (f *Files) CheckOwner(eid snapshot.EnvID, uid snapshot.UID) error {
	env, err := f.registered(eid)
	if err != nil {
		return err
	}
	if uid != 0 && uid != env.UID {
		return fmt.Errorf("%w: %q belongs to uid %d; only that user and root may change it", ErrNotOwner, eid, env.UID)
	}
	return nil
}

// Warn adds a warning.
func (f *Files) Warn(format string, args ...any) {
	f.Warnings = append(f.Warnings, fmt.Sprintf(format, args...))
}

// MergeDevices applies a complete answer of nvidia-smi. It removes missing devices unless attached. Warnings name what
// it couldn't do.
func (f *Files) MergeDevices(found []snapshot.Device) {
	kept := make([]snapshot.Device, 0, len(found))
	for _, d := range f.Devices {
		now := snapshot.FindDevice(found, d.Index)
		if f.KeepsNote || d.UUID != "" {
			d.UUID = gpuAt(found, &d)
		}
		switch {
		case now != nil && now.TotalMemory.Known() && !d.SameTotal(now):
			d.TotalMemory, d.Unified = now.TotalMemory, now.Unified
		case now == nil && len(d.Attachments) == 0:
			continue
		case now == nil:
			f.Warn("GPU %d is attached to %d environments but nvidia-smi no longer shows it",
				d.Index, len(d.Attachments))
		}
		kept = append(kept, d)
	}
	for _, d := range found {
		switch {
		case f.Device(d.Index) != nil:
		case d.TotalMemory.Known():
			kept = append(kept, snapshot.Device{
				Index: d.Index, UUID: d.UUID, TotalMemory: d.TotalMemory, Unified: d.Unified,
			})
		case !d.Failed:
			f.Warn("GPU %d is not registered: nvidia-smi does not report its memory", d.Index)
		}
	}
	slices.SortFunc(kept, func(x, y snapshot.Device) int { return cmp.Compare(x.Index, y.Index) })
	f.Devices = kept
	f.identify()
}

// gpuAt is the GPU now at an index. Without a UUID from nvidia-smi it is the same, unless that moved.
func gpuAt(found []snapshot.Device, was *snapshot.Device) snapshot.GPUUUID {
	now := snapshot.FindDevice(found, was.Index)
	elsewhere := slices.ContainsFunc(found, func(o snapshot.Device) bool { return o.UUID == was.UUID })
	switch {
	case now == nil || now.UUID == "" && elsewhere:
		return ""
	case now.UUID == "":
		return was.UUID
	}
	return now.UUID
}

// Refresh renews an environment's attachments, as if made now at the present indices.
func (f *Files) Refresh(eid snapshot.EnvID, at snapshot.Date) {
	f.madeTo = maps.Clone(f.madeTo)
	for i := range f.Devices {
		d := &f.Devices[i]
		d.Attachments = slices.Clone(d.Attachments)
		a := d.Attachment(eid)
		if a == nil {
			continue
		}
		if a.Time == at { // dates have whole seconds: it must differ
			at = snapshot.DateOf(at.In(time.UTC).Add(time.Second))
		}
		a.Time = at
		delete(f.madeTo, attachmentKey{eid, d.Index})
	}
	f.identify()
}
