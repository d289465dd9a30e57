package enforce

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// partOfBreak is the part of an allowed time for which the person may be without the GPU, and the time goes on.
const partOfBreak = 4

// useKey names a person's use of a device of a host.
func useKey(h *hostView, person snapshot.Username, d *snapshot.Device) string {
	return string(h.name) + "/" + string(person) + "/" + d.Key()
}

// personOf is who has what is attached to an environment.
func (h *hostView) personOf(env *envView) snapshot.Username {
	if name := env.env.Username; name != "" {
		return h.j.policy.Account(name)
	}
	if uid := env.uid(); uid != nil && *uid != snapshot.NoUID {
		return gpus.UserName("", uid)
	}
	return snapshot.Username("/" + env.env.EID)
}

// usualFirstUID is the first uid of people on a host that doesn't say another one.
const usualFirstUID = 1000

// counted is the user for whom a process counts whatever its environment is, since the policy wants it; empty for none.
func (h *hostView) counted(p *snapshot.Process) snapshot.Username {
	if !h.settings.CountOutside {
		return ""
	}
	return h.personRunning(p)
}

// personRunning is whose process it is, if the kernel proves that and it is an account of a person; empty otherwise. A
// host that doesn't say which these are is of a version that refuses an order with a process of unknown environment.
func (h *hostView) personRunning(p *snapshot.Process) snapshot.Username {
	first := snapshot.UID(usualFirstUID)
	if h.snapshot.FirstUID != nil {
		first = *h.snapshot.FirstUID
	} else if p.EnvUnknown {
		return ""
	}
	user, uid := h.j.policy.Account(h.userOf(p)), p.CountedUID()
	if uid == nil || *uid < first && !(user != "" && h.j.policy.Names(user)) || p.UserUnknown || p.Start == 0 {
		return ""
	}
	return user
}

// markCounted marks the processes of an order that end for what their users have, and are in no environment.
func (h *hostView) markCounted(o *order.Order) {
	for i := range o.Terminate {
		t := &o.Terminate[i]
		byUser := slices.ContainsFunc(t.Because, func(id string) bool { return RuleOf(id) != RuleUnreadable })
		t.Counted = byUser && h.environmentOf(&t.Process) == nil && h.counted(&t.Process) != ""
	}
}

// holder is a process that keeps GPUs in use for a person to whom the rule idle applies.
type holder struct {
	process  *snapshot.Process
	person   snapshot.Username
	settings *Settings
	counts   bool // whatever its environment is
}

// key is the useKey of a device that the process uses.
func (x *holder) key(h *hostView, index snapshot.DeviceIndex) string {
	return string(h.name) + "/" + string(x.person) + "/" + h.deviceKey(index)
}

// holderOf is what a process of the snapshot is a holder for; false for none.
func (h *hostView) holderOf(i int) (holder, bool) {
	p, env := &h.snapshot.Processes[i], h.in[i]
	if user := h.counted(p); user != "" {
		s := h.ask(h.j.policy, user, h.j.now)
		return holder{p, user, s, true}, s.Idle != nil
	}
	if env == nil || env.exempt || env.settings.Idle == nil || !env.settings.Idle.End ||
		contents.UseBy(env.env.UID, p) == contents.Unused {
		return holder{}, false
	}
	return holder{p, h.personOf(env), env.settings, false}, true
}

// sparesAll reports whether a process keeps what it uses from being idle, since it is exempt. That of a desktop, of the
// host or without proof doesn't.
func (h *hostView) sparesAll(p *snapshot.Process) bool {
	return !p.NodeMissing && !h.ignoresAllUses(p) && !h.j.fleet.protects(p)
}

// currentUse is what a look shows of a person's use of a device.
type currentUse struct {
	device   *snapshot.Device
	settings *Settings
	attached time.Time // zero if it isn't
	used     bool      // or it may be
	spared   bool      // by an exempt process
}

// rememberUses remembers since when people have the devices of a host, and since when these are idle.
func (j *judgement) rememberUses(h *hostView) {
	uses := make(map[string]*currentUse)
	at := func(person snapshot.Username, s *Settings, d *snapshot.Device) *currentUse {
		key := useKey(h, person, d)
		if uses[key] == nil {
			uses[key] = &currentUse{device: d, settings: s}
		}
		return uses[key]
	}
	for _, env := range h.inOrder {
		if env.settings.Idle == nil && env.settings.MaxDuration <= 0 {
			continue
		}
		for _, a := range env.Attachments {
			u := at(h.personOf(env), env.settings, a.Device)
			since := j.since(h, a.Device.Key(), env.env.EID, a.Since)
			if u.attached.IsZero() || since.Before(u.attached) {
				u.attached = since
			}
			u.used = u.used || a.Device.ProcessesUnknown || h.use(env, a.Device.Index) != contents.Unused
			u.spared = u.spared || h.sparesUse(env, a.Device.Index)
		}
	}
	for i := range h.snapshot.Processes {
		x, holds := h.holderOf(i)
		exempt := h.exempt[h.snapshot.Processes[i].PID]
		if !holds || exempt && !h.sparesAll(x.process) {
			continue
		}
		for _, use := range x.process.Usage {
			if d := h.devices[use.Index]; d != nil {
				u := at(x.person, x.settings, d)
				u.used, u.spared = true, u.spared || exempt
			}
		}
		if !exempt {
			h.holders = append(h.holders, x)
		}
	}
	measured := false // each minute
	for key, u := range uses {
		j.next.Uses[key] = j.continued(h, j.before.Uses[key], u)
		measured = measured || u.settings.Idle != nil && longestPause(u.settings.Idle) == measuredEvery
	}
	if last := j.lastLook(h); measured && !last.IsZero() && h.at.Sub(last) > measuredEvery {
		j.note(h, "idle times begin again: nothing was measured for %s, and end and below-power need a look each minute",
			text.ShortDuration(h.at.Sub(last)))
	}
}

// continued is a use that goes on, or begins.
func (j *judgement) continued(h *hostView, before Use, u *currentUse) Use {
	now := Use{Break: u.settings.MaxDuration / partOfBreak}
	switch {
	case u.attached.IsZero() && !before.Attached.IsZero():
		now.Attached, now.Detached = before.Attached, cmp.Or(before.Detached, h.at)
	case !before.Attached.IsZero() && before.Attached.Before(u.attached) &&
		u.attached.Sub(cmp.Or(before.Detached, j.lastLook(h))) < now.Break:
		now.Attached = before.Attached
	default:
		now.Attached = u.attached
	}
	rule := u.settings.Idle
	if rule == nil {
		return now
	}
	begins := h.at.Sub(j.lastLook(h)) > longestPause(rule) ||
		!before.Gone.IsZero() && h.at.Sub(before.Gone) >= rule.After/partOfBreak
	clock := func(since time.Time, goesOn bool) time.Time {
		switch {
		case !goesOn || u.spared:
			return time.Time{}
		case begins:
			return h.at
		}
		return cmp.Or(since, h.at)
	}
	now.Break = max(now.Break, rule.After/partOfBreak)
	now.Idle = clock(before.Idle, !u.used || u.device.ComputesLess(rule.Below))
	if rule.BelowPower > 0 {
		now.LowPower = clock(before.LowPower, !u.used || u.device.DrawsLess(rule.BelowPower))
	}
	return now
}

// measuredEvery is how often a device is measured at least that counts as idle by what is measured: each minute, with
// time for a look that is late.
const measuredEvery = 90 * time.Second

// looksPerIdleTime is how often a device is looked at, at least, within the time that the rule allows.
const looksPerIdleTime = 4

// longestPause is how long a pause between two looks may be. A device that was idle before and after a night in
// which the controller didn't run was not seen idle all night.
func longestPause(i *Idle) time.Duration {
	if i.End || i.BelowPower > 0 {
		return measuredEvery
	}
	return i.After / looksPerIdleTime
}

// keepAbsentUses keeps the uses of hosts that don't answer, and those of people who don't have the GPU for a short
// time.
func (j *judgement) keepAbsentUses() {
	for key, use := range j.before.Uses {
		name, _, _ := strings.Cut(key, "/")
		h, inFleet := j.byName[snapshot.Hostname(name)]
		if _, present := j.next.Uses[key]; present || !inFleet {
			continue
		}
		if h != nil {
			use.Gone, use.Detached = cmp.Or(use.Gone, h.at), cmp.Or(use.Detached, h.at)
		}
		if h == nil || h.at.Sub(use.Gone) < use.Break {
			j.next.Uses[key] = use
		}
	}
}
