package judging

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// partOfBreak is the part of an allowed time for which a person may be without the GPU, and the time goes on.
const partOfBreak = 4

// UseKey names a person's use of a device of a host.
func UseKey(h *HostView, person snapshot.Username, d *snapshot.Device) string {
	return string(h.Name) + "/" + string(person) + "/" + d.Key()
}

// PersonOf is who has what is attached to an environment.
func (h *HostView) PersonOf(env *EnvView) snapshot.Username {
	if name := env.Env.Username; name != "" {
		return h.j.Policy.Account(name)
	}
	if uid := env.UID(); uid != nil && *uid != snapshot.NoUID {
		return gpus.UserName("", uid)
	}
	return snapshot.Username("/" + env.Env.EID)
}

// usualFirstUID is the first uid of people on a host that doesn't say another one.
const usualFirstUID = 1000

// Counted is the user for whom the policy has a process count whatever its environment is; empty for none.
func (h *HostView) Counted(p *snapshot.Process) snapshot.Username {
	if !h.Settings.CountOutside {
		return ""
	}
	return h.PersonRunning(p)
}

// PersonRunning is the account of a person that the kernel proves a process to be of; empty for none. A host without
// FirstUID refuses an order with a process of unknown environment.
func (h *HostView) PersonRunning(p *snapshot.Process) snapshot.Username {
	first := snapshot.UID(usualFirstUID)
	if h.Snapshot.FirstUID != nil {
		first = *h.Snapshot.FirstUID
	} else if p.EnvUnknown {
		return ""
	}
	user, uid := h.j.Policy.Account(h.UserOf(p)), p.CountedUID()
	if uid == nil || *uid < first && !(user != "" && h.j.Policy.Names(user)) || p.UserUnknown || p.Start == 0 {
		return ""
	}
	return user
}

// MarkCounted marks the processes of an order that end for what their users have, and are in no environment.
func (h *HostView) MarkCounted(o *order.Order) {
	for i := range o.Terminate {
		t := &o.Terminate[i]
		byUser := slices.ContainsFunc(t.Because, func(id string) bool {
			return enforce.RuleOf(id) != enforce.RuleUnreadable
		})
		t.Counted = byUser && h.environmentOf(&t.Process) == nil && h.Counted(&t.Process) != ""
	}
}

// Holder is a process that keeps GPUs in use for a person to whom the rule idle applies.
type Holder struct {
	Process  *snapshot.Process
	person   snapshot.Username
	Settings *enforce.Settings
	Counts   bool // whatever its environment is
}

// Key is the UseKey of a device that the process uses.
func (x *Holder) Key(h *HostView, index snapshot.DeviceIndex) string {
	return string(h.Name) + "/" + string(x.person) + "/" + h.DeviceKey(index)
}

// holderOf is what a process of the snapshot is a holder for; false for none.
func (h *HostView) holderOf(i int) (Holder, bool) {
	p, env := &h.Snapshot.Processes[i], h.In[i]
	if user := h.Counted(p); user != "" {
		s := h.Ask(user)
		return Holder{p, user, s, true}, s.Idle != nil
	}
	if env == nil || env.exempt || env.Settings.Idle == nil || !env.Settings.Idle.End ||
		UseBy(env.Env.UID, p) == Unused {
		return Holder{}, false
	}
	return Holder{p, h.PersonOf(env), env.Settings, false}, true
}

// sparesAll reports whether an exempt process keeps what it uses from being idle: not one of a desktop, of the host or
// without proof.
func (h *HostView) sparesAll(p *snapshot.Process) bool {
	return !p.NodeMissing && !h.ignoresAllUses(p) && !h.j.Fleet.Protects(p)
}

// currentUse is what a look shows of a person's use of a device.
type currentUse struct {
	device   *snapshot.Device
	settings *enforce.Settings
	attached time.Time // zero if it isn't
	used     bool      // or it may be
	spared   bool      // by an exempt process
}

// rememberUses remembers since when people have the devices of a host, and since when these are idle.
func (j *Judgement) rememberUses(h *HostView) {
	uses := make(map[string]*currentUse)
	at := func(person snapshot.Username, s *enforce.Settings, d *snapshot.Device) *currentUse {
		key := UseKey(h, person, d)
		if uses[key] == nil {
			uses[key] = &currentUse{device: d, settings: s}
		}
		return uses[key]
	}
	for _, env := range h.InOrder {
		if env.Settings.Idle == nil && env.Settings.MaxDuration <= 0 {
			continue
		}
		for _, a := range env.Attachments {
			u := at(h.PersonOf(env), env.Settings, a.Device)
			since := j.Since(h, a.Device.Key(), env.Env.EID, a.Since)
			if u.attached.IsZero() || since.Before(u.attached) {
				u.attached = since
			}
			u.used = u.used || a.Device.ProcessesUnknown || h.use(env, a.Device.Index) != Unused
			u.spared = u.spared || env.ExemptUse(a.Device.Index) != Unused
		}
	}
	for i := range h.Snapshot.Processes {
		x, holds := h.holderOf(i)
		exempt := h.Exempt[h.Snapshot.Processes[i].PID]
		if !holds || exempt && !h.sparesAll(x.Process) {
			continue
		}
		for _, use := range x.Process.Usage {
			if d := h.Devices[use.Index]; d != nil {
				u := at(x.person, x.Settings, d)
				u.used, u.spared = true, u.spared || exempt
			}
		}
		if !exempt {
			h.Holders = append(h.Holders, x)
		}
	}
	measured := false // each minute
	for key, u := range uses {
		j.Next.Uses[key] = j.continued(h, j.Before.Uses[key], u)
		measured = measured || u.settings.Idle != nil && longestPause(u.settings.Idle) == measuredEvery
	}
	if last := j.LastLook(h); measured && !last.IsZero() && h.At.Sub(last) > measuredEvery {
		j.Note(h, "idle times begin again: nothing was measured for %s, and end and below-power need a look each minute",
			text.ShortDuration(h.At.Sub(last)))
	}
}

func (j *Judgement) continued(h *HostView, before enforce.Use, u *currentUse) enforce.Use {
	now := enforce.Use{Break: u.settings.MaxDuration / partOfBreak}
	switch {
	case u.attached.IsZero() && !before.Attached.IsZero():
		now.Attached, now.Detached = before.Attached, cmp.Or(before.Detached, h.At)
	case !before.Attached.IsZero() && before.Attached.Before(u.attached) &&
		u.attached.Sub(cmp.Or(before.Detached, j.LastLook(h))) < now.Break:
		now.Attached = before.Attached
	default:
		now.Attached = u.attached
	}
	rule := u.settings.Idle
	if rule == nil {
		return now
	}
	begins := h.At.Sub(j.LastLook(h)) > longestPause(rule) ||
		!before.Gone.IsZero() && h.At.Sub(before.Gone) >= rule.After/partOfBreak
	clock := func(since time.Time, goesOn bool) time.Time {
		switch {
		case !goesOn || u.spared:
			return time.Time{}
		case begins:
			return h.At
		}
		return cmp.Or(since, h.At)
	}
	now.Break = max(now.Break, rule.After/partOfBreak)
	now.Idle = clock(before.Idle, !u.used || u.device.ComputesLess(rule.Below))
	if rule.BelowPower > 0 {
		now.LowPower = clock(before.LowPower, !u.used || u.device.DrawsLess(rule.BelowPower))
	}
	return now
}

// measuredEvery is how often a device that counts as idle by measurements is measured at least: each minute, or a bit
// later.
const measuredEvery = 90 * time.Second

// looksPerIdleTime is how often a device is looked at, at least, within the time that the rule allows.
const looksPerIdleTime = 4

// longestPause is how long a pause between two looks may be: a device that was idle before and after a night without
// the controller was not seen idle all night.
func longestPause(i *enforce.Idle) time.Duration {
	if i.End || i.BelowPower > 0 {
		return measuredEvery
	}
	return i.After / looksPerIdleTime
}

// keepAbsentUses keeps the uses of hosts that don't answer, and of people who lack the GPU for a short time.
func (j *Judgement) keepAbsentUses() {
	for key, use := range j.Before.Uses {
		name, _, _ := strings.Cut(key, "/")
		h, inFleet := j.ByName[snapshot.Hostname(name)]
		if _, present := j.Next.Uses[key]; present || !inFleet {
			continue
		}
		if h != nil {
			use.Gone, use.Detached = cmp.Or(use.Gone, h.At), cmp.Or(use.Detached, h.At)
		}
		if h == nil || h.At.Sub(use.Gone) < use.Break {
			j.Next.Uses[key] = use
		}
	}
}

// OfEnvironment is the device in the key of an environment, which is on none.
const OfEnvironment = "-1"

// rememberSeen remembers since when attachments and environments count on hosts that don't say it, or have no snapshot.
func (j *Judgement) rememberSeen() {
	j.Next.Seen = make(map[snapshot.AttachmentKey]enforce.Seen, len(j.Before.Seen))
	for key, seen := range j.Before.Seen {
		if _, inFleet := j.ByName[key.Host]; inFleet && j.ByName[key.Host] == nil {
			j.Next.Seen[key] = seen
		}
	}
	for _, h := range j.Hosts {
		j.rememberSeenOn(h)
	}
}

func (j *Judgement) rememberSeenOn(h *HostView) {
	see := func(device string, eid snapshot.EnvID, since snapshot.StartTime, written snapshot.Date) {
		if h.Reports(since) {
			return
		}
		key := snapshot.AttachmentKey{Host: h.Name, Device: device, EID: eid}
		seen, known := j.Before.Seen[key]
		if !known || seen.Written != written {
			seen = enforce.Seen{Written: written, Since: j.firstSeen(h, written)}
		}
		j.Next.Seen[key] = seen
	}
	for i := range h.Snapshot.Environments {
		e := &h.Snapshot.Environments[i]
		see(OfEnvironment, e.EID, e.Since, e.Creation)
	}
	for i := range h.Snapshot.Devices {
		d := &h.Snapshot.Devices[i]
		for _, a := range d.Attachments {
			see(d.Key(), a.EID, a.Since, a.Time)
		}
	}
}

// firstSeen is since when something counts that a host shows for the first time: not before the last look, if there was
// one.
func (j *Judgement) firstSeen(h *HostView, written snapshot.Date) time.Time {
	last := j.LastLook(h)
	at := written.In(h.Zone)
	switch {
	case last.IsZero() || at.After(h.At):
		return h.At
	case at.Before(last):
		return last
	}
	return at
}

// Since is since when an attachment or environment counts, by root's looks or as remembered; now if unknown.
func (j *Judgement) Since(h *HostView, device string, eid snapshot.EnvID, reported snapshot.StartTime) time.Time {
	if h.Reports(reported) {
		return h.Snapshot.When(reported, snapshot.Date{})
	}
	if seen, known := j.Next.Seen[snapshot.AttachmentKey{Host: h.Name, Device: device, EID: eid}]; known {
		return seen.Since
	}
	return h.At
}

// LastLook is when the host was asked for the last snapshot that was judged; zero for none.
func (j *Judgement) LastLook(h *HostView) time.Time {
	known := j.Before.Hosts[h.Name]
	if known.Looked.IsZero() && known.Answered && known.Lost == "" {
		return j.Before.Time // as earlier versions kept it
	}
	return known.Looked
}

// Reports says whether root's looks show since when something counts.
func (h *HostView) Reports(since snapshot.StartTime) bool {
	return since != 0 && !h.Snapshot.Boot.IsZero()
}
