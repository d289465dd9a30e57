package enforce

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// attachmentID names an attachment for as long as it lasts.
func attachmentID(h *hostView, env *envView, a attachment) string {
	return fmt.Sprintf("%s/%s/%d/%s", h.name, env.env.EID, a.device.Index, a.Time.ISO())
}

// idleKey names an attachment for the idle rule. It stays the same when the device
// is detached and attached again, so that this doesn't reset the idle time.
func idleKey(h *hostView, env *envView, a attachment) string {
	return fmt.Sprintf("%s/%s/%s/%d", h.name, env.env.Username, env.env.EID, a.device.Index)
}

// watchIdle finds the attachments that are idle now.
func (e *judgement) watchIdle() {
	idle := make(map[string]time.Duration)
	for _, h := range e.hosts {
		for _, env := range h.inOrder {
			rule := env.settings.Idle
			if rule == nil {
				continue
			}
			for _, a := range env.attachments {
				if index := a.device.Index; h.sparesUse(env, index) {
					continue
				} else if h.use(env, index) == unused || computesLess(a.device, rule.Below) {
					idle[idleKey(h, env, a)] = rule.After
				}
			}
		}
	}
	e.rememberIdle(idle)
}

// computesLess reports whether a device is known to compute less than below per
// cent.
func computesLess(d *snapshot.Device, below int) bool {
	return below > 0 && d.Utilization != nil && *d.Utilization < below
}

// idleDevices detaches what was idle for long enough. It ends no process:
// see release.
func (e *judgement) idleDevices(h *hostView) {
	for _, env := range h.inOrder {
		settings := env.settings
		if settings.Idle == nil {
			continue
		}
		for _, a := range env.attachments {
			since, idle := e.next.Idle[idleKey(h, env, a)]
			if lasted := e.now.Sub(since); idle && lasted >= settings.Idle.After {
				e.detachOld(h, env, a, settings.Warn, Finding{Rule: RuleIdle, For: lasted, Limit: settings.Idle.After})
			}
		}
	}
}

// maxDuration detaches what was attached too long ago, by the host's own wall
// clock. Processes that go on using the device are then for env-devices.
func (e *judgement) maxDuration(h *hostView) {
	for _, env := range h.inOrder {
		settings := env.settings
		if settings.MaxDuration <= 0 {
			continue
		}
		for _, a := range env.attachments {
			if lasted := e.now.Sub(a.Time.In(h.zone)); lasted > settings.MaxDuration && !h.sparesUse(env, a.device.Index) {
				e.detachOld(h, env, a, settings.Warn, Finding{Rule: RuleMaxDuration, For: lasted, Limit: settings.MaxDuration})
			}
		}
	}
}

func (e *judgement) detachOld(h *hostView, env *envView, a attachment, warn Warn, f Finding) {
	f.ID = fmt.Sprintf("%s/%s", f.Rule, attachmentID(h, env, a))
	f.Host, f.EID, f.User, f.UID = h.name, env.env.EID, env.env.Username, env.uid()
	f.Devices = append(f.Devices, a.device.Index)
	due := e.checkDue(&f, warn, fmt.Sprintf("%s/%s", f.Rule, idleKey(h, env, a)))
	e.loseDevice(&f, due, h, env, a.device.Index)
	if due && f.Rule == RuleIdle {
		e.release(h, env, a.device.Index)
	}
	e.add(f)
}
