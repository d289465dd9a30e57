package replay

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/early"
	"github.com/seed-3119e985/genv/enforce/fairshare"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/snapshot"
)

// world is what a policy would have judged and done.
type world struct {
	policy  *policy.File
	memory  enforce.Memory
	share   fairshare.Memory // who has a boost
	spent   early.Spent
	cluster snapshot.Cluster // of the last full judgement, with later snapshots of hosts
	// gone is what it would have removed, of each host: nil for a world in which the recording
	// shows what came of that.
	gone map[snapshot.Hostname]*removed
}

// removed is what is left out of the snapshots of a host.
type removed struct {
	processes   map[processID]bool
	attachments map[attachmentID]bool
	from, to    *snapshot.Snapshot // the last snapshot, and what was left of it
}

// processID is a process on a host. Without a start time, as 1.4.3 reports it, the environment has
// to be the same.
type processID struct {
	pid   snapshot.PID
	start snapshot.StartTime
	eid   snapshot.EnvID
}

func idOf(p *snapshot.Process) processID {
	id := processID{pid: p.PID, start: p.Start}
	if p.Start == 0 {
		id.eid = p.EID
	}
	return id
}

// attachmentID is an attachment on a host: one that is made later is another one.
type attachmentID struct {
	index snapshot.DeviceIndex
	eid   snapshot.EnvID
	at    snapshot.Date
}

// judged is what came of a judgement in a world.
type judged struct {
	time   time.Time
	plan   enforce.Plan
	events []enforce.Event
	full   bool
	silent map[snapshot.Hostname]bool // hosts that did not answer
	hosts  func(snapshot.Hostname) *snapshot.Snapshot
}

// judge judges a step with the memory of the world. The boosts are of users who may have more
// devices than their cap.
func (w *world) judge(step *recording.Step, boosts map[snapshot.Username]int) judged {
	policy := step.Operator.Policy(w.boosted(boosts), step.Time)
	hosts := w.without(step.Cluster.Hosts)
	out := judged{time: step.Time, full: step.Early == 0}
	if out.full {
		w.cluster.Hosts = hosts
		out.plan, w.memory, out.events = enforce.Judge(policy, w.cluster, w.memory, step.Time)
		w.spent.Begin(&out.plan)
	} else {
		w.replace(hosts)
		round := early.All(policy, hosts, &w.cluster, w.memory, &w.spent, step.Time)
		out.plan, w.memory, out.events = round.Plan, round.Memory, round.Events
	}
	snapshots := make(map[snapshot.Hostname]*snapshot.Snapshot, len(out.plan.Reports))
	for i := range out.plan.Reports {
		snapshots[out.plan.Reports[i].Host] = nil
	}
	out.silent = make(map[snapshot.Hostname]bool)
	for i := range hosts {
		h := &hosts[i]
		if h.Snapshot == nil {
			out.silent[h.Name] = true
		}
		if _, wanted := snapshots[h.Name]; wanted {
			snapshots[h.Name] = h.Snapshot
		}
	}
	out.hosts = func(name snapshot.Hostname) *snapshot.Snapshot { return snapshots[name] }
	if w.gone != nil {
		w.remove(&out)
	}
	return out
}

// boosted is the policy with boosts, which are the same for all who have one. It is noted who has
// one, since warnings begin again when it ends.
func (w *world) boosted(boosts map[snapshot.Username]int) enforce.Policy {
	w.share = fairshare.Memory{Free: len(boosts) > 0, Light: make(map[snapshot.Username]bool, len(boosts))}
	var setting fairshare.Setting
	for user, n := range boosts {
		w.share.Light[user], setting.Boost = true, n
	}
	return w.share.Policy(setting, w.policy)
}

// replace takes over the snapshots of hosts that were asked between two full judgements.
func (w *world) replace(asked []snapshot.Host) {
	byName := make(map[snapshot.Hostname]*snapshot.Snapshot, len(asked))
	for i := range asked {
		byName[asked[i].Name] = asked[i].Snapshot
	}
	for i := range w.cluster.Hosts {
		if s := byName[w.cluster.Hosts[i].Name]; s != nil {
			w.cluster.Hosts[i].Snapshot = s
		}
	}
}

// without are hosts without what is gone.
func (w *world) without(hosts []snapshot.Host) []snapshot.Host {
	kept := slices.Clone(hosts)
	if len(w.gone) == 0 {
		return kept
	}
	for i := range kept {
		h := &kept[i]
		g := w.gone[h.Name]
		if g == nil || h.Snapshot == nil {
			continue
		}
		if g.from != h.Snapshot {
			g.from, g.to = h.Snapshot, g.leaveOut(h.Snapshot)
		}
		if len(g.processes)+len(g.attachments) == 0 {
			delete(w.gone, h.Name)
		}
		h.Snapshot = g.to
	}
	return kept
}

// leaveOut is a snapshot without what was removed. What the recording doesn't show any more is
// forgotten.
func (g *removed) leaveOut(s *snapshot.Snapshot) *snapshot.Snapshot {
	next := *s
	processes, attachments := make(map[processID]bool), make(map[attachmentID]bool)
	next.Processes = slices.DeleteFunc(slices.Clone(s.Processes), func(p snapshot.Process) bool {
		id := idOf(&p)
		if g.processes[id] {
			processes[id] = true
		}
		return g.processes[id]
	})
	next.Devices = slices.Clone(s.Devices)
	for i := range next.Devices {
		d := &next.Devices[i]
		left := func(a snapshot.Attachment) bool {
			id := attachmentID{d.Index, a.EID, a.Time}
			if g.attachments[id] {
				attachments[id] = true
			}
			return g.attachments[id]
		}
		if slices.ContainsFunc(d.Attachments, left) {
			d.Attachments = slices.DeleteFunc(slices.Clone(d.Attachments), left)
		}
	}
	g.processes, g.attachments = processes, attachments
	return &next
}

// remove notes what would be gone.
func (w *world) remove(j *judged) {
	for i := range j.plan.Reports {
		r := &j.plan.Reports[i]
		g := w.gone[r.Host]
		if g == nil {
			g = &removed{processes: make(map[processID]bool), attachments: make(map[attachmentID]bool)}
			w.gone[r.Host] = g
		}
		g.from = nil
		for k := range r.Report.Terminate {
			g.processes[idOf(&r.Report.Terminate[k].Process)] = true
		}
		for k := range r.Report.Detach {
			g.attachments[detached(&r.Report.Detach[k], j.hosts(r.Host))] = true
		}
	}
}

// detached is the attachment that is removed.
func detached(d *enforce.Detachment, s *snapshot.Snapshot) attachmentID {
	id := attachmentID{index: d.Device, eid: d.Environment.EID}
	if s != nil {
		if device := s.Device(d.Device); device != nil {
			if a := device.Attachment(id.eid); a != nil {
				id.at = a.Time
			}
		}
	}
	return id
}
