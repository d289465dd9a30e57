package enforce

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/snapshot"
)

// caps takes devices from users who are over a cap: never more than the excess,
// and those first that cost the user least.
func (j *judgement) caps() {
	capped := false
	defer func() { j.noteMissing(capped) }()
	for _, u := range j.allocations() {
		if _, exempt := j.policy.Exempt(Subject{User: u.user}); exempt {
			continue
		}
		s := j.policy.Settings(Query{User: u.user, At: j.now})
		if s.MaxDevices == nil && s.MaxMemory == nil && s.MaxEnvs == nil {
			continue
		}
		capped = true
		if s.MaxEnvs != nil {
			j.maxEnvs(u, *s.MaxEnvs, s.Warn)
		}
		if s.MaxDevices != nil {
			j.maxDevices(u, *s.MaxDevices, s.Warn)
		}
		if s.MaxMemory != nil {
			j.maxMemory(u, *s.MaxMemory, s.Warn)
		}
	}
}

// findCap is checkDue for a cap, which knows of hosts that did not answer. Their
// devices do not count, so the user may be over by more, never by less; what
// costs least to lose may be there, though, so the policy can have caps wait.
func (j *judgement) findCap(f *Finding, warn Warn) (due bool) {
	due = j.checkDue(f, warn, f.ID)
	f.HostsMissing = len(j.missing)
	if j.fleet.PauseCaps && f.HostsMissing > 0 {
		f.Pending, f.Waits = true, fmt.Sprintf("%d of the hosts did not answer, and the policy has caps wait for them", f.HostsMissing)
		return false
	}
	return due
}

// noteMissing says once a cycle that caps were counted without some hosts.
func (j *judgement) noteMissing(capped bool) {
	if capped && len(j.missing) > 0 { // without their number, so that it is the same note while some are missing
		j.notes = append(j.notes, Note{Text: "some hosts did not answer: what users have there does not count for their caps"})
	}
}

func (j *judgement) maxDevices(u *allocation, limit int, warn Warn) {
	devices := u.counted()
	if len(devices) <= limit {
		return
	}
	taken := choose(devices, func(chosen []*allocatedDevice) bool { return len(chosen) >= len(devices)-limit })
	j.takeDevices(u, taken, warn, Finding{Rule: RuleMaxDevicesPerUser, Count: &CountExcess{Used: len(devices), Limit: limit, Hosts: u.hosts}})
}

func (j *judgement) maxMemory(u *allocation, limit int64, warn Warn) {
	var known []*allocatedDevice
	used := int64(0)
	for _, d := range u.counted() {
		n, ok := d.bytes()
		if !ok {
			j.note(d.host, "the memory of device %d is not known, so no cap of memory counts it", d.device.Index)
			continue
		}
		used += n
		known = append(known, d)
	}
	if used <= limit {
		return
	}
	counted, freed := 0, int64(0) // choose only ever adds
	enough := func(chosen []*allocatedDevice) bool {
		freed += sum(chosen[counted:])
		counted = len(chosen)
		return used-freed <= limit
	}
	free, busy := partition(known)
	taken := choose(free, enough)
	if !enough(taken) {
		taken = append(taken, j.busyOver(busy, limit, used-freed)...)
	}
	taken = spareNeedless(taken, limit-(used-sum(taken)))
	j.takeDevices(u, taken, warn, Finding{
		Rule:   RuleMaxMemoryPerUser,
		Memory: &MemoryExcess{UsedBytes: used, CapacityBytes: limit}, Count: &CountExcess{Used: len(known), Hosts: u.hosts},
	})
}

// partition separates the devices that are proven to be in use from the others.
func partition(devices []*allocatedDevice) (free, busy []*allocatedDevice) {
	for _, d := range devices {
		if d.busy() {
			busy = append(busy, d)
		} else {
			free = append(free, d)
		}
	}
	return free, busy
}

// busyOver chooses among devices that are proven to be in use. Their capacities
// are claims of state files, so whatever these say, processes end only while
// what they use themselves is more than the limit, and that is known.
func (j *judgement) busyOver(busy []*allocatedDevice, limit, claimed int64) []*allocatedDevice {
	used := int64(0)
	for _, d := range busy {
		n, _ := d.usedBytes() // unknown counts as 0 here, so that fewer processes end
		used += n
	}
	counted := 0
	return choose(busy, func(chosen []*allocatedDevice) bool {
		for _, d := range chosen[counted:] {
			n, _ := d.usedBytes()
			used -= n
		}
		claimed -= sum(chosen[counted:])
		counted = len(chosen)
		return used <= limit || claimed <= limit
	})
}

func sum(devices []*allocatedDevice) int64 {
	total := int64(0)
	for _, d := range devices {
		n, _ := d.bytes() // those of unknown memory are not among them
		total += n
	}
	return total
}

// spareNeedless gives back what turned out not to be needed, the costliest
// first: surplus is by how many bytes too much was chosen.
func spareNeedless(chosen []*allocatedDevice, surplus int64) []*allocatedDevice {
	for i := len(chosen) - 1; i >= 0; i-- {
		if n, _ := chosen[i].bytes(); n <= surplus {
			surplus -= n
			chosen = slices.Delete(chosen, i, i+1)
		}
	}
	return chosen
}

// maxEnvs takes the devices of environments beyond the cap: those without any
// first, from which there is nothing to take, then those without a process,
// then the newest. The environments themselves stay: they are people's shells.
func (j *judgement) maxEnvs(u *allocation, limit int, warn Warn) {
	if len(u.envs) <= limit {
		return
	}
	envs := slices.Clone(u.envs)
	slices.SortStableFunc(envs, func(a, b userEnv) int {
		return cmp.Or(cmp.Compare(a.cost(), b.cost()), b.env.Creation.Compare(a.env.Creation), cmp.Compare(a.host.order, b.host.order), cmp.Compare(a.env.EID, b.env.EID))
	})
	f := Finding{Rule: RuleMaxEnvsPerUser, User: u.user, ID: capID(RuleMaxEnvsPerUser, u.user), Count: &CountExcess{Used: len(envs), Limit: limit, Hosts: u.hosts}}
	due, dealt := j.findCap(&f, warn), make(map[ProcessRef]bool)
	for _, env := range envs[:len(envs)-limit] {
		for _, a := range env.Attachments {
			if !env.host.sparesUse(env.envView, a.Device.Index) && !env.host.hidesOn(env.envView, a.Device.Index) {
				j.loseDevice(&f, due, env.host, env.envView, a.Device.Index)
				j.endAll(&f, due, dealt, env.host, slices.Collect(env.On(a.Device.Index)))
			}
		}
	}
	j.add(f)
}

// cost is 0 for an environment that has nothing to lose, then 1 for one without
// processes, and more the better its use is proven.
func (u userEnv) cost() int {
	if len(u.Attachments) == 0 {
		return 0
	}
	most := contents.Unused
	for _, p := range u.Processes {
		most = max(most, contents.UseBy(u.env.UID, p))
	}
	return 1 + int(most)
}

// takeDevices is a finding about a user who loses devices once it is due.
func (j *judgement) takeDevices(u *allocation, taken []*allocatedDevice, warn Warn, f Finding) {
	f.User, f.ID = u.user, capID(f.Rule, u.user)
	due, dealt := j.findCap(&f, warn), make(map[ProcessRef]bool)
	for _, d := range taken {
		for _, env := range d.envs {
			j.loseDevice(&f, due, d.host, env.envView, d.device.Index)
		}
		j.endAll(&f, due, dealt, d.host, d.processes)
	}
	j.add(f)
}

func capID(rule Rule, user snapshot.Username) string { return fmt.Sprintf("%s/%s", rule, user) }

// endAll notes that processes which would go on using a device are to end.
// Those that are dealt with already are not named again.
func (j *judgement) endAll(f *Finding, due bool, dealt map[ProcessRef]bool, h *hostView, processes []*snapshot.Process) {
	for _, p := range processes {
		if ref := (ProcessRef{h.name, p.PID}); !dealt[ref] {
			dealt[ref] = true
			j.end(f, due, h, p)
		}
	}
}
