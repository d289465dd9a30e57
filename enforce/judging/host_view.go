package judging

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// HostView is what the rules see of a host: its snapshot without exempt parts, indices, since a host may list thousands
// of environments, and the draft of its order.
type HostView struct {
	order.Draft
	j             *Judgement
	Name          snapshot.Hostname
	Position      int           // in the cluster
	At            time.Time     // when it was asked; ages are as of then
	silence       time.Duration // how long it didn't answer before
	unasked       time.Duration // how long it wasn't asked before that: see Judgement.pause
	IsNew         bool          // see snapshot.Host
	Acted         bool          // an order ended after it was asked
	Fresh         bool          // the snapshot may be acted on: see enforce.FreshFor
	advances      bool          // the snapshot is the first of its round
	Labels        map[string]string
	Snapshot      *snapshot.Snapshot
	Settings      *enforce.Settings // of the host, for all users
	Zone          *time.Location
	byUser        map[snapshot.Username]*enforce.Settings
	InOrder       []*EnvView // in the host's order, without exempt ones
	In            []*EnvView // the environment of each process
	Envs          map[snapshot.EnvID]*EnvView
	Exempt        map[snapshot.PID]bool           // no rule may touch these processes
	Kept          map[snapshot.DeviceIndex]string // see KeptGPUs
	exemptDevices map[snapshot.DeviceIndex]bool
	Devices       map[snapshot.DeviceIndex]*snapshot.Device // the others
	// GpusByModel counts the working GPUs that aren't exempt; "" is an unknown model.
	GpusByModel map[string]int
	UnknownOn   map[snapshot.DeviceIndex][]*snapshot.Process // processes of unknown environment
	users       map[snapshot.DeviceIndex][]*snapshot.Process // see UsersOf
	More        []*snapshot.Process                          // for each account with processes missing in the snapshot
	instanceOn  map[snapshot.GPUUUID]snapshot.DeviceIndex    // devices of MIG instances; filled on demand
	notes       int                                          // number of notes
	LastLook    time.Time                                    // when the last judged snapshot was asked for, or zero
	// Uses are the times of people's uses, including short gaps. The map is shared.
	Uses         map[enforce.UseKey]enforce.Use
	MostIdle     time.Duration            // the longest IdleFor of Uses; negative for none
	idleDetached []snapshot.AttachmentKey // of this host
	tried        []snapshot.ProcessKey    // processes that earlier orders were to end
}

// Working counts the working GPUs that are judged.
func (h *HostView) Working() (n int) {
	for _, d := range h.Devices {
		if d.Works() {
			n++
		}
	}
	return n
}

// SettingsOf asks the policy about a user here, once a judgement.
func (h *HostView) SettingsOf(user snapshot.Username) *enforce.Settings {
	s := h.byUser[user]
	if s == nil {
		s = h.j.Policy.Settings(enforce.Query{Host: h.Name, Labels: h.Labels, User: user, At: h.j.Now})
		Put(&h.byUser, user, s)
	}
	return s
}

// Put makes the map on demand: most hosts need none.
func Put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[key] = value
}

// Append appends to one of very many lists. Their first items share the array common: most have only one.
func Append[T any](list []T, item T, common *[]T) []T {
	if list != nil {
		return append(list, item)
	}
	if len(*common) == cap(*common) {
		*common = make([]T, 0, 64)
	}
	*common = append(*common, item)
	n := len(*common)
	return (*common)[n-1 : n : n]
}

// DeviceKey is the Key of a device that rules judge.
func (h *HostView) DeviceKey(index snapshot.DeviceIndex) string {
	if d := h.Devices[index]; d != nil {
		return d.Key()
	}
	return index.String()
}

// Stuck reports whether a process can't be ended now.
func (h *HostView) Stuck(p *snapshot.Process) bool {
	_, stuck := h.stuckReason(p)
	return stuck
}

// Fill fills the view of a host.
func (j *Judgement) Fill(h *HostView) {
	s := h.Snapshot
	h.In = make([]*EnvView, len(s.Processes))
	h.Envs = make(map[snapshot.EnvID]*EnvView, len(s.Environments))
	h.Devices = make(map[snapshot.DeviceIndex]*snapshot.Device, len(s.Devices))
	h.addEnvironments()
	h.addAttachments()
	h.rememberSeen()
	h.addProcesses()
	h.addMore()
	h.forgetEnded()
}

func (h *HostView) addEnvironments() {
	views := make([]EnvView, len(h.Snapshot.Environments))
	h.InOrder = make([]*EnvView, 0, len(views))
	for i := range views {
		view, e := &views[i], &h.Snapshot.Environments[i]
		view.Env, view.Host, view.Began = e, h, h.since(ofEnvironment, e.EID, e.Since, e.Creation)
		_, view.exempt = h.j.Policy.Exempt(enforce.Subject{Host: h.Name, Environment: e})
		h.Envs[e.EID] = view
		if !view.exempt {
			view.Settings, view.Person = h.SettingsOf(e.Username), h.personOf(view)
			h.InOrder = append(h.InOrder, view)
		}
	}
}

func (h *HostView) addAttachments() {
	h.exemptDevices = h.exemptByIndex()
	h.GpusByModel = make(map[string]int)
	for i := range h.Snapshot.Devices {
		d := &h.Snapshot.Devices[i]
		_, exempt := h.j.Policy.Exempt(enforce.Subject{Host: h.Name, Device: d})
		if exempt = exempt || h.exemptDevices[d.Index]; exempt {
			h.j.ExemptDevices[h.Name] = append(h.j.ExemptDevices[h.Name], d.Index)
		} else if d.Works() {
			h.GpusByModel[enforce.ModelOf(d)]++
		}
		if exempt = exempt || !d.Judged(); exempt {
			Put(&h.exemptDevices, d.Index, true)
		} else {
			h.Devices[d.Index] = d
		}
		for j := range d.Attachments {
			a := &d.Attachments[j]
			began := h.since(d.Key(), a.EID, a.Since, a.Time)
			if env := h.Envs[a.EID]; env != nil && !exempt {
				env.Attachments = Append(env.Attachments, Attachment{a, d, began}, &h.j.attachments)
			}
		}
	}
}

func (h *HostView) addProcesses() {
	for i := range h.Snapshot.Processes {
		p := &h.Snapshot.Processes[i]
		env := h.environmentOf(p)
		h.In[i] = env
		subject := enforce.Subject{Host: h.Name, Process: p}
		if env != nil {
			subject.Environment = env.Env
		}
		_, exempt := h.j.Policy.Exempt(subject)
		exempt = exempt || env != nil && env.exempt || h.j.Fleet.Protects(p) ||
			h.Settings.LeaveContainers && p.OfRootsRuntime()
		switch draws := h.ignoresAllUses(p); {
		case exempt, !p.NodeMissing && draws && slices.ContainsFunc(p.Usage, h.Snapshot.TypeUnknown):
			if Put(&h.Exempt, p.PID, true); env != nil {
				env.exemptUse = env.with(env.exemptUse, p, Reported)
			}
		case p.NodeMissing: // its attachments are judged as without it
			Put(&h.Exempt, p.PID, true)
		case draws: // on a desktop
			if Put(&h.Exempt, p.PID, true); env != nil {
				env.desktopUse = env.with(env.desktopUse, p, Unused)
			}
		case env != nil:
			env.Processes = Append(env.Processes, p, &h.j.processes)
		case p.EnvUnknown:
			h.addUnknown(p)
		}
	}
}

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
		Put(&h.UnknownOn, u.Index, append(h.UnknownOn[u.Index], p))
	}
}

// One judged use is enough to judge a process.
func (h *HostView) ignoresAllUses(p *snapshot.Process) bool {
	return len(p.Usage) > 0 && !slices.ContainsFunc(p.Usage,
		func(u snapshot.DeviceUsage) bool { return !h.IgnoresUse(u) })
}

// IgnoresUse reports whether no rule judges a use: the device is exempt, or a desktop draws or may draw there.
func (h *HostView) IgnoresUse(u snapshot.DeviceUsage) bool {
	draws := !h.Settings.JudgeGraphics && (h.Snapshot.TypeUnknown(u) || h.Snapshot.OfDesktop(u))
	return draws || h.exemptDevices[u.Index]
}

// WaitKey identifies a wait on all its hosts. Its ID is public: others can choose the same.
func (j *Judgement) WaitKey(w *snapshot.Wait) string {
	return string(j.Policy.Account(w.Username)) + "/" + w.ID
}

// TakenFor is what was recently taken for a wait, unless the wait declined it.
func (j *Judgement) TakenFor(w *snapshot.Wait) (taken enforce.Taken, known bool) {
	if !w.Passed {
		taken, known = j.Next.TakenFor[j.WaitKey(w)]
	}
	return taken, known
}

// KeptGPUs are the GPUs that are kept for a wait, with its ID; "" for several. They are cached.
func (h *HostView) KeptGPUs() map[snapshot.DeviceIndex]string {
	if h.Kept != nil {
		return h.Kept
	}
	h.Kept = make(map[snapshot.DeviceIndex]string)
	for i := range h.Snapshot.Waits {
		w := &h.Snapshot.Waits[i]
		indices := w.Offered
		if taken, _ := h.j.TakenFor(w); taken.Host == h.Name {
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

// UsersOf are the processes on a device, except protected daemons and desktops.
func (h *HostView) UsersOf(index snapshot.DeviceIndex) []*snapshot.Process {
	if h.users != nil {
		return h.users[index]
	}
	h.users = make(map[snapshot.DeviceIndex][]*snapshot.Process)
	add := func(p *snapshot.Process) {
		for _, use := range p.Usage {
			if !h.j.Fleet.Protects(p) && !h.IgnoresUse(use) {
				h.users[use.Index] = append(h.users[use.Index], p)
			}
		}
	}
	for i := range h.Snapshot.Processes {
		add(&h.Snapshot.Processes[i])
	}
	for _, p := range h.More {
		add(p)
	}
	return h.users[index]
}

// Clock is the host's own clock when it was asked.
func (h *HostView) Clock() time.Time {
	clock, _ := h.Snapshot.Clock(h.At)
	return clock
}
