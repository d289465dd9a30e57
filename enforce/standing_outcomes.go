package enforce

import (
	"fmt"
	"maps"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// releasedDevice is a device that was taken from an environment because it was
// idle.
type releasedDevice struct {
	host  snapshot.Hostname
	eid   snapshot.EnvID
	index snapshot.DeviceIndex
}

// stuckProcess is a process that could not be ended.
type stuckProcess struct {
	host  snapshot.Hostname
	pid   snapshot.PID
	start snapshot.StartTime
}

// release remembers that a device goes because it was idle. The rule ends
// nobody's process, so the processes that still hold the device must not end in
// the next cycle for using it without an attachment: they are let be until
// somebody else is attached to it.
func (s *Standing) release(h *hostView, env *envView, index snapshot.DeviceIndex) {
	if s.released == nil {
		s.released = make(map[releasedDevice]bool)
	}
	s.released[releasedDevice{h.name, env.env.EID, index}] = true
}

// inherit takes over, from a host that is met for the first time, what an earlier
// controller may have released: devices that are idle by their utilization,
// attached to nobody, and still held. Starting again must not end what was let be.
func (e *evaluation) inherit(h *hostView) {
	s := e.standing
	if s.met[h.name] {
		return
	}
	if s.met == nil {
		s.met = make(map[snapshot.Hostname]bool)
	}
	s.met[h.name] = true
	for _, env := range h.inOrder {
		rule := env.settings.Idle
		if rule == nil || rule.Below == 0 {
			continue // only devices without a process are released
		}
		for _, p := range env.processes {
			for _, u := range p.Usage {
				if d := h.snapshot.Device(u.Index); d != nil && len(d.Attachments) == 0 && computesLess(d, rule.Below) {
					s.release(h, env, u.Index)
				}
			}
		}
	}
}

// releases says whether an environment's processes may linger on a device.
func (s *Standing) releases(h *hostView, env *envView, index snapshot.DeviceIndex) bool {
	if len(s.released) == 0 || !s.released[releasedDevice{h.name, env.env.EID, index}] {
		return false
	}
	d := h.snapshot.Device(index)
	return d != nil && len(d.Attachments) == 0
}

// Learn tells the Standing what came of a report, outcome by outcome. A process
// that even SIGKILL did not end hangs in the kernel, and one that its host
// refuses to end will be refused again: they stay in the findings, and nobody
// tries again for as long as they are there. One that outlived SIGTERM alone may
// be saving its work: it is asked again after a while, and not in every cycle.
func (s *Standing) Learn(host snapshot.Hostname, report Report, outcomes []Outcome) {
	start := make(map[snapshot.PID]snapshot.StartTime, len(report.Terminate))
	for i := range report.Terminate {
		p := &report.Terminate[i].Process
		start[p.PID] = p.Start
	}
	for _, o := range outcomes {
		p := stuckProcess{host, o.PID, start[o.PID]}
		switch hopeless := o.Status == StatusRefused || o.Status == StatusSurvived && report.Kill; {
		case p.pid == 0 || p.start == 0:
		case hopeless:
			if s.stuck == nil {
				s.stuck = make(map[stuckProcess]string)
			}
			s.stuck[p] = o.Reason
		case o.Status == StatusSurvived:
			if s.asked == nil {
				s.asked = make(map[stuckProcess]time.Time)
			}
			s.asked[p] = s.now
		}
	}
}

// askedAgainAfter is for how long a process that outlived SIGTERM is let be. To
// many programs a second SIGTERM means to end at once whatever they are saving,
// and each one has the cycle wait for the process's grace again.
const askedAgainAfter = time.Minute

// stuckBecause says why a process cannot be ended.
func (s *Standing) stuckBecause(host snapshot.Hostname, p *snapshot.Process) (reason string, stuck bool) {
	if len(s.stuck)+len(s.asked) == 0 {
		return "", false
	}
	key := stuckProcess{host, p.PID, p.Start}
	if at, asked := s.asked[key]; asked && s.now.Sub(at) < askedAgainAfter {
		return fmt.Sprintf("it outlived SIGTERM, which it gets again after %s", short(askedAgainAfter)), true
	}
	reason, stuck = s.stuck[key]
	return reason, stuck
}

// review forgets what the hosts that answered no longer show.
func (s *Standing) review(hosts []*hostView) {
	if len(s.released)+len(s.stuck)+len(s.asked) == 0 {
		return
	}
	byName := make(map[snapshot.Hostname]*hostView, len(hosts))
	for _, h := range hosts {
		byName[h.name] = h
	}
	for r := range s.released {
		if h := byName[r.host]; h != nil && !h.lingers(r.eid, r.index) {
			delete(s.released, r)
		}
	}
	running := make(map[snapshot.Hostname]map[stuckProcess]bool)
	ended := func(p stuckProcess) bool {
		h := byName[p.host]
		if h != nil && running[p.host] == nil {
			running[p.host] = h.running()
		}
		return h != nil && !running[p.host][p]
	}
	maps.DeleteFunc(s.stuck, func(p stuckProcess, _ string) bool { return ended(p) })
	maps.DeleteFunc(s.asked, func(p stuckProcess, _ time.Time) bool { return ended(p) })
}

// lingers says whether an environment's processes use a device without an
// attachment.
func (h *hostView) lingers(eid snapshot.EnvID, index snapshot.DeviceIndex) bool {
	env := h.envs[eid]
	if env == nil || env.attached(index) {
		return false
	}
	for range env.on(index) {
		return true
	}
	return false
}

// running are the processes that a host shows.
func (h *hostView) running() map[stuckProcess]bool {
	set := make(map[stuckProcess]bool, len(h.snapshot.Processes))
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		set[stuckProcess{h.name, p.PID, p.Start}] = true
	}
	return set
}
