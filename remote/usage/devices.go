package usage

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// use is what a user has of a device.
type use struct {
	device         snapshot.DeviceIndex
	model          string
	user           snapshot.Username
	attached, used bool
	// blind says that its processes are unknown, or to which GPU it was attached; utilization is
	// what the driver measured, nil for nothing.
	blind       bool
	utilization *int
	memory      int64 // MiB
}

// computesFrom is the utilization from which a device computes: up to 5 % is what a
// notebook or a process that waits causes.
const computesFrom = 6

// rate is what a second of it amounts to; after the host has stopped answering if lost.
func (u *use) rate(lost bool) (a Amounts) {
	switch {
	case lost && u.attached:
		return Amounts{Unknown: 1}
	case lost:
		return Amounts{}
	}
	if u.attached {
		a.Attached = 1
	}
	switch {
	case u.used:
		a.Used, a.Memory = 1, u.memory
		if u.utilization == nil {
			a.Unmeasured = 1
		} else if *u.utilization >= computesFrom {
			a.Computing = 1
		}
	case u.attached && u.blind:
		a.Unmeasured = 1
	case u.attached:
		a.Idle = 1
	}
	return a
}

// with is both uses together, of the same device.
func (u use) with(other *use) use {
	u.attached, u.used = u.attached || other.attached, u.used || other.used
	u.memory += other.memory
	return u
}

type hostUses struct {
	byUser, byDevice []use // one for each user on a device, and one for each device
}

func usesOf(s *snapshot.Snapshot, names *hostNames) hostUses {
	environments := snapshot.ByID(s.Environments)
	devices := make(map[snapshot.DeviceIndex]use, len(s.Devices))
	var uses []use
	for i := range s.Devices {
		d := &s.Devices[i]
		blank := use{device: d.Index, model: names.model(d), blind: d.ProcessesUnknown || d.Failed ||
			d.Unidentified, utilization: d.Utilization}
		devices[d.Index] = blank
		for j := range d.Attachments {
			u := blank
			u.attached, u.user = true, names.user(gpus.UserName(environments[d.Attachments[j].EID].Account()))
			uses = append(uses, u)
		}
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.NodeMissing {
			continue
		}
		user := names.user(memberOf(p, environments))
		for _, usage := range p.Usage {
			if u, known := devices[usage.Index]; known {
				u.used, u.memory, u.user = true, usage.Memory.Bytes()>>20, user
				uses = append(uses, u)
			}
		}
	}
	slices.SortStableFunc(uses, func(a, b use) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.user, b.user))
	})
	byUser := joined(uses, func(a, b *use) bool { return a.device == b.device && a.user == b.user })
	return hostUses{byUser, joined(byUser, func(a, b *use) bool { return a.device == b.device })}
}

// memberOf is for whom a process counts: for the user of the environment that it is in, if that admits it,
// and otherwise for its owner as the kernel reports it.
func memberOf(p *snapshot.Process, environments map[snapshot.EnvID]*snapshot.Environment) snapshot.Username {
	if user, uid := snapshot.EnvironmentOf(p, environments).Account(); uid != nil {
		return gpus.UserName(user, uid)
	}
	return gpus.UserName(p.Account(nil))
}

func joined(uses []use, same func(a, b *use) bool) (list []use) {
	for i := range uses {
		if last := len(list) - 1; last >= 0 && same(&list[last], &uses[i]) {
			list[last] = list[last].with(&uses[i])
		} else {
			list = append(list, uses[i])
		}
	}
	return slices.Clip(list)
}
