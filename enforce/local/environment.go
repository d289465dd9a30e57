package local

import (
	"errors"
	"os"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// checkEnvironment compares the environment that a process is in (see snapshot.Register) with the one that was judged.
// The environ may name another one since the inspection.
//
// Of one that counts for its account, the environment doesn't matter: checkIdentity has compared the account.
//
// A process that was judged as outside any environment, and is outside now, is
// what was judged, whatever its environ claims now.
func checkEnvironment(t *target, now *inspection, p *proc.Handle, uid snapshot.UID) objection {
	listed := now.processes[t.judged.PID]
	if listed == nil || t.item.Counted { // without one it uses no device any more, see checkDevices
		return objection{}
	}
	if t.judged.EnvUnknown && t.judged.Unreadable != nil {
		return checkUnreadable(listed)
	}
	value, _, err := p.Environ(snapshot.ClaimVariable)
	seen := snapshot.Process{EID: snapshot.Claim(value), Inherited: listed.Inherited}
	claimed := seen.EID != "" && !(seen.EID != listed.EID && now.registered(t.judged.PID, listed.EID))
	madeUnreadable := t.judged.Unreadable == nil && (listed.Unreadable.IsByUser() || errors.Is(err, proc.ErrTooLarge))
	// Otherwise it may be a file server that hangs.
	byItself := err == nil || madeUnreadable || errors.Is(err, proc.ErrOverwritten)
	switch {
	case errors.Is(err, proc.ErrGone):
		return changed("its environment can't be read any more; it may be ending")
	case claimed:
	case listed.EID == "" && errors.Is(err, os.ErrPermission):
		return failed("not permitted to read its environment: run genv as root (sudo)")
	case listed.EID == "" && listed.EnvUnknown && err == nil:
		return changed("whether it is in an environment is not known now").evasiveIf(madeUnreadable)
	case listed.EID == "" && !listed.EnvUnknown && err != nil:
		return changed("its environment can't be read any more; it may be ending").evasiveIf(byItself)
	default:
		seen.EID, seen.EnvUnknown = listed.EID, listed.EnvUnknown
		seen.EnvOverwritten = listed.EnvOverwritten && errors.Is(err, proc.ErrOverwritten)
	}
	o := checkSameEnvironment(t.judged, &seen)
	if o.raised() && t.item.Outside() && now.outside(&seen, uid) {
		return objection{}
	}
	// A process that claims nothing, and claimed nothing when it was judged, did not
	// cause the change: the environment of an ancestor changed.
	caused := claimed || madeUnreadable || seen.EnvOverwritten || t.judged.EnvUnknown ||
		t.judged.EID != t.judged.Inherited
	return o.evasiveIf(o.raised() && byItself && caused)
}

// checkUnreadable objects unless a process that was judged as unreadable by its user still is that.
func checkUnreadable(listed *snapshot.Process) objection {
	if listed.EnvUnknown && listed.Unreadable.IsByUser() {
		return objection{}
	}
	readable := listed.Unreadable == nil && (!listed.EnvUnknown || listed.EnvOverwritten)
	return changed("it can be read now, or its user has not caused that it can't").evasiveIf(readable)
}

// checkSameEnvironment objects unless a process is in the environment that was
// judged, or, as was judged, still hides which one it is in.
func checkSameEnvironment(judged, now *snapshot.Process) objection {
	switch {
	case now.EnvUnknown && judged.EnvUnknown && now.EnvOverwritten && judged.EnvOverwritten:
		return objection{}
	case now.EnvUnknown && judged.EnvUnknown:
		return changed("its environment can't be read")
	case now.EnvUnknown:
		return changed("its environment can't be read any more, and environment %s was judged", judged.EID.Shown())
	case judged.EnvUnknown:
		return changed("it is in environment %s, and an unknown one was judged", now.EID.Shown())
	case now.EID != judged.EID:
		return changed("it is in environment %s, and environment %s was judged", now.EID.Shown(), judged.EID.Shown())
	}
	return objection{}
}
