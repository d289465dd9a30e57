package state

import (
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Files are the contents of the state files, envs.json and devices.json.
type Files struct {
	Environments []snapshot.Environment
	// Devices is nil while devices.json has not been made yet, which is not
	// the same as a host without devices: see ErrNoDevices and Store.RegisterDevices.
	Devices []snapshot.Device
	// Warnings are what a Store noticed and could work around, in plain
	// English, one line each. They are never written to a file.
	Warnings []string
	// LivenessUnknown says that the processes in the files are of another PID
	// namespace, or may be: nothing was cleaned up, and their PIDs mean nothing
	// here.
	LivenessUnknown bool
	// Restorations are those of the last minute, the oldest first.
	Restorations []Restoration
	// DevicesNotSaved says that devices.json was lost and could not be written, so
	// that what was attached since root's copy is still missing.
	DevicesNotSaved bool

	foreign bool    // the PIDs are of namespaces that root's note names, which are not ours
	remains remains // nil when no processes are looked for
	adopted map[snapshot.EnvID][]snapshot.PID
}

// Successors are the processes that were registered in an environment when its last
// registered process left: the environment lasts until they end.
func (b *Files) Successors(eid snapshot.EnvID) []snapshot.PID { return b.adopted[eid] }

// adopt registers the processes that still run in an environment which its last
// registered process leaves.
func (b *Files) adopt(env *snapshot.Environment, leaving snapshot.PID) {
	if b.remains == nil || len(env.PIDs) > 0 || len(env.KernelIDs) > 0 {
		return
	}
	if env.PIDs = b.remains(env, leaving); len(env.PIDs) == 0 {
		return
	}
	if b.adopted == nil {
		b.adopted = map[snapshot.EnvID][]snapshot.PID{}
	}
	b.adopted[env.EID] = env.PIDs
}

// Environment returns the registered environment with an id, or nil.
func (b *Files) Environment(eid snapshot.EnvID) *snapshot.Environment {
	return snapshot.FindEnvironment(b.Environments, eid)
}

// byID is for many lookups: any user can register many thousand environments.
func (b *Files) byID() map[snapshot.EnvID]*snapshot.Environment {
	environments := make(map[snapshot.EnvID]*snapshot.Environment, len(b.Environments))
	for i := range slices.Backward(b.Environments) { // of two with one id the first counts
		environments[b.Environments[i].EID] = &b.Environments[i]
	}
	return environments
}

// EnvironmentOf returns the environment in which a process is registered, or nil.
func (b *Files) EnvironmentOf(pid snapshot.PID) *snapshot.Environment {
	for i := range b.Environments {
		if slices.Contains(b.Environments[i].PIDs, pid) {
			return &b.Environments[i]
		}
	}
	return nil
}

// EnvironmentOfKernel returns the environment in which a Jupyter kernel is
// registered, or nil.
func (b *Files) EnvironmentOfKernel(id string) *snapshot.Environment {
	for i := range b.Environments {
		if slices.Contains(b.Environments[i].KernelIDs, id) {
			return &b.Environments[i]
		}
	}
	return nil
}

// Device returns the device at an index, or nil.
func (b *Files) Device(index snapshot.DeviceIndex) *snapshot.Device {
	return snapshot.FindDevice(b.Devices, index)
}

// AttachedTo lists the indices of the devices that an environment is attached
// to, in ascending order.
func (b *Files) AttachedTo(eid snapshot.EnvID) []snapshot.DeviceIndex {
	indices := snapshot.AttachedTo(b.Devices, eid)
	slices.Sort(indices)
	return indices
}

// registered is the environment with an id, or ErrNoEnvironment.
func (b *Files) registered(eid snapshot.EnvID) (*snapshot.Environment, error) {
	env := b.Environment(eid)
	if env == nil {
		return nil, fmt.Errorf("%w: %q; `genv envs` lists the active ones", ErrNoEnvironment, eid)
	}
	return env, nil
}

// CheckOwner says whether a user may act on an environment: its own user and
// root may. The error wraps ErrNotOwner, or ErrNoEnvironment when there is no
// such environment.
func (b *Files) CheckOwner(eid snapshot.EnvID, uid snapshot.UID) error {
	env, err := b.registered(eid)
	if err != nil {
		return err
	}
	if uid != 0 && uid != env.UID {
		return fmt.Errorf("%w: %q belongs to uid %d; only that user and root may change it", ErrNotOwner, eid, env.UID)
	}
	return nil
}
