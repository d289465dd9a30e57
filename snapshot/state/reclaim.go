package state

import (
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// reclaim registers environments again that are in root's copy but no longer in
// envs.json, while processes of their users still run in them: a genv 1.4.3 dropped
// them with their shell, or found envs.json missing and began an empty one.
// Processes that were registered do not count, since they may have left. Devices
// that another environment has got meanwhile are not taken back.
func (b *Books) reclaim(good *lastGood, all *census) {
	before, err := snapshot.DecodeEnvironments(good.envs)
	if err != nil {
		return
	}
	registered := b.byID()
	lost := slices.DeleteFunc(before, func(e snapshot.Environment) bool { return registered[e.EID] != nil })
	if len(lost) == 0 {
		return
	}
	uids := make([]snapshot.UID, 0, len(lost))
	for i := range lost {
		uids = append(uids, lost[i].UID)
	}
	list, _ := all.of(uids...)
	devices, _ := snapshot.DecodeDevices(good.devices) // without them it has none
	claimsOfUser := once(func(uid snapshot.UID) claims { return claimsOf(uid, list, itself) })
	for i := range lost {
		env := &lost[i]
		if len(claimsOfUser(env.UID).pids[env.EID]) == 0 {
			continue
		}
		left := func(pid snapshot.PID) bool { return itself(pid) || slices.Contains(env.PIDs, pid) }
		pids, _ := successors(env, list, left)
		if len(pids) == 0 {
			continue
		}
		env.PIDs, env.KernelIDs = pids, nil
		b.Environments = append(b.Environments, *env)
		b.reattach(env.EID, devices)
		b.Warnings = append(b.Warnings, fmt.Sprintf("environment %s of uid %d was no longer in %s although its user's processes go on: registered again",
			snapshot.Shown(string(env.EID)), env.UID, envsFile))
	}
}

// reattach gives an environment the attachments that it had, as far as there is
// room.
func (b *Books) reattach(eid snapshot.EnvID, before []snapshot.Device) {
	for i := range before {
		d, a := b.Device(before[i].Index), before[i].Attachment(eid)
		if d == nil || a == nil || d.Attachment(eid) != nil {
			continue
		}
		if r := (AttachRequest{Memory: a.GPUMemory}); r.fits(d) {
			d.Attachments = append(slices.Clone(d.Attachments), *a)
		}
	}
}
