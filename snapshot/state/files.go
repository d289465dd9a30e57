// Package state is what the state files of a GPU host, envs.json and devices.json, say in the format of genv 1.4.3, and
// the rules for changing it. Files are the decoded contents of both, also of older versions; their methods are pure:
//
//	attached, err := files.Attach(state.AttachRequest{EID: "1667", Count: 2, At: now})
//
// Every user of the host may write the files, so all fields are checked. Package disk reads and writes them.
package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Files are the decoded contents of envs.json and devices.json.
type Files struct {
	Environments []snapshot.Environment
	// Devices is nil as long as there is no devices.json, which does not mean a host without devices: see ErrNoDevices.
	Devices         []snapshot.Device
	Warnings        []string          // problems that were worked around, one line each; never written to a file
	LivenessUnknown bool              // the PIDs may be of another PID namespace: nothing was cleaned up
	Foreign         bool              // the PIDs are known to be of another PID namespace
	KeepsNote       bool              // this genv keeps root's note about what it has seen
	At              time.Time         // when they were read, if what is read again without a change is the same; or zero
	Answers         []snapshot.Answer // in which environments processes were found before, and which of them have left
	Asker           snapshot.PID      // the process that asks for a change; 0 for this one
	// FindSuccessors lists what still runs in an environment that its last registered process leaves; nil if unknown.
	FindSuccessors func(env *snapshot.Environment, leaving snapshot.PID) []snapshot.PID

	// By root's note: the environments that were registered in this boot, and the GPUs to which attachments were made.
	earlier map[EnvironmentOwner]bool
	madeTo  map[attachmentKey][]snapshot.GPUUUID
}

func isEmpty(env *snapshot.Environment) bool { return len(env.PIDs) == 0 && len(env.KernelIDs) == 0 }

// RemoveEmpty removes environments without processes and kernels, except those to keep, and attachments of none.
func (f *Files) RemoveEmpty(keep map[snapshot.EnvID]bool) {
	f.Environments = without(f.Environments, func(e snapshot.Environment) bool { return isEmpty(&e) && !keep[e.EID] })
	registered := snapshot.ByID(f.Environments)
	for i := range f.Devices {
		d := &f.Devices[i]
		d.Attachments = without(d.Attachments, func(a snapshot.Attachment) bool { return registered[a.EID] == nil })
	}
}

// without is slices.DeleteFunc that leaves its argument unchanged.
func without[T any](items []T, remove func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(items), remove)
}

// with adds an item that isn't zero to a copy of a list, unless the list has it.
func with[T comparable](items []T, item T) []T {
	if item == *new(T) || slices.Contains(items, item) {
		return items
	}
	return append(slices.Clone(items), item)
}

// FreeID is the id of a new environment: a name, with a number if that is taken.
func (f *Files) FreeID(name string) snapshot.EnvID {
	eid := snapshot.EnvID(name)
	for n := 2; f.Environment(eid) != nil; n++ {
		eid = snapshot.EnvID(fmt.Sprintf("%s-%d", name, n))
	}
	return eid
}

// Environment returns the registered environment with an id, or nil.
func (f *Files) Environment(eid snapshot.EnvID) *snapshot.Environment {
	return snapshot.FindEnvironment(f.Environments, eid)
}

// EnvironmentOf returns the environment in which a process is registered, or nil.
func (f *Files) EnvironmentOf(pid snapshot.PID) *snapshot.Environment {
	return snapshot.Find(f.Environments, func(e *snapshot.Environment) bool { return slices.Contains(e.PIDs, pid) })
}

// EnvironmentOfKernel is where a user's Jupyter kernel, or for root any user's, is registered; nil for nowhere.
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

// AttachedTo lists the indices of the devices that an environment is attached to, in ascending order.
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

// EnvironmentsOf is how many environments a user has.
func (f *Files) EnvironmentsOf(uid snapshot.UID) int { return len(f.ownedBy(uid)) }

// OwnAttached lists the GPUs that the environments of a user are attached to, in ascending order.
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

// CheckOwner refuses all but an environment's user and root. The error wraps ErrNotOwner or ErrNoEnvironment.
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

// MergeDevices updates the registered devices to a complete answer of nvidia-smi. Those that weren't found are removed
// unless they are attached. Warnings name what it could not do.
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

// gpuAt is which GPU an index is now. If nvidia-smi gives no UUID, it is the same, unless that one is elsewhere.
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

// Refresh renews the times of the attachments of an environment, as if they were made again at the present indices.
func (f *Files) Refresh(eid snapshot.EnvID, at snapshot.Date) {
	f.madeTo = maps.Clone(f.madeTo)
	for i := range f.Devices {
		d := &f.Devices[i]
		d.Attachments = slices.Clone(d.Attachments)
		a := d.Attachment(eid)
		if a == nil {
			continue
		}
		if a.Time == at { // a date has no parts of a second: it would look as before
			at = snapshot.DateOf(at.In(time.UTC).Add(time.Second))
		}
		a.Time = at
		delete(f.madeTo, attachmentKey{eid, d.Index})
	}
	f.identify()
}
