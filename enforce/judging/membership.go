package judging

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// The uid that the kernel reports for a process (see Process.CountsForUID) decides who is in an environment, and who
// uses a device. State files, environs and titles are only claims of users: they never make another user's device busy,
// exempt another user's process, or count for another user's cap.

// environmentOf is the environment of a process; nil for none or an unknown one. The policy may admit other users'
// processes that descend from one of the environment (sudo -u).
func (h *HostView) environmentOf(p *snapshot.Process) *EnvView {
	if env := h.Envs[p.EID]; env != nil && env.Env.Holds(p) {
		return env
	}
	if env := h.Envs[p.Inherited]; h.Settings.SudoUsers && !p.EnvUnknown && (p.EID == "" || p.EID == p.Inherited) {
		return env
	}
	return nil
}

// Claimed is the registered environment that a process claims without being in it; nil for none.
func (h *HostView) Claimed(p *snapshot.Process) *EnvView {
	if p.EnvUnknown || p.EID == "" {
		return nil
	}
	if env := h.Envs[p.EID]; env != nil && h.environmentOf(p) != env {
		return env
	}
	return nil
}

// Processes of unknown environment count for the environments of their uid.
func (h *HostView) use(env *EnvView, index snapshot.DeviceIndex) Certainty {
	most := env.desktopUse[index]
	for p := range env.On(index) {
		most = max(most, UseBy(env.Env.UID, p))
	}
	for _, p := range h.UnknownOn[index] {
		most = max(most, UseBy(env.Env.UID, p))
	}
	return most
}

// HidesOn reports whether a process of the environment's user, perhaps in it, uses a device.
func (h *HostView) HidesOn(env *EnvView, index snapshot.DeviceIndex) bool {
	return slices.ContainsFunc(h.UnknownOn[index], func(p *snapshot.Process) bool {
		return UseBy(env.Env.UID, p) == Proven
	})
}

// UserOf names the user of a process for caps and limits: "" if unknown, and for root, for whom no cap counts.
func (h *HostView) UserOf(p *snapshot.Process) snapshot.Username {
	user, uid := p.CountsFor()
	switch {
	case uid == nil || *uid == 0:
		return ""
	case user != "":
		return user
	}
	if env := h.Envs[p.EID]; env != nil && env.Env.UID == *uid && env.Env.Username != "" {
		return env.Env.Username
	}
	return gpus.UserName("", uid)
}

// OutsideByPolicy reports whether the policy treats a process as outside because it overwrote its environ.
func (h *HostView) OutsideByPolicy(p *snapshot.Process) bool {
	return h.Settings.UnknownOutside && p.EnvUnknown && p.EnvOverwritten
}

// TargetOf is the user whom ending a process is directed against: its own, or that of its environment; "" in a
// container that counts for no user.
func (h *HostView) TargetOf(p *snapshot.Process) snapshot.Username {
	if user := h.UserOf(p); user != "" || p.StartedByUnknown() {
		return user
	}
	if env := h.environmentOf(p); env != nil {
		return env.Env.Username
	}
	return ""
}

// InstancesOf are the MIG instances of these devices that a process uses, and unknown ones; all without devices.
func (h *HostView) InstancesOf(p *snapshot.Process, devices []snapshot.DeviceIndex) []snapshot.GPUUUID {
	if len(p.Instances) == 0 || len(devices) == 0 {
		return p.Instances
	}
	if h.instanceOn == nil {
		h.instanceOn = make(map[snapshot.GPUUUID]snapshot.DeviceIndex)
		for i := range h.Snapshot.Devices {
			for _, instance := range h.Snapshot.Devices[i].Instances {
				h.instanceOn[instance.UUID] = h.Snapshot.Devices[i].Index
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(p.Instances), func(uuid snapshot.GPUUUID) bool {
		index, known := h.instanceOn[uuid]
		return known && !slices.Contains(devices, index)
	})
}
