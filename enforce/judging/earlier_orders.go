package judging

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// NoteIdleDetached notes a detachment for being idle. env-devices spares the processes that still use the device until
// another environment is attached to it, or they compute there.
func (h *HostView) NoteIdleDetached(d *snapshot.Device, env *EnvView) {
	h.j.Next.IdleDetached[snapshot.AttachmentKey{Host: h.Name, Device: d.Key(), EID: env.Env.EID}] = true
}

// assignIdleDetached gives the views of hosts their idle-detached devices. It replaces indices, of earlier versions and
// hosts without UUIDs, by UUIDs.
func (j *Judgement) assignIdleDetached() {
	for key, still := range maps.Clone(j.Next.IdleDetached) {
		h, inFleet := j.ByName[key.Host]
		if h == nil {
			if !inFleet {
				delete(j.Next.IdleDetached, key)
			}
			continue
		}
		if index, err := strconv.Atoi(key.Device); err == nil {
			if d := h.Snapshot.Device(snapshot.DeviceIndex(index)); d != nil {
				delete(j.Next.IdleDetached, key)
				key.Device = d.Key()
				j.Next.IdleDetached[key] = still
			}
		}
		h.idleDetached = append(h.idleDetached, key)
	}
}

func assignTried[T any](j *Judgement, processes map[snapshot.ProcessKey]T) {
	for key := range processes {
		if h, inFleet := j.ByName[key.Host]; !inFleet {
			delete(processes, key)
		} else if h != nil {
			h.tried = append(h.tried, key)
		}
	}
}

// IdleDetached reports whether an environment's processes may still use a device that was detached for being idle, and
// whether they could until they computed. A device of unknown UUID may be any.
func (j *Judgement) IdleDetached(h *HostView, env *EnvView, index snapshot.DeviceIndex) (still, was bool) {
	d := h.Snapshot.Device(index)
	if d == nil || len(d.Attachments) > 0 {
		return false, false
	}
	key := snapshot.AttachmentKey{Host: h.Name, Device: d.Key(), EID: env.Env.EID}
	if d.UUID == "" {
		for _, other := range h.idleDetached {
			if other.EID == key.EID && h.withKey(other.Device) == nil {
				return true, true
			}
		}
	}
	still, was = j.Next.IdleDetached[key]
	if still && h.computes(env, d) {
		still, j.Next.IdleDetached[key] = false, false
	}
	return still, was
}

func (h *HostView) computes(env *EnvView, d *snapshot.Device) bool {
	below, rule := 1, env.Settings.Idle
	if rule != nil {
		below = max(below, rule.Below)
	}
	if d.Utilization == nil || d.ComputesLess(below) || rule != nil && d.DrawsLess(rule.BelowPower) ||
		d.ProcessesUnknown || len(h.UnknownOn[d.Index]) > 0 {
		return false
	}
	for i := range h.Snapshot.Processes {
		if p := &h.Snapshot.Processes[i]; p.Uses(d.Index) != nil && (h.In[i] != env || p.NodeMissing) {
			return false
		}
	}
	return true
}

func (h *HostView) withKey(key string) *snapshot.Device {
	return snapshot.Find(h.Snapshot.Devices, func(d *snapshot.Device) bool { return d.Key() == key })
}

// stillUses reports use of a device without an attachment; possible use if the device is unknown.
func (h *HostView) stillUses(eid snapshot.EnvID, key string) bool {
	env, d := h.Envs[eid], h.withKey(key)
	if env == nil || d == nil || env.Attached(d.Index) {
		return env != nil && d == nil && len(env.Processes) > 0
	}
	return slices.ContainsFunc(env.Processes, func(p *snapshot.Process) bool { return p.Uses(d.Index) != nil })
}

func (h *HostView) stuckReason(p *snapshot.Process) (reason string, stuck bool) {
	if len(h.tried) == 0 {
		return "", false
	}
	j, key := h.j, snapshot.ProcessKey{Host: h.Name, PID: p.PID, Start: p.Start}
	until, again := j.Next.RetryAt[key]
	left := until.Sub(j.Now)
	switch reason, stuck = j.Next.Stuck[key]; {
	case !again:
		return reason, stuck
	case left <= 0:
		return "", false
	case stuck:
		return fmt.Sprintf("%s; it is tried again in %s", reason, text.ShortDuration(left)), true
	}
	return fmt.Sprintf("an order to end it was sent already; another one follows in %s if it still runs",
		text.ShortDuration(left)), true
}

func (h *HostView) forgetEnded() {
	for _, key := range h.idleDetached {
		if !h.stillUses(key.EID, key.Device) {
			delete(h.j.Next.IdleDetached, key)
		}
	}
	if len(h.tried) == 0 {
		return
	}
	running := make(map[snapshot.ProcessKey]bool, len(h.Snapshot.Processes))
	for i := range h.Snapshot.Processes {
		p := &h.Snapshot.Processes[i]
		running[snapshot.ProcessKey{Host: h.Name, PID: p.PID, Start: p.Start}] = true
	}
	for _, key := range h.tried {
		if !running[key] {
			delete(h.j.Next.Stuck, key)
			delete(h.j.Next.RetryAt, key)
		}
	}
}
