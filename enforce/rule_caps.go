package enforce

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/caps"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// The caps of a user on all hosts together.
const (
	RuleMaxEnvsPerUser    Rule = "max-envs-per-user"
	RuleMaxDevicesPerUser Rule = "max-devices-per-user"
	RuleMaxMemoryPerUser  Rule = "max-memory-per-user"
)

// adviceDetach is for when nothing is left to give back, or it is not known what: see Finding.Advice.
const adviceDetach = "Before you take more GPUs, give back those that you need less: end their jobs, then genv " +
	"detach --index N in their shell."

var maxEnvsRule = rule{
	Setting: newCap(string(RuleMaxEnvsPerUser), func(s *Settings) **int { return &s.MaxEnvs }, "4"),
	advice:  "End environments that you need no more: genv deactivate, or exit their shells.",
	line: func(f Finding) string {
		return fmt.Sprintf("User %s has %d environments%s which is %d more than the maximum allowed",
			f.User, f.Count.Used, f.Count.where(), f.Count.Used-f.Count.Limit)
	},
	user: (*judgement).maxEnvs,
}

var maxDevicesRule = rule{
	Setting: newCap(string(RuleMaxDevicesPerUser), func(s *Settings) **int { return &s.MaxDevices }, "2"),
	advice:  adviceDetach,
	line: func(f Finding) string {
		return fmt.Sprintf("User %s is using %d devices%s which is %d more than the maximum allowed",
			f.User, f.Count.Used, f.Count.where(), f.Count.Used-f.Count.Limit)
	},
	user: (*judgement).maxDevices,
}

var maxMemoryRule = rule{
	Setting: Setting{strictyaml.NewOptional(string(RuleMaxMemoryPerUser),
		func(s *Settings) **snapshot.Memory { return &s.MaxMemory },
		"80g", readMemory, snapshot.Memory.String), ByUser},
	advice: adviceDetach,
	line: func(f Finding) string {
		return fmt.Sprintf("User %s is using %s of device memory%s which is %s more than the maximum allowed",
			f.User, text.GiB(f.Memory.UsedBytes), f.Count.where(), text.GiB(f.Memory.bytes()))
	},
	user: (*judgement).maxMemory,
}

func readMemory(n *strictyaml.Node) snapshot.Memory {
	m, err := snapshot.ParseMemory(n.Scalar())
	if err != nil {
		n.Failf("%v, or false for no cap", err)
	}
	return m
}

// caps takes environments and devices from users who are over a cap: never more than the excess, and those first
// that cost the user least. What one cap takes doesn't count for the next.
func (j *judgement) caps() {
	users := j.usersWithCaps()
	j.markSharedBoots()
	for _, u := range users {
		for i := range rules {
			if rules[i].user != nil {
				rules[i].user(j, u)
			}
		}
	}
	// without their number, so that it is the same note while some are missing
	if len(users) > 0 && len(j.missing) > 0 {
		j.notes = append(j.notes, Note{Text: "some hosts did not answer: devices there don't count toward per-user " +
			"caps"})
	}
}

// maxEnvs takes environments beyond the cap: those without any device first, from which there is nothing to
// take, then those without a process, then the newest. The environments themselves stay: they are people's shells.
func (j *judgement) maxEnvs(u *held) {
	if u.settings.MaxEnvs == nil || len(u.envs) <= *u.settings.MaxEnvs {
		return
	}
	limit := max(0, *u.settings.MaxEnvs)
	since := func(e heldEnv) time.Time { return j.since(e.h, ofEnvironment, e.env.EID, e.env.Since) }
	slices.SortStableFunc(u.envs, func(a, b heldEnv) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), since(b).Compare(since(a)), b.env.Creation.Compare(a.env.Creation),
			cmp.Compare(a.h.position, b.h.position), cmp.Compare(a.env.EID, b.env.EID))
	})
	f := Finding{
		Rule: RuleMaxEnvsPerUser, Count: &CountExcess{Used: len(u.envs), Limit: limit},
		CountedOn: hostsOf(u.envs, func(e heldEnv) *hostView { return e.h }),
	}
	j.overCap(u, f, u.envs[:len(u.envs)-limit], nil)
}

// maxDevices takes devices beyond the cap.
func (j *judgement) maxDevices(u *held) {
	if u.settings.MaxDevices == nil || len(u.devices) <= *u.settings.MaxDevices {
		return
	}
	limit := max(0, *u.settings.MaxDevices)
	counted := caps.Counted(u.devices, time.Time{})
	if len(counted) <= limit {
		return
	}
	by := j.dueAt(nil, u.settings.warnOf(RuleMaxDevicesPerUser), []string{u.findingOf(RuleMaxDevicesPerUser)})
	then := caps.Counted(u.devices, by)
	c := caps.Choice{
		By: by, Excess: int64(len(then) - limit), Weight: func(*caps.HeldDevice) int64 { return 1 },
		MayKeep: -1,
	}
	f := Finding{
		Rule: RuleMaxDevicesPerUser, Count: &CountExcess{Used: len(counted), Limit: limit},
		CountedOn: hostsOf(counted, hostOf),
	}
	for _, d := range counted {
		f.Count.Attached += min(len(d.Envs), 1)
	}
	f.Count.Unattached = len(counted) - f.Count.Attached
	j.overCap(u, f, nil, c.Devices(then))
}

// maxMemory takes devices until the user has no more memory than the cap allows.
func (j *judgement) maxMemory(u *held) {
	if u.settings.MaxMemory == nil {
		return
	}
	limit := u.settings.MaxMemory.Bytes()
	counted, used := j.withMemory(u, time.Time{})
	if used <= limit {
		return
	}
	by := j.dueAt(nil, u.settings.warnOf(RuleMaxMemoryPerUser), []string{u.findingOf(RuleMaxMemoryPerUser)})
	then, left := j.withMemory(u, by)
	c := caps.Choice{By: by, Excess: left - limit, Weight: (*caps.HeldDevice).Memory, MayKeep: limit}
	f := Finding{Rule: RuleMaxMemoryPerUser, Memory: &MemoryExcess{UsedBytes: used, CapacityBytes: limit}}
	f.Count, f.CountedOn = &CountExcess{Used: len(counted)}, hostsOf(counted, hostOf)
	j.overCap(u, f, nil, c.Devices(then))
}

// withMemory are the counted devices of which the memory is known, and how much that is.
func (j *judgement) withMemory(u *held, by time.Time) (counted []*caps.HeldDevice, used int64) {
	counted = slices.DeleteFunc(caps.Counted(u.devices, by), func(d *caps.HeldDevice) bool {
		if used += max(0, d.Memory()); d.Memory() == caps.UnknownBytes {
			why := "the memory of device %d is unknown, so memory caps don't count it"
			if d.Unified {
				why = "device %d shares the memory of its machine, so memory caps don't apply to it"
			}
			j.note(hostOf(d), why, d.Index)
		}
		return d.Memory() == caps.UnknownBytes
	})
	return counted, used
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

// These, and what is drafted for the host, are a caps.HostState.

func (h *hostView) Position() int         { return h.position }
func (h *hostView) SharedBoot() string    { return h.sharedBoot }
func hostOf(d *caps.HeldDevice) *hostView { return d.Host.(*hostView) }

func (h *hostView) Stuck(p *snapshot.Process) bool {
	_, stuck := h.stuckBecause(p)
	return stuck
}

// hostsOf are the hosts on which something is; this machine, which has no name, is none.
func hostsOf[T any](list []T, of func(T) *hostView) []snapshot.Hostname {
	names := make([]snapshot.Hostname, len(list))
	for i, item := range list {
		names[i] = of(item).name
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name snapshot.Hostname) bool { return name == "" })
}

// findingOf is the ID of a finding about the user.
func (u *held) findingOf(rule Rule) string { return fmt.Sprintf("%s/%s", rule, u.user) }

// overCap adds a finding about a user who is to lose environments or devices.
func (j *judgement) overCap(u *held, f Finding, envs []heldEnv, devices []*caps.HeldDevice) {
	f.User, f.ID, f.HostsMissing, f.Count.Hosts = u.user, u.findingOf(f.Rule), len(j.missing), len(f.CountedOn)
	due := j.checkDue(nil, &f, clock{u.settings.warnOf(f.Rule), []string{f.ID}})
	if j.fleet.PauseCaps && f.HostsMissing > 0 {
		// The user may have more there, never less; but what costs least to lose may be there.
		f.Waits = fmt.Sprintf("%d of the hosts did not answer, and the policy says \"unreachable: hold\"",
			f.HostsMissing)
		due, f.Pending = false, true
	}
	due = due && j.confirmed(&f)
	named := make(map[*snapshot.Process]bool)
	end := func(h *hostView, p *snapshot.Process) { // once
		if !named[p] {
			j.end(&f, due, h, p)
		}
		named[p] = true
	}
	for _, e := range envs {
		for _, a := range e.Attachments {
			index := a.Device.Index
			if e.h.sparesUse(e.envView, index) || e.h.hidesOn(e.envView, index) {
				continue
			}
			j.loseDevice(&f, due, e.h, e.envView, index)
			for p := range e.On(index) {
				end(e.h, p)
			}
		}
	}
	for _, d := range slices.Clone(devices) {
		devices = append(devices, d.Copies...)
	}
	for _, d := range devices {
		h := hostOf(d)
		for _, eid := range d.Envs {
			if !d.Stays {
				j.loseDevice(&f, due, h, h.envs[eid], d.Index)
			}
		}
		for _, use := range d.Uses {
			end(h, use.Process)
		}
	}
	j.add(f)
}

// sameMoment is how far apart looks at hosts may be that count as one: nothing moves from host to host within it.
const sameMoment = FreshFor / 10

// confirmed reports whether the looks at the hosts on which a cap counts something are fresh, and of one moment.
// Otherwise these hosts are asked once more: somebody who moved a job to another host would be counted twice.
func (j *judgement) confirmed(f *Finding) bool {
	var counted []*hostView
	for _, name := range append(slices.Clip(f.CountedOn), "") { // this machine has no name
		if h := j.byName[name]; h != nil {
			counted = append(counted, h)
		}
	}
	f.Pending, f.Deferred = true, true // unless they are
	if len(j.waiting) > 0 || slices.ContainsFunc(counted, func(h *hostView) bool { return h.acted }) {
		return false // what an order did there has to show itself first
	}
	var newest time.Time
	underWay := false // then a look shows what an order is doing: the next tick brings one
	for _, h := range counted {
		if h.isNew || j.now.Sub(h.at) <= FreshFor {
			newest = later(newest, h.at)
		}
		underWay = underWay || h.UnderWay.Orders > 0
	}
	p, since := j.next.Present[f.ID], j.now // if all are old
	if !newest.IsZero() {
		since = newest.Add(-sameMoment)
	}
	if again := p.AskedAgain; !again.IsZero() && again.Before(since) {
		since = again
	}
	old := slices.DeleteFunc(counted, func(h *hostView) bool { return !h.at.Before(since) })
	switch {
	case len(old) == 0:
		p.AskedAgain, f.Pending, f.Deferred = time.Time{}, false, false
	case p.AskedAgain.IsZero() && !underWay:
		p.AskedAgain = j.now
		for _, h := range old {
			j.ask[h.name] = true
		}
	}
	j.next.Present[f.ID] = p
	return len(old) == 0
}
