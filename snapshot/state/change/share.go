package change

import (
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/quota"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// What a user may take of a state file, and all users together, in units of weight: bytes, and more for what takes
// more. No genv reads a file with more than 8 MiB or 2^18 values.
const (
	maxShare  = 64 << 10 // about 450 environments
	maxWeight = 1_000_000

	entryWeight  = 112 // an environment or an attachment, without its texts
	memberWeight = 16  // a process or a Jupyter kernel, without its id
	commaWeight  = 8   // values are counted by the commas, also those in texts
)

// CheckShare refuses more than a user's share, which root hasn't, or than there is room for.
func CheckShare(f *state.Files, uid snapshot.UID) error {
	owners := make(map[snapshot.EnvID]snapshot.UID, len(f.Environments))
	type weights struct{ own, all int }
	var envs, devices weights
	add := func(to *weights, weight int, own bool) {
		if to.all += weight; own {
			to.own += weight
		}
	}
	for i := range f.Environments {
		e := &f.Environments[i]
		owners[e.EID] = e.UID
		add(&envs, weightOf(e), e.UID == uid)
	}
	for i := range f.Devices {
		for _, a := range f.Devices[i].Attachments {
			owner, registered := owners[a.EID]
			weight := entryWeight + textWeight(string(a.EID)) + textWeight(a.GPUMemory.String())
			add(&devices, weight, owner == uid || !registered)
		}
	}
	switch {
	case uid != 0 && envs.own > maxShare:
		return state.Refuse("uid %d has more environments, processes and kernels than one user may have: end some "+
			"with `genv deactivate`", uid)
	case uid != 0 && devices.own > maxShare:
		return state.Refuse("uid %d has more attachments than one user may have: end some with `genv detach`", uid)
	case uid != 0 && !(quota.Leaves(envs.own, envs.all, maxWeight) &&
		quota.Leaves(devices.own, devices.all, maxWeight)):
		return state.Refuse("the state files of this host are nearly full, and uid %d has its part of them", uid)
	case envs.all > maxWeight || devices.all > maxWeight:
		return state.Refuse("the state files of this host are full")
	}
	return nil
}

func weightOf(e *snapshot.Environment) int {
	weight := entryWeight + memberWeight*(len(e.PIDs)+len(e.KernelIDs))
	for _, text := range []string{string(e.EID), string(e.Username), e.Config.Name, e.Config.GPUMemory.String()} {
		weight += textWeight(text)
	}
	for _, id := range e.KernelIDs {
		weight += textWeight(id)
	}
	return weight
}

func textWeight(text string) int { return len(text) + (commaWeight-1)*strings.Count(text, ",") }
