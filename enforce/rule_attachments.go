package enforce

import (
	"fmt"
	"time"
)

// attachmentID names an attachment for as long as it lasts.
func attachmentID(h *hostView, env *envView, a attachment) string {
	return fmt.Sprintf("%s/%s/%d/%s", h.name, env.env.EID, a.device.Index, a.Time.ISO())
}

// watchIdle shows the Standing which attachments are idle now.
func (e *evaluation) watchIdle() {
	idle := make(map[string]time.Duration)
	for _, h := range e.hosts {
		for _, env := range h.inOrder {
			rule := env.settings.Idle
			if rule == nil {
				continue
			}
			for _, a := range env.attachments {
				if h.isIdle(env, a, rule.Below) {
					idle[attachmentID(h, env, a)] = rule.After
				}
			}
		}
	}
	e.standing.watchIdle(idle, e.now)
}

// isIdle says whether nothing uses an attachment now: neither a process of the
// environment, nor one of which nobody knows whose it is; or whether the device
// is known to compute less than below per cent.
func (h *hostView) isIdle(env *envView, a attachment, below int) bool {
	if u := a.device.Utilization; below > 0 && u != nil && *u < below {
		return true
	}
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		if p.Uses(a.device.Index) != nil && (p.EnvUnknown || p.EID == env.env.EID) {
			return false
		}
	}
	return true
}

// idleDevices detaches what was idle for long enough. It ends nobody's process:
// see Standing.release.
func (e *evaluation) idleDevices(h *hostView) {
	for _, env := range h.inOrder {
		settings := env.settings
		if settings.Idle == nil {
			continue
		}
		for _, a := range env.attachments {
			since, idle := e.standing.idle[attachmentID(h, env, a)]
			if lasted := e.now.Sub(since); idle && lasted >= settings.Idle.After {
				e.detachOld(h, env, a, settings.Warn, Finding{Rule: RuleIdle, For: lasted, Limit: settings.Idle.After})
			}
		}
	}
}

// maxDuration detaches what was attached too long ago, by the host's own wall
// clock. Processes that go on using the device are then for env-devices.
func (e *evaluation) maxDuration(h *hostView) {
	for _, env := range h.inOrder {
		settings := env.settings
		if settings.MaxDuration <= 0 {
			continue
		}
		for _, a := range env.attachments {
			if lasted := e.now.Sub(a.Time.In(h.zone)); lasted > settings.MaxDuration {
				e.detachOld(h, env, a, settings.Warn, Finding{Rule: RuleMaxDuration, For: lasted, Limit: settings.MaxDuration})
			}
		}
	}
}

func (e *evaluation) detachOld(h *hostView, env *envView, a attachment, warn Warn, f Finding) {
	f.ID = fmt.Sprintf("%s/%s", f.Rule, attachmentID(h, env, a))
	f.Host, f.EID, f.User, f.UID = h.name, env.env.EID, env.env.Username, env.uid()
	f.Devices = append(f.Devices, a.device.Index)
	f.Detach = []DeviceRef{{h.name, a.device.Index, env.env.EID}}
	if e.find(&f, warn) {
		h.draft.take(a.device.Index, env.env, f.ID)
		if f.Rule == RuleIdle {
			e.standing.release(h, env, a.device.Index)
		}
	}
	e.add(f)
}
