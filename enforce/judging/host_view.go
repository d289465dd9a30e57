package judging

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// HostView is what the rules see of a host: its snapshot without what is exempt, the indices that they need, and the
// draft of its order. A snapshot may list many thousand environments (a hostile host's does), so nothing here is looked
// up by scanning.
type HostView struct {
	j        *Judgement
	Name     snapshot.Hostname
	host     *snapshot.Host
	Position int           // in the cluster
	At       time.Time     // when it was asked: all ages are as of then
	silence  time.Duration // for how long it didn't answer before
	IsNew    bool          // no cycle has judged this look before
	Acted    bool          // the outcome of an order came since it was asked for
	fresh    bool          // something may be done by this look
	advances bool          // it is the first look of its round
	Labels   map[string]string
	Snapshot *snapshot.Snapshot
	Settings *enforce.Settings // of the host, for all users
	Zone     *time.Location
	byUser   map[snapshot.Username]*enforce.Settings
	InOrder  []*EnvView // as the host listed them, without those that are exempt
	In       []*EnvView // of each process the environment that it is in
	Envs     map[snapshot.EnvID]*EnvView
	// Exempt are the processes that no rule may touch, and exemptUses what those
	// of them that are in an environment use: no cap takes that.
	Exempt     map[snapshot.PID]bool
	exemptUses map[deviceOfEnv]Evidence
	// drawnOn is what processes that draw on a screen use of their environments. It is in use, and rules
	// judge what is attached.
	drawnOn map[deviceOfEnv]Evidence
	Kept    map[snapshot.DeviceIndex]string // see KeptGPUs
	// exemptDevices are those that an operator exempted, that have failed, or that people can't attach.
	exemptDevices map[snapshot.DeviceIndex]bool
	Devices       map[snapshot.DeviceIndex]*snapshot.Device // the others
	// GpusByModel are how many GPUs work and aren't exempt, whatever is attached to them; those of an unknown model
	// by "".
	GpusByModel map[string]int
	// UnknownOn are the processes on a device whose environment is unknown.
	UnknownOn map[snapshot.DeviceIndex][]*snapshot.Process
	Holders   []Holder
	Users     map[snapshot.DeviceIndex][]*snapshot.Process // of devices; nil until FindUsers
	More      []*snapshot.Process                          // for each account of which something isn't in the snapshot
	Instances Instances
	notes     int // how many there are
	order.Draft
}

// EnvView is a registered environment with its processes and attachments.
type EnvView struct {
	Contents
	Env      *snapshot.Environment
	exempt   bool
	Settings *enforce.Settings // of its user here
}

// Working is how many GPUs work and are judged.
func (h *HostView) Working() (n int) {
	for _, d := range h.Devices {
		if d.Works() {
			n++
		}
	}
	return n
}

// Ask asks the policy about a user on this host, once a cycle.
func (h *HostView) Ask(policy enforce.Policy, user snapshot.Username, now time.Time) *enforce.Settings {
	s := h.byUser[user]
	if s == nil {
		s = policy.Settings(enforce.Query{Host: h.Name, Labels: h.Labels, User: user, At: now})
		h.byUser[user] = s
	}
	return s
}

// UID is the owner of the environment, unless its state file is in doubt.
func (v *EnvView) UID() *snapshot.UID {
	if v.Env.OwnerMismatch {
		return nil
	}
	return &v.Env.UID
}

// deviceOfEnv is an attachment on a host.
type deviceOfEnv struct {
	device snapshot.DeviceIndex
	eid    snapshot.EnvID
}

// SparesUse reports whether an exempt process of the environment uses a device.
func (h *HostView) SparesUse(env *EnvView, index snapshot.DeviceIndex) bool {
	return h.ExemptUse(env, index) != Unused
}

// ExemptUse is what exempt processes of the environment prove about a device's use.
func (h *HostView) ExemptUse(env *EnvView, index snapshot.DeviceIndex) Evidence {
	return h.exemptUses[deviceOfEnv{index, env.Env.EID}]
}

func (h *HostView) key(p *snapshot.Process) snapshot.ProcessKey {
	return snapshot.ProcessKey{Host: h.Name, PID: p.PID, Start: p.Start}
}

// DeviceKey is the Key of a device that rules judge.
func (h *HostView) DeviceKey(index snapshot.DeviceIndex) string {
	if d := h.Devices[index]; d != nil {
		return d.Key()
	}
	return index.String()
}

// Stuck reports whether a process can't be ended.
func (h *HostView) Stuck(p *snapshot.Process) bool {
	_, stuck := h.stuckBecause(p)
	return stuck
}

// See fills in the views of the hosts.
func (j *Judgement) See() {
	for _, h := range j.Hosts {
		j.seeHost(h)
	}
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
		} else if d.Works() {
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

// WaitKey is what a wait is known by on all its hosts. Its ID alone is public, and others can choose the same.
func (j *Judgement) WaitKey(w *snapshot.Wait) string {
	return string(j.Policy.Account(w.Username)) + "/" + w.ID
}

// KeptGPUs are the GPUs that are kept for a wait alone, with its ID; without one if it is several. A host may have very
// many waits, so that this is found once.
func (h *HostView) KeptGPUs() map[snapshot.DeviceIndex]string {
	if h.Kept != nil {
		return h.Kept
	}
	h.Kept = make(map[snapshot.DeviceIndex]string)
	for i := range h.Snapshot.Waits {
		w := &h.Snapshot.Waits[i]
		indices := w.Offered
		if taken := h.j.Next.TakenFor[h.j.WaitKey(w)]; taken.Host == h.Name {
			indices = slices.Concat(indices, taken.GPUs)
		}
		for _, index := range indices {
			if id, known := h.Kept[index]; known && id != w.ID {
				h.Kept[index] = ""
			} else {
				h.Kept[index] = w.ID
			}
		}
	}
	return h.Kept
}

// FindUsers finds the processes on each device of the host, without daemons that are protected and what draws for a
// desktop: these are beside everybody's jobs.
func (h *HostView) FindUsers() {
	if h.Users != nil {
		return
	}
	h.Users = make(map[snapshot.DeviceIndex][]*snapshot.Process)
	find := func(p *snapshot.Process) {
		for _, use := range p.Usage {
			if !h.j.Fleet.Protects(p) && !h.IgnoresUse(use) {
				h.Users[use.Index] = append(h.Users[use.Index], p)
			}
		}
	}
	for i := range h.Snapshot.Processes {
		find(&h.Snapshot.Processes[i])
	}
	for _, p := range h.More {
		find(p)
	}
}

// Clock is what the host's own clock said when it was asked.
func (h *HostView) Clock() time.Time {
	clock, _ := h.Snapshot.Clock(h.At)
	return clock
}
