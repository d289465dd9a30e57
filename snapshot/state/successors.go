package state

import (
	"cmp"
	"os"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// maxSuccessors bounds how many processes are registered in the place of those
// that are gone. When these have ended too, others are looked for.
const maxSuccessors = 16

// Environ is what could be read of a process's environ.
type Environ int

// The three answers. With EnvironWiped the process has overwritten its environ, or
// never had one; with EnvironHidden this user may not read it.
const (
	EnvironHidden Environ = iota
	EnvironRead
	EnvironWiped
)

// RunningProcess is a living process as a search for an environment's work sees it.
type RunningProcess struct {
	PID, Parent snapshot.PID
	Start       snapshot.StartTime
	UID         snapshot.UID // the real one
	Name        string
	Environ     Environ
	EID         snapshot.EnvID // what an environ that was read claims; empty for none
}

// census is a list of the processes of the uids that were asked for. It is made
// when it is first asked for, and again when other uids are.
type census struct {
	machine  System
	asked    map[snapshot.UID]bool // nil before the first question
	list     []RunningProcess
	complete bool
}

// of lists the living processes of uids, all of them with none given. complete
// is unset where /proc hides others'.
func (c *census) of(uids ...snapshot.UID) (list []RunningProcess, complete bool) {
	missing := c.asked == nil || slices.ContainsFunc(uids, func(uid snapshot.UID) bool { return !c.asked[uid] })
	if missing {
		c.asked = map[snapshot.UID]bool{}
		for _, uid := range uids {
			c.asked[uid] = true
		}
		c.list, c.complete = c.machine.Running(func(uid snapshot.UID) bool { return len(uids) == 0 || c.asked[uid] })
	}
	return c.list, c.complete
}

// successors are the living processes of an environment's user that are in it,
// the oldest first: those that carry its id in an environ that could be read,
// and the descendants of these of which that cannot be told. unsure says that
// there may be others.
func successors(env *snapshot.Environment, processes []RunningProcess, leaving func(snapshot.PID) bool) (pids []snapshot.PID, unsure bool) {
	c := claimsOf(env.UID, processes, leaving)
	return c.pids[env.EID], c.unsure
}

// claims are the living processes of one user by environment, as for successors.
// A user may register any number of environments, so the processes are looked
// through once for all of them.
type claims struct {
	pids   map[snapshot.EnvID][]snapshot.PID // at most maxSuccessors of each
	unsure bool
}

func claimsOf(uid snapshot.UID, processes []RunningProcess, leaving func(snapshot.PID) bool) claims {
	own := map[snapshot.PID]*RunningProcess{}
	for i := range processes {
		if p := &processes[i]; p.UID == uid && !leaving(p.PID) {
			own[p.PID] = p
		}
	}
	c, answers := claims{pids: map[snapshot.EnvID][]snapshot.PID{}}, map[snapshot.PID]claim{}
	for _, p := range byAge(processes) {
		if own[p.PID] == nil || slices.Contains(loginPrograms, p.Name) {
			continue
		}
		switch claim := claimOf(own, p.PID, answers); {
		case claim.known:
			if len(c.pids[claim.eid]) < maxSuccessors {
				c.pids[claim.eid] = append(c.pids[claim.eid], p.PID)
			}
		case p.Environ == EnvironHidden && p.PID != 1:
			c.unsure = true
		}
	}
	return c
}

// claim is the environment that a process claims to be in, if that is known.
type claim struct {
	eid   snapshot.EnvID
	known bool
}

// claimOf is the claim of a process, or else of its nearest ancestor of the same
// user that has one. It keeps the answers, since processes may be nested deeply.
func claimOf(own map[snapshot.PID]*RunningProcess, pid snapshot.PID, answers map[snapshot.PID]claim) claim {
	answer, asked := answers[pid]
	p := own[pid]
	switch {
	case asked || p == nil:
		return answer
	case p.Environ == EnvironRead:
		answer = claim{p.EID, true}
	default:
		answers[pid] = claim{} // should the list have a process among its own ancestors
		answer = claimOf(own, p.Parent, answers)
	}
	answers[pid] = answer
	return answer
}

// loginPrograms come with a login and are not work. Most hide their environ from
// their own user, since they hold secrets.
var loginPrograms = []string{
	"sshd", "sshd-session", "(sd-pam)", "ssh-agent", "gpg-agent", "gnome-keyring-d", "fusermount", "fusermount3", "sudo", "su", "login",
}

// byAge is the oldest first; start times are of a hundredth of a second.
func byAge(processes []RunningProcess) []RunningProcess {
	return slices.SortedFunc(slices.Values(processes), func(a, b RunningProcess) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
	})
}

// itself recognizes this process, which may carry the id of an environment while it
// cleans up, and doesn't count as work.
func itself(pid snapshot.PID) bool { return int(pid) == os.Getpid() }

// remains lists the processes that still run in an environment when one leaves it.
type remains func(env *snapshot.Environment, leaving snapshot.PID) []snapshot.PID

// remaining is the remains of Deactivate: the process that leaves does not count,
// nor do those between it and this one, such as a shell's $(…).
func (s *Store) remaining(all *census) remains {
	return func(env *snapshot.Environment, leaving snapshot.PID) []snapshot.PID {
		list, _ := all.of(env.UID)
		line := lineage(list, snapshot.PID(os.Getpid()), leaving)
		pids, _ := successors(env, list, func(pid snapshot.PID) bool { return pid == leaving || line[pid] })
		return pids
	}
}

// lineage are a process and its ancestors below the one that leaves; the process
// alone if that one is not among its ancestors.
func lineage(list []RunningProcess, pid, leaving snapshot.PID) map[snapshot.PID]bool {
	parents := map[snapshot.PID]snapshot.PID{}
	for _, p := range list {
		parents[p.PID] = p.Parent
	}
	line := map[snapshot.PID]bool{pid: true}
	for at := pid; at != leaving; {
		parent, ok := parents[at]
		if !ok || line[parent] {
			return map[snapshot.PID]bool{pid: true}
		}
		line[parent], at = true, parent
	}
	return line
}
