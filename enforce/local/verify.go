package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// verdict is why a process isn't signalled. Its zero value has no objection.
type verdict struct {
	status enforce.Status
	reason string
}

func (v verdict) objects() bool { return v.status != "" }

func gone() verdict { return verdict{enforce.StatusGone, ""} }

func changed(format string, args ...any) verdict {
	return verdict{enforce.StatusChanged, fmt.Sprintf(format, args...)}
}

func refused(format string, args ...any) verdict {
	return verdict{enforce.StatusRefused, fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) verdict {
	return verdict{enforce.StatusFailed, fmt.Sprintf(format, args...)}
}

// apps asks which processes use devices now. It is asked after the processes
// are held by pidfds: one that lives on through the question is the one that
// the driver speaks of.
func (x *Executor) apps(ctx context.Context) (map[snapshot.PID]*snapshot.Process, error) {
	processes, _, err := x.machine.Processes(ctx) // its warnings are of others: what is judged here is listed or not
	if err != nil {
		return nil, err
	}
	byPID := make(map[snapshot.PID]*snapshot.Process, len(processes))
	for i := range processes {
		byPID[processes[i].PID] = &processes[i]
	}
	return byPID, nil
}

// verify says whether the process that a target holds is still what was judged.
//
// All that inspect reads, it reads by PID, and a PID is dealt anew only after
// its process was reaped. So first everything is read, and only then the pidfd
// is asked whether its process is still there: if it is, it was there all along
// and what was read is of it. If it isn't, what was read may be of another.
func (x *Executor) verify(t *target, apps map[snapshot.PID]*snapshot.Process) verdict {
	v := x.inspect(t, apps)
	ended, err := t.fd.ended()
	if err != nil {
		return failed("%v", err)
	}
	err = t.fd.signal(0)
	switch {
	case ended || errors.Is(err, unix.ESRCH):
		return gone()
	case v.objects():
		return v
	}
	return sendVerdict(err)
}

// sendVerdict says what an error of sending a signal means.
func sendVerdict(err error) verdict {
	switch {
	case err == nil:
		return verdict{}
	case errors.Is(err, unix.ESRCH):
		return gone()
	case errors.Is(err, unix.EPERM):
		return failed("not permitted to signal it: run genv as root (sudo)")
	}
	return failed("signal: %v", err)
}

// inspect compares the process that goes by the judged PID now with what was
// judged.
func (x *Executor) inspect(t *target, apps map[snapshot.PID]*snapshot.Process) verdict {
	p, err := x.proc().Open(t.judged.PID)
	if err != nil {
		return unreadable(err)
	}
	defer func() { _ = p.Close() }() // it was only read
	stat, err := p.Stat()
	if err != nil {
		return unreadable(err)
	}
	uid, err := p.Owner()
	if err != nil {
		return unreadable(err)
	}
	t.start, t.state = stat.Start, stat.State
	if v := x.inspectIdentity(t, stat, uid); v.objects() {
		return v
	}
	now := apps[t.judged.PID]
	if v := inspectEnvironment(t.judged, now, p); v.objects() {
		return v
	}
	return inspectDevices(t.judged, now)
}

func (x *Executor) inspectIdentity(t *target, stat proc.Stat, uid snapshot.UID) verdict {
	judged := t.judged
	switch {
	case stat.IsKernelThread():
		return refused("it is a kernel thread")
	case judged.Start != 0 && judged.Start != stat.Start:
		return changed("the PID was given to another process, which started at another time")
	case judged.UID != nil && *judged.UID != uid:
		return changed("it belongs to uid %d, and uid %d was judged", uid, *judged.UID)
	case x.unkillable[identity{judged.PID, stat.Start}]:
		return verdict{enforce.StatusSurvived, "SIGKILL was sent to it in an earlier cycle and has not ended it; it is not signalled again"}
	}
	if name := x.protectedName(stat, uid); name != "" {
		return refused("it is %s, which is never signalled unless it is named in the policy", name)
	}
	return verdict{}
}

// inspectEnvironment compares the environment that a process is in with the one
// that was judged. It is found as for a snapshot: by the environ as it is now,
// and, where that holds no claim, by what the Machine found of the ancestors,
// right after the process was held.
func inspectEnvironment(judged, now *snapshot.Process, p *proc.Process) verdict {
	value, _, err := p.Environ(snapshot.ClaimVariable)
	claim := snapshot.Claim(value)
	switch {
	case errors.Is(err, proc.ErrGone):
		return changed("its environment can't be read any more; it may be ending")
	case claim != "":
		return compareEnvironments(judged, &snapshot.Process{EID: claim})
	case now == nil: // it uses no device any more
		return inspectDevices(judged, now)
	case now.EID == "" && errors.Is(err, os.ErrPermission):
		return failed("not permitted to read its environment: run genv as root (sudo)")
	case now.EID == "" && now.EnvUnknown && err == nil:
		return changed("whether it is in an environment is not known now")
	case now.EID == "" && !now.EnvUnknown && err != nil:
		return changed("its environment can't be read any more; it may be ending")
	case now.EID != "" && now.EID != now.Inherited:
		return changed("its environment changed while it was looked at")
	}
	seen := snapshot.Process{EID: now.EID, EnvUnknown: now.EnvUnknown, EnvOverwritten: now.EnvOverwritten && errors.Is(err, proc.ErrOverwritten)}
	return compareEnvironments(judged, &seen)
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

// inspectDevices asks for every device with which the process was judged: the
// report doesn't say which one was the ground. One more does it no good; one
// less, and the next cycle judges anew.
func inspectDevices(judged, now *snapshot.Process) verdict {
	var freed []snapshot.DeviceIndex
	for _, usage := range judged.Usage {
		if now == nil || now.Uses(usage.Index) == nil {
			freed = append(freed, usage.Index)
		}
	}
	if len(freed) == 0 {
		return verdict{}
	}
	slices.Sort(freed)
	return changed("it does not use GPU(s) %s any more", enforce.Indices(freed))
}

func unreadable(err error) verdict {
	switch {
	case errors.Is(err, proc.ErrGone): // though the pidfd says it is there
		return changed("it can't be seen in /proc any more")
	case errors.Is(err, os.ErrPermission):
		return failed("not permitted to look at it: run genv as root (sudo)")
	}
	return failed("%v", err)
}
