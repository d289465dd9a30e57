package disk

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// recoverDropped registers environments again that are in root's copy but no longer
// in envs.json, although processes of their users still run in them: genv 1.4.3
// dropped them with their shell, or found envs.json missing and created an empty
// one. Shells that were registered do not count, since they may have left. Devices
// that another environment has got meanwhile are not attached again. It says whether
// there were any such environments.
func (t *transaction) recoverDropped() (found bool) {
	var before state.Files
	if before.Decode(state.Envs, t.backup.contents[state.Envs]) != nil {
		return false
	}
	_ = before.Decode(state.Devices, t.backup.contents[state.Devices]) // without it nothing is attached again
	registered := snapshot.ByID(t.files.Environments)
	var lost []*snapshot.Environment
	wasRegistered := map[snapshot.PID]bool{}
	for i := range before.Environments {
		env := &before.Environments[i]
		if registered[env.EID] != nil {
			continue
		}
		lost = append(lost, env)
		for _, pid := range env.PIDs {
			wasRegistered[pid] = true
		}
	}
	if len(lost) == 0 {
		return false
	}
	of, _ := t.membersByUser(lost, func(p system.RunningProcess) bool {
		return isSelf(p) || wasRegistered[p.PID] && slices.Contains(shells, p.Name)
	})
	for _, env := range lost {
		still := of(env).of[env.EID]
		if len(still) == 0 {
			continue
		}
		env.PIDs, env.KernelIDs = t.register(still), nil
		t.files.Environments = append(t.files.Environments, *env)
		t.files.AttachAsBefore(env.EID, before.Devices)
		t.files.Warn("environment %s of uid %d was no longer in %s although processes of its user still run in it: registered again",
			text.Shown(string(env.EID)), env.UID, state.Envs)
		found = true
	}
	return found
}

// shells leave an environment by `genv deactivate`, but still carry its id if they
// were started in it. Other processes belong to it as long as they carry its id.
var shells = []string{"sh", "ash", "bash", "rbash", "dash", "zsh", "fish", "ksh", "mksh", "tcsh", "csh"}

// maxRecovered bounds how many new environments of a user are recovered, since any
// user can start processes with any id.
const maxRecovered = 64

// recoverNew registers environments that were created after root's copy was taken,
// by the processes with their ids that started since root last saw the state files
// complete. If processes of several users have the same id, the environment belongs
// to the user of the process after which it is named. If there is none, it is not
// registered, and its processes are protected for a while: see Restoration.
func (t *transaction) recoverNew() {
	list, _ := t.census.processes()
	processes, since := byAge(list), t.lastComplete()
	registered, pids := snapshot.ByID(t.files.Environments), byPID(processes)
	members := map[snapshot.EnvID][]system.RunningProcess{}
	for _, p := range processes {
		if p.Environ == system.EnvironRead && p.EID != "" && p.Start >= since && registered[p.EID] == nil {
			members[p.EID] = append(members[p.EID], p)
		}
	}
	recovered, contested := map[snapshot.UID]int{}, 0
	for _, p := range processes {
		group := members[p.EID]
		if group == nil {
			continue
		}
		delete(members, p.EID) // each id once
		uid, ok := ownerOf(p.EID, group, pids)
		switch {
		case !ok:
			if contested++; contested <= maxRecovered {
				t.files.Warn("environment %s, which began after the copy, is claimed by processes of several users: it was not registered", text.Shown(string(p.EID)))
			}
		case recovered[uid] < maxRecovered:
			recovered[uid]++
			t.registerRecovered(p.EID, uid, group)
		}
	}
}

func (t *transaction) registerRecovered(eid snapshot.EnvID, uid snapshot.UID, group []system.RunningProcess) {
	own := slices.DeleteFunc(slices.Clone(group), func(p system.RunningProcess) bool { return p.UID != uid })
	pids := t.register(own[:min(len(own), maxSuccessors)])
	env := snapshot.Environment{EID: eid, UID: uid, PIDs: pids, Creation: snapshot.DateOf(t.Now())}
	t.files.Environments = append(t.files.Environments, env)
	t.files.Warn("environment %s of uid %d, which began after the copy, was registered again for its processes; its configuration is lost", text.Shown(string(eid)), uid)
}

// findOwners sets the owners that envs.json doesn't say, from the kernel: the user of a registered process or, for
// root's genv, of processes with that id. An environment without either is removed.
func (t *transaction) findOwners() {
	members := map[snapshot.EnvID][]system.RunningProcess{}
	for i := range t.files.Environments {
		if env := &t.files.Environments[i]; env.UID == snapshot.NoUID && !t.ownedBy(env) && t.access.writable {
			members[env.EID] = nil
		}
	}
	if len(members) == 0 {
		return
	}
	list, _ := t.census.processes()
	for _, p := range byAge(list) {
		if group, ok := members[p.EID]; ok {
			members[p.EID] = append(group, p)
		}
	}
	pids := byPID(list)
	t.files.Environments = slices.DeleteFunc(t.files.Environments, func(env snapshot.Environment) bool {
		group, lost := members[env.EID]
		return lost && len(group) == 0
	})
	for i := range t.files.Environments {
		env := &t.files.Environments[i]
		if uid, ok := ownerOf(env.EID, members[env.EID], pids); ok && uid != 0 && env.UID == snapshot.NoUID {
			env.UID = uid
		}
	}
}

// ownedBy sets the owner of an environment from a registered process that lives, and reports whether there is one.
func (t *transaction) ownedBy(env *snapshot.Environment) bool {
	for _, pid := range env.PIDs {
		if p := t.process(pid); p.Liveness == system.Alive && !t.known.ended(pid, p) && p.Owner != nil && *p.Owner != 0 {
			env.UID = *p.Owner
			return true
		}
	}
	return false
}

// ownerOf returns the user of the process after which an environment is named, if
// that user is among those of the environment's processes; else their only user. ok
// is false if that can't be decided.
func ownerOf(eid snapshot.EnvID, group []system.RunningProcess, processes map[snapshot.PID]system.RunningProcess) (owner snapshot.UID, ok bool) {
	pid, err := strconv.ParseInt(string(eid), 10, 32)
	namesake, named := processes[snapshot.PID(pid)]
	named = named && err == nil && strconv.FormatInt(pid, 10) == string(eid)
	ok = true
	for _, p := range group {
		switch {
		case named && p.UID == namesake.UID:
			return namesake.UID, true
		case p.UID == 0 || p.UID == owner: // root's processes may be in any user's environment, by sudo
		case owner == 0:
			owner = p.UID
		default:
			ok = false
		}
	}
	return owner, ok
}

// Reattach attaches registered environments to devices that their processes use, even
// if these have no room. It is called soon after a restoration, when attachments made
// after the copy are missing; a warning names each one. Existing attachments stay
// unchanged.
func (s *Store) Reattach(ctx context.Context, uses map[snapshot.EnvID][]snapshot.DeviceIndex) (state.Files, error) {
	t, err := s.updateOrRead(ctx, func(f *state.Files) error {
		for _, eid := range slices.Sorted(maps.Keys(uses)) {
			env := f.Environment(eid)
			if env == nil {
				continue
			}
			for _, index := range uses[eid] {
				f.AttachAgain(env, index, snapshot.DateOf(s.Now()))
			}
		}
		return nil
	})
	return s.finish(ctx, t, err)
}
