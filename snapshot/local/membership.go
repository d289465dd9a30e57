package local

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
)

var (
	errNoStateFiles = errors.New("the state files can't be used")
	errNoAccount    = errors.New("the account of the process is unknown")
)

// resolve finds the environments of processes in the state files, which are read after the processes, so that none is
// missing. With readErr, or PIDs of another namespace, only an environ shows one.
func (o *observer) resolve(seen []observation, files state.Files, readErr error) ([]snapshot.Process, []string) {
	if readErr != nil || files.LivenessUnknown {
		readErr, files = errNoStateFiles, state.Files{}
	}
	environments := snapshot.ByID(files.Environments)
	o.register = snapshot.NewRegister(files.Environments, nil, files.Answers)
	processes := make([]snapshot.Process, 0, len(seen))
	var warnings []string
	unread := 0
	for i := range seen {
		s := &seen[i]
		owner := o.assign(s, readErr)
		o.remember(s, &owner, environments)
		processes, warnings = append(processes, s.process), append(warnings, s.warnings...)
		switch {
		case owner.Unknown == nil:
		case errors.Is(owner.Unread, proc.ErrNotRead):
			unread++
		case owner.Unread != nil:
			warnings = append(warnings, owner.Unread.Error())
		default:
			warnings = append(warnings, fmt.Sprintf("whether process %d is in an environment is not known: %v",
				s.process.PID, owner.Unknown))
		}
	}
	if unread > 0 {
		warnings = append(warnings, fmt.Sprintf("the environments of %d processes are not known yet: "+
			"their users have many or slow processes, and the next looks read on", unread))
	}
	return processes, warnings
}

func (o *observer) assign(s *observation, readErr error) snapshot.Owner {
	p := &s.process
	var container snapshot.EnvID
	if p.ContainerInfo != nil {
		container = p.ContainerInfo.EID
	}
	owner := o.register.Owner(o.lineage(s, readErr), container)
	p.EID, p.Inherited = owner.EID, owner.Inherited
	p.EnvUnknown = owner.Unknown != nil
	p.EnvOverwritten = errors.Is(owner.Unknown, proc.ErrOverwritten)
	return owner
}

// remember notes an answer that the process may stop to show.
func (o *observer) remember(s *observation, owner *snapshot.Owner,
	environments map[snapshot.EnvID]*snapshot.Environment,
) {
	p, e := &s.process, environments[owner.EID]
	shown := owner.Basis == snapshot.ByClaim || owner.Basis == snapshot.ByAncestor && owner.Unread != nil
	if !shown || p.UID == nil || p.Start == 0 || e == nil || e.UID != *p.UID {
		return
	}
	if a := (snapshot.Answer{PID: p.PID, Start: p.Start, UID: *p.UID, EID: p.EID}); !o.register.Knows(a) {
		o.answers = append(o.answers, a)
	}
}

// lineage is a process and its ancestors for Register.Owner; without the state files, the process alone.
func (o *observer) lineage(s *observation, readErr error) iter.Seq2[snapshot.Relative, error] {
	return func(yield func(snapshot.Relative, error) bool) {
		self := snapshot.Relative{PID: s.process.PID, Start: s.process.Start, UID: s.account, Claim: s.claim}
		if !yield(self, s.lineageErr) || readErr != nil && !yield(snapshot.Relative{}, readErr) || readErr != nil {
			return
		}
		for _, a := range s.ancestors {
			if o.register.Has(a.PID) && errors.Is(o.verify(a), proc.ErrGone) {
				continue
			}
			relative := snapshot.Relative{
				PID: a.PID, Start: a.Start,
				UID:   func() (snapshot.UID, error) { return o.accountOf(a) },
				Claim: func() (snapshot.EnvID, error) { return o.claimOf(a) },
			}
			if !yield(relative, nil) {
				return
			}
		}
	}
}

func (s *observation) account() (snapshot.UID, error) {
	if s.process.UID == nil {
		return 0, errNoAccount
	}
	return *s.process.UID, nil
}

func (s *observation) claim() (snapshot.EnvID, error) { return s.process.EID, s.environErr }

type readAncestor struct {
	at     time.Time
	uid    snapshot.UID
	asked  bool // for the claim
	claim  snapshot.EnvID
	unread error
}

// verify returns proc.ErrGone for an ancestor that has ended meanwhile, even if another process has its PID now. The
// leader of a session, of which no start time is known, keeps its PID as long as the session lasts.
func (o *observer) verify(a proc.ID) error {
	stat, err := o.fs.Stat(a.PID)
	if err == nil && a.Start != 0 && stat.Start != a.Start {
		return proc.ErrGone
	}
	return err
}

// ancestor is what is known of an ancestor. It is read again after a while.
func (o *observer) ancestor(a proc.ID) (readAncestor, error) {
	known, ok := o.after.ancestors[a]
	if ok {
		return known, nil
	}
	if known, ok = o.before.ancestors[a]; !ok || o.now.Sub(known.at) >= detailsTTL {
		uid, err := o.fs.Owner(a.PID)
		if err != nil {
			return readAncestor{}, err
		}
		known = readAncestor{at: o.now, uid: uid}
	}
	o.after.ancestors[a] = known
	return known, nil
}

func (o *observer) accountOf(a proc.ID) (snapshot.UID, error) {
	known, err := o.ancestor(a)
	return known.uid, err
}

func (o *observer) claimOf(a proc.ID) (snapshot.EnvID, error) {
	known, err := o.ancestor(a)
	if err != nil || known.asked {
		return known.claim, cmp.Or(err, known.unread)
	}
	h, err := o.fs.Open(a.PID)
	if err != nil {
		return "", err
	}
	defer func() { _ = h.Close() }() // it was only read
	h.Quota = o.quotas.Of(proc.Payer{UID: known.uid})
	eid, err := readClaim(h)
	if !errors.Is(err, proc.ErrNotRead) {
		known.asked, known.claim, known.unread = true, eid, err
		o.after.ancestors[a] = known
	}
	return eid, err
}

// dropped makes the environment of a process unknown if no file has it any more, although root saw it for that user:
// genv 1.4.3 drops it with its shell, jobs or not, and any user can replace shared files. It returns a warning.
func dropped(s *snapshot.Snapshot, files *state.Files) []string {
	found := 0
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.EID != "" && p.UID != nil && s.Environment(p.EID) == nil && files.WasRegistered(p.EID, *p.UID) {
			p.EID, p.EnvUnknown = "", true
			found++
		}
	}
	if found == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d processes are in environments that are no longer in the state files, so their "+
		"environments are unknown: genv 1.4.3 drops an environment with its shell, and every user can write "+
		"these files (docs/host.md says how root owns them)", found)}
}
