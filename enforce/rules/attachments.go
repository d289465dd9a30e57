package rules

import (
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
)

// maxDuration detaches what a person has been attached to for too long, by the looks of the host's root.
// Processes that go on using the device are then for env-devices.
func (j *judge) maxDuration(h *judging.HostView) {
	for _, env := range h.InOrder {
		limit := env.Settings.MaxDuration
		if limit <= 0 {
			continue
		}
		for _, a := range env.Attachments {
			since := j.Next.Uses[judging.UseKey(h, h.PersonOf(env), a.Device)].Attached
			if lasted := h.At.Sub(since); lasted > limit && !h.SparesUse(env, a.Device.Index) {
				j.detachOld(h, env, a, enforce.Finding{Rule: enforce.RuleMaxDuration, For: lasted, Limit: limit}, nil)
			}
		}
	}
}

// detachOld takes a device from an environment, and ends processes there.
func (j *judge) detachOld(h *judging.HostView, env *judging.EnvView, a judging.Attachment, f enforce.Finding,
	ending []*snapshot.Process,
) {
	f.ID = string(f.Rule) + "/" + string(h.Name) + "/" + string(env.Env.EID) + "/" + a.Device.Key() + "/" + a.Time.ISO()
	f.Host, f.EID, f.User, f.UID = h.Name, env.Env.EID, env.Env.Username, env.UID()
	f.Devices, f.Instances = append(f.Devices, a.Device.Index), a.Instances
	f.Warn = env.Settings.WarnOf(f.Rule)
	due := j.CheckDue(h, &f, judging.NewClock(f.Warn, string(f.Rule)+"/"+judging.UseKey(h, h.PersonOf(env), a.Device)))
	j.LoseDevice(&f, due, h, env, a.Device.Index)
	for _, p := range ending {
		j.End(&f, due, h, p)
	}
	if due && f.Rule == enforce.RuleIdle && !env.Settings.Idle.End {
		h.Release(a.Device, env)
	}
	j.Add(f)
}
