package disk

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"os"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

func byPID(list []system.RunningProcess) map[snapshot.PID]system.RunningProcess {
	processes := make(map[snapshot.PID]system.RunningProcess, len(list))
	for _, p := range list {
		processes[p.PID] = p
	}
	return processes
}

// members are a user's living processes that carry environments, oldest first.
type members struct {
	of     map[snapshot.EnvID][]system.RunningProcess // at most maxSuccessors each
	unsure bool                                       // there may be more
	late   bool                                       // one was not read in time
}

func membersOf(
	r *snapshot.Register, uid snapshot.UID, processes []system.RunningProcess,
	excluded func(system.RunningProcess) bool,
) members {
	const maxSuccessors = 16 // registered in place of the ended ones; later ones are searched for
	own := byPID(slices.DeleteFunc(slices.Clone(processes), func(p system.RunningProcess) bool { return p.UID != uid }))
	m := members{of: map[snapshot.EnvID][]system.RunningProcess{}}
	oldestFirst := func(a, b system.RunningProcess) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.PID, b.PID))
	}
	for _, p := range slices.SortedFunc(slices.Values(processes), oldestFirst) {
		if p.UID != uid || excluded(p) || slices.Contains(loginPrograms, p.Name) {
			continue
		}
		switch owner := r.Owner(lineage(p, own), ""); {
		case owner.Carries(owner.EID):
			if len(m.of[owner.EID]) < maxSuccessors {
				m.of[owner.EID] = append(m.of[owner.EID], p)
			}
		case owner.Unknown != nil && p.IsUnknown() && p.PID != 1:
			m.unsure, m.late = true, m.late || p.IsLate()
		}
	}
	return m
}

var errNoClaim = errors.New("the environ doesn't say the environment")

// lineage yields a process, its ancestors of the same user, and its session leader. That may have ended, but its PID
// isn't reused before the session ends.
func lineage(p system.RunningProcess, own map[snapshot.PID]system.RunningProcess) iter.Seq2[snapshot.Relative, error] {
	const maxAncestors = 256
	uid := func() (snapshot.UID, error) { return p.UID, nil }
	return func(yield func(snapshot.Relative, error) bool) {
		at, living := p, true
		for n := 0; living && n < maxAncestors; n++ {
			eid, unread := at.EID, at.Unread
			claim := func() (snapshot.EnvID, error) { return eid, unread }
			if !yield(snapshot.Relative{PID: at.PID, Start: at.Start, UID: uid, Claim: claim}, nil) {
				return
			}
			at, living = own[at.Parent]
		}
		claim := func() (snapshot.EnvID, error) { return "", errNoClaim }
		yield(snapshot.Relative{PID: p.Session, Start: own[p.Session].Start, UID: uid, Claim: claim}, nil)
	}
}

// registered is the files' register with one more process in an environment.
func (t *transaction) registered(also snapshot.PID, in snapshot.EnvID) *snapshot.Register {
	environments := slices.Clone(t.files.Environments)
	for i := range environments {
		if e := &environments[i]; also != 0 && e.EID == in {
			e.PIDs = append(slices.Clone(e.PIDs), also)
		}
	}
	return snapshot.NewRegister(environments, t.startTimes(), t.files.Answers)
}

// membersByUser is membersOf per user. complete: no process is hidden.
func (t *transaction) membersByUser(environments []*snapshot.Environment) (
	of func(*snapshot.Environment) members, complete bool,
) {
	uids, empty := make([]snapshot.UID, 0, len(environments)), map[snapshot.EnvID]bool{}
	for _, env := range environments {
		uids, empty[env.EID] = append(uids, env.UID), true
	}
	t.running.processes(uids...)
	byUser := map[snapshot.UID][]system.RunningProcess{}
	for _, p := range t.running.list {
		byUser[p.UID] = append(byUser[p.UID], p)
	}
	known := t.running.emptied
	if t.running.unread {
		t.running.emptied = empty
	}
	registered := t.registered(0, "")
	isSelf := func(p system.RunningProcess) bool { return int(p.PID) == os.Getpid() } // it keeps nothing alive
	ofUser := memoize(func(uid snapshot.UID) members { return membersOf(registered, uid, byUser[uid], isSelf) })
	return func(env *snapshot.Environment) members {
		m := ofUser(env.UID)
		m.unsure = m.unsure || !known[env.EID] || !t.running.covers(env.UID) // it may have a new process
		return m
	}, t.running.complete
}

func (t *transaction) register(processes []system.RunningProcess) (pids []snapshot.PID) {
	for _, p := range processes {
		pids, t.starts[p.PID] = append(pids, p.PID), p.Start
	}
	return pids
}

// loginPrograms come with a login, and don't keep an environment alive. Most hide their environ.
var loginPrograms = []string{
	"sshd", "sshd-session", "(sd-pam)", "ssh-agent", "gpg-agent", "gnome-keyring-d",
	"fusermount", "fusermount3", "sudo", "su", "login",
}

// findSuccessors returns the processes that keep an environment alive after one leaves. The leaving and the asking
// process, and those between, such as the subshell of $(…), don't count. If there are none and one couldn't be read in
// time, the leaving one stays.
func (t *transaction) findSuccessors(env *snapshot.Environment, leaving snapshot.PID) []snapshot.PID {
	list := t.running.processes(env.UID)
	path := processesUpTo(list, leaving, cmp.Or(t.files.Asker, snapshot.PID(os.Getpid())))
	m := membersOf(t.registered(leaving, env.EID), env.UID, list, func(p system.RunningProcess) bool {
		return p.PID == leaving || path[p.PID]
	})
	if len(m.of[env.EID]) == 0 && m.late && leaving != 0 { // a kernel has no PID
		return []snapshot.PID{leaving}
	}
	return t.register(m.of[env.EID])
}

// processesUpTo returns a process and its ancestors up to the given one, or just the process if that is no ancestor.
func processesUpTo(list []system.RunningProcess, ancestor, pid snapshot.PID) map[snapshot.PID]bool {
	processes := byPID(list)
	path := map[snapshot.PID]bool{pid: true}
	for at := pid; at != ancestor; {
		p, ok := processes[at]
		if !ok || path[p.Parent] {
			return map[snapshot.PID]bool{pid: true}
		}
		path[p.Parent], at = true, p.Parent
	}
	return path
}

// running is what /proc says. Users can make reading slow, so it isn't read under the lock: a transaction that needs
// more ends with errUnread and restarts. What stays unread is unknown.
type running struct {
	system   system.System
	readings int
	unread   bool // the transaction needs more

	wanted   map[snapshot.UID]bool
	users    map[snapshot.UID]bool // with processes in the list
	list     []system.RunningProcess
	complete bool                    // false: processes may be hidden
	emptied  map[snapshot.EnvID]bool // had no registered process before the last reading

	kernels map[system.Kernel]system.Liveness // nil before the first reading
	asked   []system.Kernel
}

var errUnread = errors.New("processes or kernels have to be read")

func (s *Store) afterReading(transaction func(*running) error) error {
	r := &running{system: s.System, wanted: map[snapshot.UID]bool{}, emptied: map[snapshot.EnvID]bool{}}
	for {
		r.unread = false
		if err := transaction(r); !errors.Is(err, errUnread) {
			return err
		}
		r.read()
	}
}

func (r *running) processes(users ...snapshot.UID) []system.RunningProcess {
	const maxReadings = 3
	if !r.covers(users...) {
		for _, uid := range users {
			r.wanted[uid] = true
		}
		r.unread = r.readings < maxReadings
		return nil
	}
	return r.list
}

func (r *running) covers(users ...snapshot.UID) bool {
	return !slices.ContainsFunc(users, func(uid snapshot.UID) bool { return !r.users[uid] })
}

// kernelStates says which kernels live. Those registered after the first reading are unknown.
func (r *running) kernelStates(kernels []system.Kernel) map[system.Kernel]system.Liveness {
	if r.kernels == nil && len(kernels) > 0 {
		r.asked, r.unread = kernels, true
	}
	return r.kernels
}

func (r *running) read() {
	r.readings++
	r.list, r.complete = r.system.Running(func(uid snapshot.UID) bool { return r.wanted[uid] })
	r.users = maps.Clone(r.wanted)
	if r.kernels == nil && len(r.asked) > 0 {
		r.kernels = map[system.Kernel]system.Liveness{} // unknown if /proc can't be read
		maps.Copy(r.kernels, r.system.Kernels(r.asked))
	}
}
