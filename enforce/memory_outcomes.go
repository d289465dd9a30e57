package enforce

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ReleasedDevice is a device that was detached from an environment because it was
// idle.
type ReleasedDevice struct {
	Host  snapshot.Hostname
	Index snapshot.DeviceIndex
	EID   snapshot.EnvID
}

// ProcessKey identifies a process of a host for as long as it runs.
type ProcessKey struct {
	Host  snapshot.Hostname
	PID   snapshot.PID
	Start snapshot.StartTime
}

// MarshalText implements encoding.TextMarshaler, for keys of JSON objects.
func (r ReleasedDevice) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%s/%d/%s", r.Host, r.Index, r.EID), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *ReleasedDevice) UnmarshalText(text []byte) error {
	parts := strings.SplitN(string(text), "/", 3)
	if len(parts) != 3 {
		return fmt.Errorf("released device %q: want host/index/environment", text)
	}
	index, err := strconv.Atoi(parts[1])
	*r = ReleasedDevice{snapshot.Hostname(parts[0]), snapshot.DeviceIndex(index), snapshot.EnvID(parts[2])}
	return err
}

// MarshalText implements encoding.TextMarshaler, for keys of JSON objects.
func (p ProcessKey) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%s/%d/%d", p.Host, p.PID, p.Start), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *ProcessKey) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), "/")
	if len(parts) != 3 {
		return fmt.Errorf("process %q: want host/pid/start", text)
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil {
		return err
	}
	start, err := strconv.ParseUint(parts[2], 10, 64)
	*p = ProcessKey{snapshot.Hostname(parts[0]), snapshot.PID(pid), snapshot.StartTime(start)}
	return err
}

// release remembers that a device is detached because it was idle. That rule ends
// no process, so the processes that still hold the device must not end in the next
// cycle for using it without an attachment: they are left alone until another
// environment is attached to it.
func (e *judgement) release(h *hostView, env *envView, index snapshot.DeviceIndex) {
	if e.next.Released == nil {
		e.next.Released = make(map[ReleasedDevice]bool)
	}
	e.next.Released[ReleasedDevice{h.name, index, env.env.EID}] = true
}

// adoptReleased takes over, from a host that is met for the first time, what an
// earlier controller may have released: devices that are idle by their utilization,
// without attachments, and still held.
func (e *judgement) adoptReleased(h *hostView) {
	if e.before.Hosts[h.name].Answered {
		return
	}
	for _, env := range h.inOrder {
		rule := env.settings.Idle
		if rule == nil || rule.Below == 0 {
			continue // only devices without a process are released
		}
		for _, p := range env.processes {
			for _, u := range p.Usage {
				if d := h.snapshot.Device(u.Index); d != nil && len(d.Attachments) == 0 && computesLess(d, rule.Below) {
					e.release(h, env, u.Index)
				}
			}
		}
	}
}

// released reports whether an environment's processes may keep using a device after
// it was detached.
func (e *judgement) released(h *hostView, env *envView, index snapshot.DeviceIndex) bool {
	if len(e.next.Released) == 0 || !e.next.Released[ReleasedDevice{h.name, index, env.env.EID}] {
		return false
	}
	d := h.snapshot.Device(index)
	return d != nil && len(d.Attachments) == 0
}

// Learn returns the memory with what came of a report, outcome by outcome. A process
// that even SIGKILL did not end hangs in the kernel, and one that its host refuses
// to end will be refused again: they stay in the findings, and no further attempt is
// made while they are there. One that survived SIGTERM alone may be saving its work:
// it gets SIGTERM again after a while, not in every cycle. If the outcome is unknown,
// what Begin noted stays.
func (m Memory) Learn(r HostReport, outcomes []Outcome, now time.Time) Memory {
	start := make(map[snapshot.PID]snapshot.StartTime, len(r.Report.Terminate))
	for i := range r.Report.Terminate {
		p := &r.Report.Terminate[i].Process
		start[p.PID] = p.Start
	}
	m.Stuck, m.LeftAlone = copyOf(m.Stuck), copyOf(m.LeftAlone)
	for _, o := range outcomes {
		p := ProcessKey{r.Host, o.PID, start[o.PID]}
		if p.PID == 0 || p.Start == 0 || o.Status == StatusUnknown {
			continue
		}
		delete(m.LeftAlone, p)
		switch {
		case o.Status == StatusRefused || o.Status == StatusSurvived && r.Report.Kill:
			m.Stuck[p] = o.Reason
		case o.Status == StatusSurvived:
			m.LeftAlone[p] = now.Add(signalAgainAfter)
		}
	}
	return m
}

// copyOf is a copy that can be added to.
func copyOf[K comparable, V any](m map[K]V) map[K]V {
	c := make(map[K]V, len(m))
	maps.Copy(c, m)
	return c
}

// Begin returns the memory with a report that is sent to a host, and End without the
// report with this ID. Until the processes have had their grace, they get no second
// SIGTERM if the connection or the controller dies: many programs take that for an
// order to end at once, whatever they are saving.
func (m Memory) Begin(r HostReport, now time.Time) Memory {
	m.UnderWay = append(slices.Clone(m.UnderWay), r)
	m.LeftAlone = copyOf(m.LeftAlone)
	for i := range r.Report.Terminate {
		if p := &r.Report.Terminate[i].Process; p.Start != 0 {
			m.LeftAlone[ProcessKey{r.Host, p.PID, p.Start}] = now.Add(cmp.Or(r.Report.Grace, hostGrace))
		}
	}
	return m
}

// hostGrace is how long a host gives processes if the report leaves that to it.
const hostGrace = 10 * time.Second

// End is described with Begin.
func (m Memory) End(reportID string) Memory {
	m.UnderWay = slices.DeleteFunc(slices.Clone(m.UnderWay), func(r HostReport) bool { return r.Report.ID == reportID })
	return m
}

// WarnAgain returns the memory with users not yet warned of findings, by their IDs.
// Users who were notified of an action are not notified again.
func (m Memory) WarnAgain(ids []string) Memory {
	if len(ids) == 0 {
		return m
	}
	m.Findings = copyOf(m.Findings)
	for _, id := range ids {
		if known, ok := m.Findings[id]; ok && known.Notified == NotifiedOfWarning {
			known.Notified = 0
			m.Findings[id] = known
		}
	}
	return m
}

// signalAgainAfter is how long a process that survived SIGTERM is left alone.
const signalAgainAfter = time.Minute

// stuckBecause says why a process can't be ended.
func (e *judgement) stuckBecause(host snapshot.Hostname, p *snapshot.Process) (reason string, stuck bool) {
	if len(e.next.Stuck)+len(e.next.LeftAlone) == 0 {
		return "", false
	}
	key := ProcessKey{host, p.PID, p.Start}
	if left := e.next.LeftAlone[key].Sub(e.now); left > 0 {
		return fmt.Sprintf("it got SIGTERM already, and gets it again in %s if it still runs", text.ShortDuration(left)), true
	}
	reason, stuck = e.next.Stuck[key]
	return reason, stuck
}

// forgetEnded drops what the hosts that answered no longer show.
func (e *judgement) forgetEnded() {
	if len(e.next.Released)+len(e.next.Stuck)+len(e.next.LeftAlone) == 0 {
		return
	}
	byName := e.hostsByName()
	maps.DeleteFunc(e.next.Released, func(r ReleasedDevice, _ bool) bool {
		h := byName[r.Host]
		return h != nil && !h.stillHolds(r.EID, r.Index)
	})
	running := make(map[snapshot.Hostname]map[ProcessKey]bool)
	ended := func(p ProcessKey) bool {
		h := byName[p.Host]
		if h != nil && running[p.Host] == nil {
			running[p.Host] = h.running()
		}
		return h != nil && !running[p.Host][p]
	}
	maps.DeleteFunc(e.next.Stuck, func(p ProcessKey, _ string) bool { return ended(p) })
	maps.DeleteFunc(e.next.LeftAlone, func(p ProcessKey, _ time.Time) bool { return ended(p) })
}

// forgetHosts drops what is remembered of hosts that left the fleet.
func (e *judgement) forgetHosts() {
	left := func(name snapshot.Hostname) bool {
		_, known := e.next.Hosts[name]
		return !known
	}
	maps.DeleteFunc(e.next.Released, func(r ReleasedDevice, _ bool) bool { return left(r.Host) })
	maps.DeleteFunc(e.next.Stuck, func(p ProcessKey, _ string) bool { return left(p.Host) })
	maps.DeleteFunc(e.next.LeftAlone, func(p ProcessKey, _ time.Time) bool { return left(p.Host) })
}

// stillHolds reports whether an environment's processes use a device without an
// attachment.
func (h *hostView) stillHolds(eid snapshot.EnvID, index snapshot.DeviceIndex) bool {
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
func (h *hostView) running() map[ProcessKey]bool {
	set := make(map[ProcessKey]bool, len(h.snapshot.Processes))
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		set[ProcessKey{h.name, p.PID, p.Start}] = true
	}
	return set
}
