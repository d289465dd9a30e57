package enforce

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RuleMaxDuration is about devices that have been attached for too long.
const RuleMaxDuration Rule = "max-duration"

var maxDurationRule = rule{
	Setting: Setting{strictyaml.NewDuration(string(RuleMaxDuration),
		func(s *Settings) *time.Duration { return &s.MaxDuration }, "7d", time.Minute, year), ByHost | ByUser},
	advice: "Save your work: what goes on using the GPU may be ended. Attach it again afterwards, if it is free: " +
		"genv attach.",
	adviceRun: "Save your work: what goes on using the GPU may be ended. Start it again afterwards with genv run.",
	line: func(f Finding) string {
		return fmt.Sprintf("Environment %s is attached to device %s for %s, and %s are allowed",
			f.EID, text.JoinIndices(f.Devices), text.ShortDuration(f.For), text.ShortDuration(f.Limit))
	},
}

// maxDuration detaches what a person has been attached to for too long, by the looks of the host's root.
// Processes that go on using the device are then for env-devices.
func (j *judgement) maxDuration(h *hostView) {
	for _, env := range h.inOrder {
		limit := env.settings.MaxDuration
		if limit <= 0 {
			continue
		}
		for _, a := range env.Attachments {
			since := j.next.Uses[useKey(h, h.personOf(env), a.Device)].Attached
			if lasted := h.at.Sub(since); lasted > limit && !h.sparesUse(env, a.Device.Index) {
				j.detachOld(h, env, a, Finding{Rule: RuleMaxDuration, For: lasted, Limit: limit}, nil)
			}
		}
	}
}

// detachOld takes a device from an environment, and ends processes there.
func (j *judgement) detachOld(h *hostView, env *envView, a contents.Attachment, f Finding, ending []*snapshot.Process) {
	f.ID = string(f.Rule) + "/" + string(h.name) + "/" + string(env.env.EID) + "/" + a.Device.Key() + "/" + a.Time.ISO()
	f.Host, f.EID, f.User, f.UID = h.name, env.env.EID, env.env.Username, env.uid()
	f.Devices, f.Instances = append(f.Devices, a.Device.Index), a.Instances
	f.Warn = env.settings.warnOf(f.Rule)
	due := j.checkDue(h, &f, clock{f.Warn, []string{string(f.Rule) + "/" + useKey(h, h.personOf(env), a.Device)}})
	j.loseDevice(&f, due, h, env, a.Device.Index)
	for _, p := range ending {
		j.end(&f, due, h, p)
	}
	if due && f.Rule == RuleIdle && !env.settings.Idle.End {
		h.release(a.Device, env)
	}
	j.add(f)
}
