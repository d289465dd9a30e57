package enforce

import (
	"fmt"
	"maps"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// release remembers that a device is detached because it was idle. That rule ends
// no process, so the processes that still use the device must not end in the next
// cycle for using it without an attachment: they are left alone until another
// environment is attached to it.
func (j *judgement) release(h *hostView, env *envView, index snapshot.DeviceIndex) {
	j.next.Released[h.attachmentKey(env, index)] = true
}

// adoptReleased takes over, from a host that is met for the first time, what an
// earlier controller may have released: devices that are idle by their utilization,
// without attachments, and still used.
func (j *judgement) adoptReleased(h *hostView) {
	if j.before.Hosts[h.name].Answered {
		return
	}
	for _, env := range h.inOrder {
		rule := env.settings.Idle
		if rule == nil || rule.Below == 0 {
			continue // only devices without a process are released
		}
		for _, p := range env.Processes {
			for _, u := range p.Usage {
				if d := h.snapshot.Device(u.Index); d != nil && len(d.Attachments) == 0 && d.ComputesLess(rule.Below) {
					h.adopt(deviceOfEnv{u.Index, env.env.EID})
				}
			}
		}
	}
}

func (h *hostView) adopt(released deviceOfEnv) {
	if h.adopted == nil {
		h.adopted = make(map[deviceOfEnv]bool)
	}
	h.adopted[released] = true
}

func (j *judgement) rememberAdopted() {
	for _, h := range j.hosts {
		for released := range h.adopted {
			j.release(h, h.envs.Get(released.eid), released.device)
		}
	}
}

// released reports whether an environment's processes may keep using a device after
// it was detached.
func (j *judgement) released(h *hostView, env *envView, index snapshot.DeviceIndex) bool {
	d := h.snapshot.Device(index)
	return d != nil && len(d.Attachments) == 0 &&
		(h.adopted[deviceOfEnv{index, env.env.EID}] || j.next.Released[h.attachmentKey(env, index)])
}

// stillUses reports whether an environment's processes use a device without an
// attachment.
func (h *hostView) stillUses(eid snapshot.EnvID, index snapshot.DeviceIndex) bool {
	env := h.envs.Get(eid)
	if env == nil || env.Attached(index) {
		return false
	}
	for range env.On(index) {
		return true
	}
	return false
}

// stuckBecause says why a process can't be ended.
func (j *judgement) stuckBecause(h *hostView, p *snapshot.Process) (reason string, stuck bool) {
	key := h.key(p)
	if left := j.next.LeftAlone[key].Sub(j.now); left > 0 {
		return fmt.Sprintf("it got SIGTERM already, and gets it again in %s if it still runs", text.ShortDuration(left)), true
	}
	reason, stuck = j.next.Stuck[key]
	return reason, stuck
}

// forgetEnded drops what the hosts that answered no longer show.
func (j *judgement) forgetEnded() {
	if len(j.next.Released)+len(j.next.Stuck)+len(j.next.LeftAlone) == 0 {
		return
	}
	byName := j.hostsByName()
	maps.DeleteFunc(j.next.Released, func(r snapshot.AttachmentKey, _ bool) bool {
		h := byName[r.Host]
		return h != nil && !h.stillUses(r.EID, r.Index)
	})
	running := make(map[snapshot.Hostname]map[snapshot.ProcessKey]bool)
	ended := func(p snapshot.ProcessKey) bool {
		h := byName[p.Host]
		if h != nil && running[p.Host] == nil {
			running[p.Host] = h.running()
		}
		return h != nil && !running[p.Host][p]
	}
	maps.DeleteFunc(j.next.Stuck, func(p snapshot.ProcessKey, _ string) bool { return ended(p) })
	maps.DeleteFunc(j.next.LeftAlone, func(p snapshot.ProcessKey, _ time.Time) bool { return ended(p) })
}

// forgetHosts drops what is remembered of hosts that left the fleet.
func (j *judgement) forgetHosts() {
	left := func(name snapshot.Hostname) bool {
		_, known := j.next.Hosts[name]
		return !known
	}
	maps.DeleteFunc(j.next.Released, func(r snapshot.AttachmentKey, _ bool) bool { return left(r.Host) })
	maps.DeleteFunc(j.next.Seen, func(s snapshot.AttachmentKey, _ Seen) bool { return left(s.Host) })
	maps.DeleteFunc(j.next.Stuck, func(p snapshot.ProcessKey, _ string) bool { return left(p.Host) })
	maps.DeleteFunc(j.next.LeftAlone, func(p snapshot.ProcessKey, _ time.Time) bool { return left(p.Host) })
}

// running are the processes that a host shows.
func (h *hostView) running() map[snapshot.ProcessKey]bool {
	set := make(map[snapshot.ProcessKey]bool, len(h.snapshot.Processes))
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		set[h.key(p)] = true
	}
	return set
}
