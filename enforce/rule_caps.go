package enforce

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// caps takes environments and devices from users who are over a cap: never more than the excess, and those first
// that cost the user least. What one cap takes doesn't count for the next.
func (j *judgement) caps() {
	users := j.usersWithCaps()
	j.sharedBoots = j.boots()
	for _, u := range users {
		if limit := u.settings.MaxEnvs; limit != nil {
			j.maxEnvs(u, max(0, *limit))
		}
		if limit := u.settings.MaxDevices; limit != nil && len(u.devices) > *limit {
			j.maxDevices(u, max(0, *limit))
		}
		if limit := u.settings.MaxMemory; limit != nil {
			j.maxMemory(u, *limit)
		}
	}
	if len(users) > 0 && len(j.missing) > 0 { // without their number, so that it is the same note while some are missing
		j.notes = append(j.notes, Note{Text: "some hosts did not answer: devices there don't count toward per-user caps"})
	}
}

// maxEnvs takes environments beyond the cap: those without any device first, from which there is nothing to
// take, then those without a process, then the newest. The environments themselves stay: they are people's shells.
func (j *judgement) maxEnvs(u *held, limit int) {
	if len(u.envs) <= limit {
		return
	}
	since := func(e heldEnv) time.Time { return j.since(e.h, ofEnvironment, e.env.EID, e.env.Since) }
	slices.SortStableFunc(u.envs, func(a, b heldEnv) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), since(b).Compare(since(a)), b.env.Creation.Compare(a.env.Creation),
			cmp.Compare(a.h.order, b.h.order), cmp.Compare(a.env.EID, b.env.EID))
	})
	f := Finding{Rule: RuleMaxEnvsPerUser, Count: &CountExcess{Used: len(u.envs), Limit: limit, Hosts: hostsOf(u.envs, func(e heldEnv) *hostView { return e.h })}}
	j.overCap(u, f, u.envs[:len(u.envs)-limit], nil)
}

// maxDevices takes devices beyond the cap.
func (j *judgement) maxDevices(u *held, limit int) {
	counted := j.counted(u, time.Time{})
	if len(counted) <= limit {
		return
	}
	by := j.dueAt(u.settings.Warn, u.findingOf(RuleMaxDevicesPerUser))
	then := j.counted(u, by)
	c := &choice{j: j, by: by, excess: int64(len(then) - limit), weight: func(*heldDevice) int64 { return 1 }, mayKeep: -1}
	f := Finding{Rule: RuleMaxDevicesPerUser, Count: &CountExcess{Used: len(counted), Limit: limit, Hosts: hostsOf(counted, hostOf)}}
	for _, d := range counted {
		f.Count.Attached += min(len(d.envs), 1)
	}
	f.Count.Unattached = len(counted) - f.Count.Attached
	j.overCap(u, f, nil, c.devices(then))
}

// maxMemory takes devices until the user has no more memory than the cap allows.
func (j *judgement) maxMemory(u *held, limit int64) {
	counted, used := j.withMemory(u, time.Time{})
	if used <= limit {
		return
	}
	by := j.dueAt(u.settings.Warn, u.findingOf(RuleMaxMemoryPerUser))
	then, left := j.withMemory(u, by)
	c := &choice{j: j, by: by, excess: left - limit, weight: (*heldDevice).memory, mayKeep: limit}
	f := Finding{Rule: RuleMaxMemoryPerUser, Memory: &MemoryExcess{UsedBytes: used, CapacityBytes: limit}}
	f.Count = &CountExcess{Used: len(counted), Hosts: hostsOf(counted, hostOf)}
	j.overCap(u, f, nil, c.devices(then))
}

// withMemory are the counted devices of which the memory is known, and how much that is.
func (j *judgement) withMemory(u *held, by time.Time) (counted []*heldDevice, used int64) {
	counted = slices.DeleteFunc(j.counted(u, by), func(d *heldDevice) bool {
		if used += max(0, d.memory()); d.memory() == unknownBytes {
			why := "the memory of device %d is unknown, so memory caps don't count it"
			if d.Unified {
				why = "device %d shares the memory of its machine, so memory caps don't apply to it"
			}
			j.note(d.h, why, d.Index)
		}
		return d.memory() == unknownBytes
	})
	return counted, used
}

// hostsOf is on how many hosts something is; this machine, which has no name, doesn't count.
func hostsOf[T any](list []T, of func(T) *hostView) int {
	hosts := make(map[snapshot.Hostname]bool)
	for _, item := range list {
		hosts[of(item).name] = true
	}
	delete(hosts, "")
	return len(hosts)
}

func hostOf(d *heldDevice) *hostView { return d.h }

// findingOf is the ID of a finding about the user.
func (u *held) findingOf(rule Rule) string { return fmt.Sprintf("%s/%s", rule, u.user) }

// overCap adds a finding about a user who is to lose environments or devices.
func (j *judgement) overCap(u *held, f Finding, envs []heldEnv, devices []*heldDevice) {
	f.User, f.ID, f.HostsMissing = u.user, u.findingOf(f.Rule), len(j.missing)
	due := j.checkDue(&f, u.settings.Warn, f.ID)
	if j.fleet.PauseCaps && f.HostsMissing > 0 {
		// The user may have more there, never less; but what costs least to lose may be there.
		f.Waits = fmt.Sprintf("%d of the hosts did not answer, and the policy says \"unreachable: hold\"", f.HostsMissing)
		due, f.Pending = false, true
	}
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
		devices = append(devices, d.copies...)
	}
	for _, d := range devices {
		for _, env := range d.envs {
			if !d.stays {
				j.loseDevice(&f, due, d.h, env, d.Index)
			}
		}
		for _, use := range d.uses {
			end(d.h, use.process)
		}
	}
	j.add(f)
}
