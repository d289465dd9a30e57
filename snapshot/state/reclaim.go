package state

import (
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// reclaim registers environments again that are in root's copy but no longer in
// envs.json, while processes of their users still run in them: a genv 1.4.3 dropped
// them with their shell, or found envs.json missing and began an empty one.
// Shells that were registered do not count, since they may have left. Devices
// that another environment has got meanwhile are not taken back. It says whether
// there was any.
func (b *Files) reclaim(good *lastGood, all *census) (found bool) {
	before, err := decodeEnvironments(good.envs)
	if err != nil {
		return false
	}
	registered := b.byID()
	lost := slices.DeleteFunc(before, func(e snapshot.Environment) bool { return registered[e.EID] != nil })
	if len(lost) == 0 {
		return false
	}
	devices, _ := decodeDevices(good.devices) // without them it has none
	pidsOf := goingOn(lost, all)
	for i := range lost {
		env := &lost[i]
		pids := pidsOf(env)
		if len(pids) == 0 {
			continue
		}
		env.PIDs, env.KernelIDs = pids, nil
		b.Environments = append(b.Environments, *env)
		b.reattach(env.EID, devices)
		b.Warnings = append(b.Warnings, fmt.Sprintf("environment %s of uid %d was no longer in %s although its user's processes go on: registered again",
			snapshot.Shown(string(env.EID)), env.UID, envsFile))
		found = true
	}
	return found
}

// goingOn finds the processes that go on in environments which were lost. A user
// may have lost any number of them, so his processes are looked through once.
func goingOn(lost []snapshot.Environment, all *census) func(*snapshot.Environment) []snapshot.PID {
	uids := make([]snapshot.UID, 0, len(lost))
	was := map[snapshot.PID]bool{}
	for i := range lost {
		uids = append(uids, lost[i].UID)
		for _, pid := range lost[i].PIDs {
			was[pid] = true
		}
	}
	list, _ := all.of(uids...)
	byUser, left := map[snapshot.UID][]RunningProcess{}, map[snapshot.PID]bool{}
	for _, p := range list {
		byUser[p.UID] = append(byUser[p.UID], p)
		left[p.PID] = was[p.PID] && slices.Contains(shells, p.Name)
	}
	claimsOfUser := once(func(uid snapshot.UID) claims {
		return claimsOf(uid, byUser[uid], func(pid snapshot.PID) bool { return itself(pid) || left[pid] })
	})
	return func(env *snapshot.Environment) []snapshot.PID { return claimsOfUser(env.UID).pids[env.EID] }
}

// shells leave an environment by `genv deactivate`, and carry its id still if they
// were started in it. Other processes are in it for as long as they carry its id.
var shells = []string{"sh", "ash", "bash", "rbash", "dash", "zsh", "fish", "ksh", "mksh", "tcsh", "csh"}

// reattach gives an environment the attachments that it had, as far as there is
// room.
func (b *Files) reattach(eid snapshot.EnvID, before []snapshot.Device) {
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
