package local

import (
	"cmp"
	"errors"
	"os"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// inspectEnvironment compares the environment that a process is in with the one
// that was judged. It is found as for a snapshot: by the environ as it is now,
// and, where that holds no claim, by what the Inspector found of the ancestors,
// right after the process was held.
//
// A process that was judged as outside any environment, and is outside now, is
// what was judged, whatever it claims by now.
func inspectEnvironment(t *target, now *present, p *proc.Process, uid snapshot.UID) verdict {
	listed := now.processes[t.judged.PID]
	if listed == nil { // it uses no device any more, as inspectDevices says
		return verdict{}
	}
	value, _, err := p.Environ(snapshot.ClaimVariable)
	seen := snapshot.Process{EID: snapshot.Claim(value), Inherited: listed.Inherited}
	claimed := seen.EID != ""
	switch {
	case errors.Is(err, proc.ErrGone):
		return changed("its environment can't be read any more; it may be ending")
	case claimed:
	case listed.EID == "" && errors.Is(err, os.ErrPermission):
		return failed("not permitted to read its environment: run genv as root (sudo)")
	case listed.EID == "" && listed.EnvUnknown && err == nil:
		return changed("whether it is in an environment is not known now")
	case listed.EID == "" && !listed.EnvUnknown && err != nil:
		v := changed("its environment can't be read any more; it may be ending")
		v.evasive = errors.Is(err, proc.ErrOverwritten)
		return v
	case listed.EID != "" && listed.EID != listed.Inherited:
		return evasive("its environment changed while it was looked at")
	default:
		seen.EID, seen.EnvUnknown = listed.EID, listed.EnvUnknown
		seen.EnvOverwritten = listed.EnvOverwritten && errors.Is(err, proc.ErrOverwritten)
	}
	v := compareEnvironments(t.judged, &seen)
	if v.objects() && t.item.Outside() && now.outside(&seen, uid) {
		return verdict{}
	}
	// Where it claims nothing itself, and didn't, others changed what it inherits.
	v.evasive = v.objects() && (claimed || seen.EnvOverwritten || t.judged.EnvUnknown || t.judged.EID != t.judged.Inherited)
	return v
}

// compareEnvironments objects unless a process is in the environment that was
// judged, or, as was judged, still hides which one it is in.
func compareEnvironments(judged, now *snapshot.Process) verdict {
	switch {
	case now.EnvUnknown && judged.EnvUnknown:
		if now.EnvOverwritten && judged.EnvOverwritten {
			return verdict{}
		}
		return changed("its environment can't be read")
	case now.EnvUnknown:
		return changed("its environment can't be read any more, and environment %s was judged", nameEnv(judged.EID))
	case judged.EnvUnknown:
		return changed("it is in environment %s, and an unknown one was judged", nameEnv(now.EID))
	case now.EID != judged.EID:
		return changed("it is in environment %s, and environment %s was judged", nameEnv(now.EID), nameEnv(judged.EID))
	}
	return verdict{}
}

// outside says whether a process of a user is certain to be in no environment,
// whatever the policy says of sudo.
func (n *present) outside(seen *snapshot.Process, uid snapshot.UID) bool {
	environments, err := n.environments()
	if err != nil || seen.EnvUnknown {
		return false
	}
	env := snapshot.FindEnvironment(environments, cmp.Or(seen.EID, seen.Inherited))
	return env == nil || env.UID != uid && uid != 0 && env.EID != seen.Inherited
}
