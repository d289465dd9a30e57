package snapshot

import (
	"cmp"
	"iter"
)

// Owner says in which environment a process is, and why. Its account follows from the kernel's uid: see Relative.
type Owner struct {
	EID       EnvID // empty for none or unknown
	Basis     Basis // of EID
	Inherited EnvID // Process.Inherited
	Unread    error // why the environ can't be read
	Unknown   error // why it is unknown whether the process is in an environment
}

// Basis is the evidence for an Owner.
type Basis int8

// Bases, the strongest first.
const (
	NoBasis      Basis = iota
	ByRegister         // the process is registered in the environment
	ByClaim            // its environ names it
	ByContainer        // its container was started in it
	ByLastAnswer       // an earlier look knew it, and the environ no longer says it
	ByAncestor         // its nearest ancestor of the same account in an environment
)

// Carries says whether the process keeps an environment alive: not if its environ names none, perhaps on purpose.
func (o *Owner) Carries(eid EnvID) bool {
	return eid != "" && o.EID == eid && (o.Basis != ByAncestor || o.Unread != nil)
}

// Relative is a process or one of its ancestors. UID and Claim are called only when needed.
type Relative struct {
	PID   PID
	Start StartTime             // 0 if unknown
	UID   func() (UID, error)   // of the account that it counts for
	Claim func() (EnvID, error) // the environment named in its environ; empty for none
}

// Answer is a process's environment in an earlier look, empty once it has left. It counts while the process lives and
// its environ can't be read.
type Answer struct {
	PID   PID       `json:"pid"`
	Start StartTime `json:"start"`
	UID   UID       `json:"uid"`
	EID   EnvID     `json:"eid,omitempty"`
}

// Register knows the environments of a host and the answers of earlier looks. It does no I/O.
type Register struct {
	environments map[PID][]*Environment
	starts       map[PID]StartTime
	answers      map[PID]Answer
}

// NewRegister makes a Register from the state files. starts are the known start times of registered processes.
func NewRegister(environments []Environment, starts map[PID]StartTime, answers []Answer) *Register {
	r := &Register{map[PID][]*Environment{}, starts, make(map[PID]Answer, len(answers))}
	for i := range environments {
		for _, pid := range environments[i].PIDs {
			r.environments[pid] = append(r.environments[pid], &environments[i])
		}
	}
	for _, a := range answers {
		r.answers[a.PID] = a
	}
	return r
}

// Has says whether a process is registered in an environment.
func (r *Register) Has(pid PID) bool { return len(r.environments[pid]) > 0 }

// Knows says whether earlier looks gave this answer.
func (r *Register) Knows(a Answer) bool { return r.answers[a.PID] == a }

// Owner finds a process's environment: the one that registers it; else the one that its environ names; else its
// container's; else the last answer; else that of its nearest ancestor of the same account (for root's processes, of
// any account). The lineage begins with the process; an error in it is an unknown relative.
func (r *Register) Owner(lineage iter.Seq2[Relative, error], container EnvID) Owner {
	var o Owner
	var account UID
	var incomplete error
	first, known := true, false
	for k, err := range lineage {
		incomplete = cmp.Or(incomplete, err)
		if k.PID == 0 {
			continue
		}
		registered, err := r.registered(&k)
		incomplete, o.Inherited = cmp.Or(incomplete, err), cmp.Or(o.Inherited, registered)
		switch {
		case first:
			first = false
			o.EID, o.Basis, o.Unread = r.own(&k, registered)
			if o.EID == "" && container != "" {
				o.EID, o.Basis = container, ByContainer
			}
			account, err = k.UID()
			known = o.Basis != NoBasis || err != nil
		case !known:
			if uid, err := k.UID(); err != nil || uid != account && account != 0 {
				continue
			}
			eid, basis := registered, ByRegister
			if registered == "" {
				eid, basis, _ = r.own(&k, "")
			}
			if known = basis != NoBasis; eid != "" {
				o.EID, o.Basis = eid, ByAncestor
			}
		}
		if known && o.Inherited != "" {
			break
		}
	}
	if o.EID == "" && o.Basis == NoBasis {
		o.Unknown = cmp.Or(o.Unread, incomplete)
	}
	return o
}

// own ignores ancestors. A Basis without an environment says that the process has left.
func (r *Register) own(k *Relative, registered EnvID) (EnvID, Basis, error) {
	claim, unread := k.Claim()
	answer, answered := r.answer(k)
	switch {
	case registered != "":
		return registered, ByRegister, unread
	case answered && answer.EID == "":
		return "", ByLastAnswer, nil
	case claim != "":
		return claim, ByClaim, nil
	case answered && unread != nil:
		return answer.EID, ByLastAnswer, unread
	}
	return "", NoBasis, unread
}

func (r *Register) answer(k *Relative) (Answer, bool) {
	a, ok := r.answers[k.PID]
	if !ok || a.Start != k.Start || k.Start == 0 {
		return Answer{}, false
	}
	uid, err := k.UID()
	return a, err == nil && uid == a.UID
}

// registered returns the environment of the process's account that registers it: users may write any PID into the state
// files. Root's processes are in none, since all descend from PID 1.
func (r *Register) registered(k *Relative) (EnvID, error) {
	environments := r.environments[k.PID]
	if start := r.starts[k.PID]; len(environments) == 0 || start != 0 && k.Start != 0 && start != k.Start {
		return "", nil
	}
	uid, err := k.UID()
	if err != nil || uid == 0 {
		return "", err
	}
	for _, e := range environments {
		if e.UID == uid {
			return e.EID, nil
		}
	}
	return "", nil
}

// Holds says whether a process is certainly in the environment, and is its account's or root's.
func (e *Environment) Holds(p *Process) bool {
	return !p.EnvUnknown && p.EID != "" && p.EID == e.EID && e.Admits(p.CountsForUID())
}

// Account is the environment's; nil for a nil environment, or if the kernel contradicts the state files.
func (e *Environment) Account() (Username, *UID) {
	if e == nil || e.OwnerMismatch {
		return "", nil
	}
	return e.Username, &e.UID
}

// Account is the process's, as in findings: Reported, with the environment's name if the host has none. Hosts without
// uids (1.4.3) have the claimed environment's; nil for none.
func (p *Process) Account(claimed *Environment) (Username, *UID) {
	user, uid := p.Reported()
	name, owner := claimed.Account()
	switch {
	case user != "" || owner == nil:
	case p.UID == nil:
		return name, owner
	case uid != nil && *uid == *owner:
		user = name
	}
	return user, uid
}

// EnvironmentOf returns the environment of its host that holds a process, or nil.
func EnvironmentOf(p *Process, environments map[EnvID]*Environment) *Environment {
	if e := environments[p.EID]; e != nil && e.Holds(p) {
		return e
	}
	return nil
}

// ByID indexes environments by id; the first of two counts.
func ByID(environments []Environment) map[EnvID]*Environment {
	byID := make(map[EnvID]*Environment, len(environments))
	for i := range environments {
		if e := &environments[i]; byID[e.EID] == nil {
			byID[e.EID] = e
		}
	}
	return byID
}
