package judging

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// breakPart is the part of an allowed time for which a person may lack the GPU without a reset.
const breakPart = 4

// UseOf is the key of a person's use of a device.
func UseOf(person snapshot.Username, d *snapshot.Device) enforce.UseKey {
	return enforce.UseKey{Person: person, Device: d.Key()}
}

func (h *HostView) personOf(env *EnvView) snapshot.Username {
	if name := env.Env.Username; name != "" {
		return h.j.Policy.Account(name)
	}
	if uid := env.UID(); uid != nil && *uid != snapshot.NoUID {
		return gpus.UserName("", uid)
	}
	return snapshot.Username("/" + env.Env.EID)
}

// usualFirstUID is for hosts that report none.
const usualFirstUID = 1000

// CountsOutside is the user for whom a process counts whatever its environment is; empty for none.
func (h *HostView) CountsOutside(p *snapshot.Process) snapshot.Username {
	if !h.Settings.CountOutside {
		return ""
	}
	return h.ProvenUser(p)
}

// ProvenUser is the person whom a process provably belongs to; empty for none. A host without FirstUID refuses orders
// about processes of unknown environment.
func (h *HostView) ProvenUser(p *snapshot.Process) snapshot.Username {
	first := snapshot.UID(usualFirstUID)
	if h.Snapshot.FirstUID != nil {
		first = *h.Snapshot.FirstUID
	} else if p.EnvUnknown {
		return ""
	}
	user, uid := h.j.Policy.Account(h.UserOf(p)), p.CountsForUID()
	if uid == nil || *uid < first && !(user != "" && h.j.Policy.Names(user)) || p.UserUnknown || p.Start == 0 {
		return ""
	}
	return user
}

// MarkCounted marks processes of an order that are in no environment and end for what their users have.
func (h *HostView) MarkCounted(o *order.Order) {
	for i := range o.Terminate {
		t := &o.Terminate[i]
		byUser := slices.ContainsFunc(t.Because, func(id string) bool {
			return enforce.RuleOf(id) != enforce.RuleUnreadable
		})
		t.Counted = byUser && h.environmentOf(&t.Process) == nil && h.CountsOutside(&t.Process) != ""
	}
}

// Holder is a process that keeps GPUs in use for a person to whom the rule idle applies.
type Holder struct {
	Process  *snapshot.Process
	Person   snapshot.Username
	Settings *enforce.Settings
	Counts   bool // whatever its environment is
}

// Key is the key of the person's use of a device.
func (x *Holder) Key(h *HostView, index snapshot.DeviceIndex) enforce.UseKey {
	return enforce.UseKey{Person: x.Person, Device: h.DeviceKey(index)}
}

func (h *HostView) holderOf(i int) (Holder, bool) {
	p, env := &h.Snapshot.Processes[i], h.In[i]
	if user := h.CountsOutside(p); user != "" {
		s := h.SettingsOf(user)
		return Holder{p, user, s, true}, s.Idle != nil
	}
	if env == nil || env.exempt || env.Settings.Idle == nil || !env.Settings.Idle.End ||
		UseBy(env.Env.UID, p) == Unused {
		return Holder{}, false
	}
	return Holder{p, env.Person, env.Settings, false}, true
}

// keepsInUse reports whether an exempt process keeps its devices from being idle: no daemon, desktop or unproved
// process does.
func (h *HostView) keepsInUse(p *snapshot.Process) bool {
	return !p.NodeMissing && !h.ignoresAllUses(p) && !h.j.Fleet.Protects(p)
}

type currentUse struct {
	key      enforce.UseKey
	device   *snapshot.Device
	settings *enforce.Settings
	attached time.Time // zero if it isn't
	used     bool      // or possibly
	exempt   bool      // an exempt process uses it
}

func (j *Judgement) currently(person snapshot.Username, s *enforce.Settings, d *snapshot.Device) *currentUse {
	key := UseOf(person, d)
	at, known := j.useAt[key]
	if !known {
		at = len(j.uses)
		j.useAt[key], j.uses = at, append(j.uses, currentUse{key: key, device: d, settings: s})
	}
	return &j.uses[at]
}

// RememberUses updates since when people have the devices of a host, and since when these are idle.
func (j *Judgement) RememberUses(h *HostView) {
	j.uses, j.Holders = j.uses[:0], j.Holders[:0]
	clear(j.useAt)
	for _, env := range h.InOrder {
		if env.Settings.Idle == nil && env.Settings.MaxDuration <= 0 {
			continue
		}
		for _, a := range env.Attachments {
			u := j.currently(env.Person, env.Settings, a.Device)
			if u.attached.IsZero() || a.Began.Before(u.attached) {
				u.attached = a.Began
			}
			u.used = u.used || a.Device.ProcessesUnknown || h.use(env, a.Device.Index) != Unused
			u.exempt = u.exempt || env.ExemptUse(a.Device.Index) != Unused
		}
	}
	for i := range h.Snapshot.Processes {
		x, holds := h.holderOf(i)
		exempt := h.Exempt[h.Snapshot.Processes[i].PID]
		if !holds || exempt && !h.keepsInUse(x.Process) {
			continue
		}
		for _, use := range x.Process.Usage {
			if d := h.Devices[use.Index]; d != nil {
				u := j.currently(x.Person, x.Settings, d)
				u.used, u.exempt = true, u.exempt || exempt
			}
		}
		if !exempt {
			j.Holders = append(j.Holders, x)
		}
	}
	h.continueUses()
	isMeasured := func(u currentUse) bool { // each minute
		return u.settings.Idle != nil && longestPause(u.settings.Idle) == measuredEvery
	}
	if pause := h.At.Sub(h.LastLook); pause > measuredEvery && !h.LastLook.IsZero() &&
		slices.ContainsFunc(j.uses, isMeasured) {
		j.Note(h, "idle times begin again: nothing was measured for %s, and end and below-power need a look each minute",
			text.ShortDuration(pause))
	}
}

func (h *HostView) continueUses() {
	before := h.j.Before.Uses[h.Name]
	own := false
	set := func(key enforce.UseKey, use enforce.Use) {
		if !own {
			h.Uses, own = maps.Clone(before), true
		}
		Put(&h.Uses, key, use)
	}
	h.Uses, h.MostIdle = before, -1
	missing := len(before) // earlier uses that aren't current
	for i := range h.j.uses {
		u := &h.j.uses[i]
		last, known := before[u.key]
		if known {
			missing--
		}
		now := h.continued(last, u)
		if h.MostIdle = max(h.MostIdle, now.IdleFor(h.At)); !known || now != last {
			set(u.key, now)
		}
	}
	for key, use := range before {
		if missing == 0 {
			break
		}
		if _, present := h.j.useAt[key]; present {
			continue
		}
		h.MostIdle = max(h.MostIdle, use.IdleFor(h.At))
		use.Gone, use.Detached = cmp.Or(use.Gone, h.At), cmp.Or(use.Detached, h.At)
		if set(key, use); h.At.Sub(use.Gone) >= use.Break {
			delete(h.Uses, key)
		}
	}
	keep(h.j.Next.Uses, h.Name, h.Uses)
}

func (h *HostView) continued(before enforce.Use, u *currentUse) enforce.Use {
	now := enforce.Use{Break: u.settings.MaxDuration / breakPart}
	switch {
	case u.attached.IsZero() && !before.Attached.IsZero():
		now.Attached, now.Detached = before.Attached, cmp.Or(before.Detached, h.At)
	case !before.Attached.IsZero() && before.Attached.Before(u.attached) &&
		u.attached.Sub(cmp.Or(before.Detached, h.LastLook)) < now.Break:
		now.Attached = before.Attached
	default:
		now.Attached = u.attached
	}
	rule := u.settings.Idle
	if rule == nil {
		return now
	}
	begins := h.At.Sub(h.LastLook) > longestPause(rule) ||
		!before.Gone.IsZero() && h.At.Sub(before.Gone) >= rule.After/breakPart
	clock := func(since time.Time, goesOn bool) time.Time {
		switch {
		case !goesOn || u.exempt:
			return time.Time{}
		case begins:
			return h.At
		}
		return cmp.Or(since, h.At)
	}
	now.Break = max(now.Break, rule.After/breakPart)
	now.Idle = clock(before.Idle, !u.used || u.device.ComputesLess(rule.Below))
	if rule.BelowPower > 0 {
		now.LowPower = clock(before.LowPower, !u.used || u.device.DrawsLess(rule.BelowPower))
	}
	return now
}

// measuredEvery is the longest pause between measurements that prove a device idle.
const measuredEvery = 90 * time.Second

const looksPerIdleTime = 4

// longestPause is the longest pause between two looks that proves anything: a device that was idle before and after a
// night was perhaps not idle all night.
func longestPause(i *enforce.Idle) time.Duration {
	if i.End || i.BelowPower > 0 {
		return measuredEvery
	}
	return i.After / looksPerIdleTime
}

const ofEnvironment = "-1"

func (j *Judgement) keepSilent() {
	for name, h := range j.ByName {
		if h == nil {
			keep(j.Next.Uses, name, j.Before.Uses[name])
			keep(j.Next.Seen, name, j.Before.Seen[name])
		}
	}
}

// since is when an attachment or environment began to count: by root's looks or, without these, when it was first seen.
func (h *HostView) since(device string, eid snapshot.EnvID, reported snapshot.StartTime, written snapshot.Date,
) time.Time {
	if h.Reports(reported) {
		return h.Snapshot.When(reported, snapshot.Date{})
	}
	key := snapshot.AttachmentKey{Host: h.Name, Device: device, EID: eid}
	seen, known := h.j.Before.Seen[h.Name][key]
	if !known || seen.Written != written {
		seen = enforce.Seen{Written: written, Since: h.firstSeen(written)}
	}
	h.j.seen[key] = seen
	return seen.Since
}

// rememberSeen keeps the same map if nothing changed.
func (h *HostView) rememberSeen() {
	seen := h.j.Before.Seen[h.Name]
	if !maps.Equal(seen, h.j.seen) {
		seen = maps.Clone(h.j.seen)
	}
	keep(h.j.Next.Seen, h.Name, seen)
	clear(h.j.seen)
}

func keep[K comparable, V any](of map[snapshot.Hostname]map[K]V, host snapshot.Hostname, values map[K]V) {
	if len(values) > 0 {
		of[host] = values
	}
}

// firstSeen is when something new counts from: no earlier than the last look.
func (h *HostView) firstSeen(written snapshot.Date) time.Time {
	at := written.In(h.Zone)
	switch {
	case h.LastLook.IsZero() || at.After(h.At):
		return h.At
	case at.Before(h.LastLook):
		return h.LastLook
	}
	return at
}

// Reports says whether root's looks show since when something counts.
func (h *HostView) Reports(since snapshot.StartTime) bool {
	return since != 0 && !h.Snapshot.Boot.IsZero()
}
