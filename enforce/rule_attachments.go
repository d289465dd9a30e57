package enforce

import (
	"time"

	"github.com/seed-3119e985/genv/enforce/contents"
)

// idleKey names an attachment for the idle rule. It stays the same when the device
// is detached and attached again, so that this doesn't reset the idle time.
func idleKey(h *hostView, env *envView, a contents.Attachment) string {
	return string(h.name) + "/" + string(env.env.Username) + "/" + string(env.env.EID) + "/" + a.Device.Key()
}

// watchIdle finds the attachments that are idle now.
func (j *judgement) watchIdle() {
	idle := make(map[string]time.Duration)
	var many []*hostView
	for _, h := range j.hosts {
		before := len(idle)
		for _, env := range h.inOrder {
			rule := env.settings.Idle
			if rule == nil {
				continue
			}
			for _, a := range env.Attachments {
				index := a.Device.Index
				unused := !a.Device.ProcessesUnknown && h.use(env, index) == contents.Unused
				if !h.sparesUse(env, index) && (unused || a.Device.ComputesLess(rule.Below)) {
					idle[idleKey(h, env, a)] = rule.After
				}
			}
		}
		if len(idle)-before > maxTimes {
			many = append(many, h)
		}
	}
	j.rememberIdle(idle)
	for _, h := range many {
		j.boundIdle(h)
	}
}

// idleDevices detaches what was idle for long enough. It ends no process:
// see release.
func (j *judgement) idleDevices(h *hostView) {
	for _, env := range h.inOrder {
		settings := env.settings
		if settings.Idle == nil {
			continue
		}
		for _, a := range env.Attachments {
			since, idle := j.next.Idle[idleKey(h, env, a)]
			limit := settings.Idle.After
			if lasted := j.now.Sub(since); idle && lasted >= limit {
				j.detachOld(h, env, a, settings.Warn, Finding{Rule: RuleIdle, For: lasted, Limit: limit})
			}
		}
	}
}

// maxDuration detaches what was attached too long ago, by the looks of the host's root.
// Processes that go on using the device are then for env-devices.
func (j *judgement) maxDuration(h *hostView) {
	for _, env := range h.inOrder {
		settings := env.settings
		if settings.MaxDuration <= 0 {
			continue
		}
		for _, a := range env.Attachments {
			limit := settings.MaxDuration
			if lasted := j.now.Sub(j.since(h, a.Device.Key(), env.env.EID, a.Since)); lasted > limit && !h.sparesUse(env, a.Device.Index) {
				j.detachOld(h, env, a, settings.Warn, Finding{Rule: RuleMaxDuration, For: lasted, Limit: limit})
			}
		}
	}
}

func (j *judgement) detachOld(h *hostView, env *envView, a contents.Attachment, warn Warn, f Finding) {
	f.ID = string(f.Rule) + "/" + string(h.name) + "/" + string(env.env.EID) + "/" + a.Device.Key() + "/" + a.Time.ISO()
	f.Host, f.EID, f.User, f.UID = h.name, env.env.EID, env.env.Username, env.uid()
	f.Devices, f.Instances = append(f.Devices, a.Device.Index), a.Instances
	due := j.checkDue(&f, warn, string(f.Rule)+"/"+idleKey(h, env, a))
	j.loseDevice(&f, due, h, env, a.Device.Index)
	if due && f.Rule == RuleIdle {
		j.release(h, env, a.Device)
	}
	j.add(f)
}

// looksPerIdleTime is how often idleness must have been observed, at least, within
// the time that the rule allows: a device that was idle before and after a night in
// which the controller didn't run was not seen idle all night.
const looksPerIdleTime = 4

// rememberIdle remembers since when attachments are idle that are idle now. The map
// says how long each may be.
func (j *judgement) rememberIdle(idle map[string]time.Duration) {
	gap := j.now.Sub(j.before.Time)
	for key, allowed := range idle {
		since, known := j.before.Idle[key]
		if !known || gap > allowed/looksPerIdleTime {
			since = j.now
		}
		j.next.Idle[key] = since
	}
}
