package enforce

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/snapshot"
)

// see fills in the views of the hosts.
func (j *judgement) see() {
	for _, h := range j.hosts {
		j.seeHost(h)
	}
	j.markSharedBoots()
}

func (j *judgement) seeHost(h *hostView) {
	s := h.host.Snapshot
	h.labels, h.snapshot, h.zone = h.host.Labels, s, s.Location()
	h.settings = j.policy.Settings(Query{Host: h.name, Labels: h.labels, At: j.now})
	h.byUser = make(map[snapshot.Username]*Settings)
	h.in = make([]*envView, len(s.Processes))
	h.envs = make(map[snapshot.EnvID]*envView, len(s.Environments))
	h.devices = make(map[snapshot.DeviceIndex]*snapshot.Device, len(s.Devices))
	h.exempt, h.exemptDevices = make(map[snapshot.PID]bool), make(map[snapshot.DeviceIndex]bool)
	h.exemptUses, h.drawnOn = make(map[deviceOfEnv]contents.Evidence), make(map[deviceOfEnv]contents.Evidence)
	h.unknownOn = make(map[snapshot.DeviceIndex][]*snapshot.Process)
	h.instances = contents.Instances{Devices: s.Devices}
	h.addEnvironments(j.policy, j.now)
	h.addAttachments(j.policy)
	h.addProcesses(j.policy, &j.fleet)
	h.addMore()
}

func (h *hostView) addEnvironments(policy Policy, now time.Time) {
	for i := range h.snapshot.Environments {
		view := &envView{env: &h.snapshot.Environments[i]}
		_, view.exempt = policy.Exempt(Subject{Host: h.name, Environment: view.env})
		h.envs[view.env.EID] = view
		if !view.exempt {
			view.settings = h.ask(policy, view.env.Username, now)
			h.inOrder = append(h.inOrder, view)
		}
	}
}

func (h *hostView) addAttachments(policy Policy) {
	byIndex := h.exemptByIndex()
	h.gpusByModel = make(map[string]int)
	for i := range h.snapshot.Devices {
		d := &h.snapshot.Devices[i]
		_, exempt := policy.Exempt(Subject{Host: h.name, Device: d})
		if exempt = exempt || byIndex[d.Index]; exempt {
			h.j.exemptDevices[h.name] = append(h.j.exemptDevices[h.name], d.Index)
		} else if !d.Failed {
			h.gpusByModel[modelOf(d)]++
		}
		if exempt || !d.Judged() {
			h.exemptDevices[d.Index] = true
			continue
		}
		h.devices[d.Index] = d
		for j := range d.Attachments {
			if env := h.envs[d.Attachments[j].EID]; env != nil {
				env.Attachments = append(env.Attachments, contents.Attachment{Attachment: &d.Attachments[j], Device: d})
			}
		}
	}
}

func (h *hostView) addProcesses(policy Policy, fleet *Fleet) {
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		env := h.environmentOf(p)
		h.in[i] = env
		subject := Subject{Host: h.name, Process: p}
		if env != nil {
			subject.Environment = env.env
		}
		_, exempt := policy.Exempt(subject)
		switch {
		case exempt || env != nil && env.exempt || fleet.protects(p) ||
			h.settings.LeaveContainers && p.OfRootsRuntime():
			h.spare(p, env)
		case p.NodeMissing:
			h.spare(p, nil) // what is attached is judged as without it
		case h.ignoresAllUses(p) && slices.ContainsFunc(p.Usage, h.snapshot.TypeUnknown):
			h.spare(p, env)
		case h.ignoresAllUses(p):
			h.spareDesktop(p, env)
		case env != nil:
			env.Processes = append(env.Processes, p)
		case p.EnvUnknown:
			h.addUnknown(p)
		}
	}
}

// addMore adds what accounts have that isn't in the snapshot: as a process of unknown environment that uses its GPUs.
func (h *hostView) addMore() {
	for i := range h.snapshot.More {
		more := &h.snapshot.More[i]
		p := &snapshot.Process{UID: more.UID, Username: h.snapshot.NameOf(more.UID), EnvUnknown: true}
		for _, index := range more.GPUs {
			p.Usage = append(p.Usage, snapshot.DeviceUsage{Index: index})
		}
		h.more = append(h.more, p)
		h.addUnknown(p)
	}
}

func (h *hostView) addUnknown(p *snapshot.Process) {
	for _, u := range p.Usage {
		h.unknownOn[u.Index] = append(h.unknownOn[u.Index], p)
	}
}

// spare exempts a process, and what it uses of its environment.
func (h *hostView) spare(p *snapshot.Process, env *envView) {
	h.exempt[p.PID] = true
	if env == nil {
		return
	}
	for _, u := range p.Usage {
		use := deviceOfEnv{u.Index, env.env.EID}
		h.exemptUses[use] = max(h.exemptUses[use], contents.Reported, contents.UseBy(env.env.UID, p))
	}
}

// spareDesktop exempts a process, and nothing that its environment is attached to.
func (h *hostView) spareDesktop(p *snapshot.Process, env *envView) {
	if h.spare(p, nil); env == nil {
		return
	}
	for _, u := range p.Usage {
		use := deviceOfEnv{u.Index, env.env.EID}
		h.drawnOn[use] = max(h.drawnOn[use], contents.UseBy(env.env.UID, p))
	}
}

// ignoresAllUses reports whether no rule is about any of a process's uses. One judged use is enough to judge the
// process.
func (h *hostView) ignoresAllUses(p *snapshot.Process) bool {
	return len(p.Usage) > 0 && !slices.ContainsFunc(p.Usage,
		func(u snapshot.DeviceUsage) bool { return !h.ignoresUse(u) })
}

// ignoresUse reports whether no rule is about a use of a device: the device is exempt, or a desktop draws
// there, or may do so.
func (h *hostView) ignoresUse(u snapshot.DeviceUsage) bool {
	draws := !h.settings.JudgeGraphics && (h.snapshot.TypeUnknown(u) || h.snapshot.OfDesktop(u))
	return draws || h.exemptDevices[u.Index]
}

// markSharedBoots marks the hosts that report a boot which another one reports, too.
func (j *judgement) markSharedBoots() {
	hosts := make(map[string]int, len(j.hosts))
	for _, h := range j.hosts {
		hosts[h.snapshot.BootID]++
	}
	for _, h := range j.hosts {
		if boot := h.snapshot.BootID; hosts[boot] > 1 {
			h.sharedBoot = boot
		}
	}
}
