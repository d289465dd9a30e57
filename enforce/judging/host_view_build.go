package judging

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// See fills in the views of the hosts.
func (j *Judgement) See() {
	for _, h := range j.Hosts {
		j.seeHost(h)
	}
	j.markSharedBoots()
}

func (j *Judgement) seeHost(h *HostView) {
	s := h.host.Snapshot
	h.Labels, h.Snapshot, h.Zone = h.host.Labels, s, s.Location()
	h.Settings = j.Policy.Settings(enforce.Query{Host: h.Name, Labels: h.Labels, At: j.Now})
	h.byUser = make(map[snapshot.Username]*enforce.Settings)
	h.In = make([]*EnvView, len(s.Processes))
	h.Envs = make(map[snapshot.EnvID]*EnvView, len(s.Environments))
	h.Devices = make(map[snapshot.DeviceIndex]*snapshot.Device, len(s.Devices))
	h.Exempt, h.exemptDevices = make(map[snapshot.PID]bool), make(map[snapshot.DeviceIndex]bool)
	h.exemptUses, h.drawnOn = make(map[deviceOfEnv]Evidence), make(map[deviceOfEnv]Evidence)
	h.UnknownOn = make(map[snapshot.DeviceIndex][]*snapshot.Process)
	h.Instances = Instances{Devices: s.Devices}
	h.addEnvironments(j.Policy, j.Now)
	h.addAttachments(j.Policy)
	h.addProcesses(j.Policy, &j.Fleet)
	h.addMore()
}

func (h *HostView) addEnvironments(policy enforce.Policy, now time.Time) {
	for i := range h.Snapshot.Environments {
		view := &EnvView{Env: &h.Snapshot.Environments[i]}
		_, view.exempt = policy.Exempt(enforce.Subject{Host: h.Name, Environment: view.Env})
		h.Envs[view.Env.EID] = view
		if !view.exempt {
			view.Settings = h.Ask(policy, view.Env.Username, now)
			h.InOrder = append(h.InOrder, view)
		}
	}
}

func (h *HostView) addAttachments(policy enforce.Policy) {
	byIndex := h.exemptByIndex()
	h.GpusByModel = make(map[string]int)
	for i := range h.Snapshot.Devices {
		d := &h.Snapshot.Devices[i]
		_, exempt := policy.Exempt(enforce.Subject{Host: h.Name, Device: d})
		if exempt = exempt || byIndex[d.Index]; exempt {
			h.j.ExemptDevices[h.Name] = append(h.j.ExemptDevices[h.Name], d.Index)
		} else if !d.Failed {
			h.GpusByModel[enforce.ModelOf(d)]++
		}
		if exempt || !d.Judged() {
			h.exemptDevices[d.Index] = true
			continue
		}
		h.Devices[d.Index] = d
		for j := range d.Attachments {
			if env := h.Envs[d.Attachments[j].EID]; env != nil {
				env.Attachments = append(env.Attachments, Attachment{Attachment: &d.Attachments[j], Device: d})
			}
		}
	}
}

func (h *HostView) addProcesses(policy enforce.Policy, fleet *enforce.Fleet) {
	for i := range h.Snapshot.Processes {
		p := &h.Snapshot.Processes[i]
		env := h.environmentOf(p)
		h.In[i] = env
		subject := enforce.Subject{Host: h.Name, Process: p}
		if env != nil {
			subject.Environment = env.Env
		}
		_, exempt := policy.Exempt(subject)
		switch {
		case exempt || env != nil && env.exempt || fleet.Protects(p) ||
			h.Settings.LeaveContainers && p.OfRootsRuntime():
			h.spare(p, env)
		case p.NodeMissing:
			h.spare(p, nil) // what is attached is judged as without it
		case h.ignoresAllUses(p) && slices.ContainsFunc(p.Usage, h.Snapshot.TypeUnknown):
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
func (h *HostView) addMore() {
	for i := range h.Snapshot.More {
		more := &h.Snapshot.More[i]
		p := &snapshot.Process{UID: more.UID, Username: h.Snapshot.NameOf(more.UID), EnvUnknown: true}
		for _, index := range more.GPUs {
			p.Usage = append(p.Usage, snapshot.DeviceUsage{Index: index})
		}
		h.More = append(h.More, p)
		h.addUnknown(p)
	}
}

func (h *HostView) addUnknown(p *snapshot.Process) {
	for _, u := range p.Usage {
		h.UnknownOn[u.Index] = append(h.UnknownOn[u.Index], p)
	}
}

// spare exempts a process, and what it uses of its environment.
func (h *HostView) spare(p *snapshot.Process, env *EnvView) {
	h.Exempt[p.PID] = true
	if env == nil {
		return
	}
	for _, u := range p.Usage {
		use := deviceOfEnv{u.Index, env.Env.EID}
		h.exemptUses[use] = max(h.exemptUses[use], Reported, UseBy(env.Env.UID, p))
	}
}

// spareDesktop exempts a process, and nothing that its environment is attached to.
func (h *HostView) spareDesktop(p *snapshot.Process, env *EnvView) {
	if h.spare(p, nil); env == nil {
		return
	}
	for _, u := range p.Usage {
		use := deviceOfEnv{u.Index, env.Env.EID}
		h.drawnOn[use] = max(h.drawnOn[use], UseBy(env.Env.UID, p))
	}
}

// ignoresAllUses reports whether no rule is about any of a process's uses. One judged use is enough to judge the
// process.
func (h *HostView) ignoresAllUses(p *snapshot.Process) bool {
	return len(p.Usage) > 0 && !slices.ContainsFunc(p.Usage,
		func(u snapshot.DeviceUsage) bool { return !h.IgnoresUse(u) })
}

// IgnoresUse reports whether no rule is about a use of a device: the device is exempt, or a desktop draws
// there, or may do so.
func (h *HostView) IgnoresUse(u snapshot.DeviceUsage) bool {
	draws := !h.Settings.JudgeGraphics && (h.Snapshot.TypeUnknown(u) || h.Snapshot.OfDesktop(u))
	return draws || h.exemptDevices[u.Index]
}

// markSharedBoots marks the hosts that report a boot which another one reports, too.
func (j *Judgement) markSharedBoots() {
	hosts := make(map[string]int, len(j.Hosts))
	for _, h := range j.Hosts {
		hosts[h.Snapshot.BootID]++
	}
	for _, h := range j.Hosts {
		if boot := h.Snapshot.BootID; hosts[boot] > 1 {
			h.SharedBoot = boot
		}
	}
}
