package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// verify refuses a target whose process isn't the judged one any more. compare reads by PID, which is only reused after
// its process was reaped. So if the process still exists afterwards, compare read that process.
func (x *execution) verify(t *target, now *inspection) refusal {
	o := x.compare(t, now)
	ended, err := poll([]*target{t}, 0)
	if err != nil {
		return failed("%v", err)
	}
	err = t.fd.signal(0)
	switch {
	case ended[0] || errors.Is(err, unix.ESRCH):
		return gone()
	case o.raised():
		return o
	}
	return sendError(err)
}

func (x *execution) compare(t *target, now *inspection) refusal {
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
	if o := x.checkIdentity(t, stat, uid); o.raised() {
		return o
	}
	for _, u := range t.judged.Usage {
		if o := x.otherGPU(u.Index, now, nil); o.raised() {
			return o
		}
	}
	listed := now.processes[t.judged.PID]
	if listed != nil && listed.NodeMissing {
		return changed("the driver lists it, but it has not been seen with a device of the driver open: the PID may " +
			"be one of another namespace")
	}
	if o := checkUnattached(t, now); o.raised() {
		return o
	}
	o := checkEnvironment(t, now, p, uid)
	if !o.raised() {
		o = checkDevices(t, listed)
	}
	if !o.evasive {
		return o
	}
	m := x.memories.record(t.key(), func(m *processRecord) { m.evasions++ })
	if m.evasions > maxEvasions {
		return checkAnyDevice(t.judged, listed)
	}
	return o
}

func (x *execution) checkIdentity(t *target, stat proc.Stat, uid snapshot.UID) refusal {
	judged := t.judged
	switch {
	case stat.IsKernelThread():
		return refused("it is a kernel thread")
	case judged.Start != 0 && judged.Start != stat.Start:
		return changed("the PID was given to another process, which started at another time")
	case judged.UID != nil && *judged.UID != uid:
		return changed("it belongs to uid %d, and uid %d was judged", uid, *judged.UID)
	case x.memories.record(t.key(), nil).unkillable:
		return because(order.StatusSurvived,
			"SIGKILL was sent to it in an earlier cycle and has not ended it; it is not signalled again")
	}
	if name := x.protectedBy(stat, uid, x.Unprotected); name != "" {
		return refused("it is %s, which is never signalled unless it is named in the policy", name)
	}
	return refusal{}
}

type refusal struct {
	status  order.OutcomeStatus
	reason  string
	evasive bool // the process itself may have caused it, as often as it likes (see processRecord.evasions)
}

func (o refusal) raised() bool { return o.status != "" }

func (o refusal) evasiveIf(evasive bool) refusal {
	o.evasive = evasive
	return o
}

func because(status order.OutcomeStatus, format string, args ...any) refusal {
	return refusal{status: status, reason: fmt.Sprintf(format, args...)}
}

func gone() refusal { return refusal{status: order.StatusGone} }

func changed(format string, args ...any) refusal {
	return because(order.StatusChanged, format, args...)
}

func refused(format string, args ...any) refusal {
	return because(order.StatusRefused, format, args...)
}

func failed(format string, args ...any) refusal {
	return because(order.StatusFailed, format, args...)
}

func unreadable(err error) refusal {
	switch {
	case errors.Is(err, proc.ErrGone): // although its pidfd was open
		return changed("it can't be seen in /proc any more")
	case errors.Is(err, os.ErrPermission):
		return failed("not permitted to read it: run genv as root (sudo)")
	}
	return failed("%v", err)
}

func sendError(err error) refusal {
	switch {
	case err == nil:
		return refusal{}
	case errors.Is(err, unix.ESRCH):
		return gone()
	case errors.Is(err, unix.EPERM):
		return failed("not permitted to signal it: run genv as root (sudo)")
	}
	return failed("signal: %v", err)
}

func notBegun(ctx context.Context) refusal { return failed("not begun: %v", context.Cause(ctx)) }

// checkEnvironment compares the process's environment (see snapshot.Register) with the judged one: its environ may name
// another one since the inspection. The environment of a process that counts for its account doesn't matter. A process
// that was judged as outside, and is outside now, is as judged, whatever its environ claims.
func checkEnvironment(t *target, now *inspection, p *proc.Handle, uid snapshot.UID) refusal {
	listed := now.processes[t.judged.PID]
	if listed == nil || t.item.Counted { // without one it uses no device any more, see checkDevices
		return refusal{}
	}
	if t.judged.EnvUnknown && t.judged.Unreadable != nil {
		return checkUnreadable(listed)
	}
	value, _, err := p.Environ(snapshot.ClaimVariable)
	seen := snapshot.Process{EID: snapshot.Claim(value), Inherited: listed.Inherited}
	claimed := seen.EID != "" && !(seen.EID != listed.EID && now.registered(t.judged.PID, listed.EID))
	madeUnreadable := t.judged.Unreadable == nil && (listed.Unreadable.IsByUser() || errors.Is(err, proc.ErrTooLarge))
	// Otherwise a file server may hang.
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
		return refusal{}
	}
	// A process that claims nothing, and claimed nothing when judged, didn't cause the change: an ancestor did.
	caused := claimed || madeUnreadable || seen.EnvOverwritten || t.judged.EnvUnknown ||
		t.judged.EID != t.judged.Inherited
	return o.evasiveIf(o.raised() && byItself && caused)
}

func checkUnreadable(listed *snapshot.Process) refusal {
	if listed.EnvUnknown && listed.Unreadable.IsByUser() {
		return refusal{}
	}
	readable := listed.Unreadable == nil && (!listed.EnvUnknown || listed.EnvOverwritten)
	return changed("it can be read now, or its user has not caused that it can't").evasiveIf(readable)
}

func checkSameEnvironment(judged, now *snapshot.Process) refusal {
	switch {
	case now.EnvUnknown && judged.EnvUnknown && now.EnvOverwritten && judged.EnvOverwritten:
		return refusal{}
	case now.EnvUnknown && judged.EnvUnknown:
		return changed("its environment can't be read")
	case now.EnvUnknown:
		return changed("its environment can't be read any more, and environment %s was judged", judged.EID.Shown())
	case judged.EnvUnknown:
		return changed("it is in environment %s, and an unknown one was judged", now.EID.Shown())
	case now.EID != judged.EID:
		return changed("it is in environment %s, and environment %s was judged", now.EID.Shown(), judged.EID.Shown())
	}
	return refusal{}
}

// checkDevices compares the devices in use with the judged ones. Outside of environments one is enough: the process was
// judged for each. In one, all must still be in use: the others may be the environment's own.
func checkDevices(t *target, listed *snapshot.Process) refusal {
	if o := checkAnyDevice(t.judged, listed); o.raised() || t.item.Outside() {
		return o
	}
	if freed := freedDevices(t.judged, listed); len(freed) > 0 {
		return unused(freed).evasiveIf(true)
	}
	return refusal{}
}

func checkUnattached(t *target, now *inspection) refusal {
	if len(t.item.Unattached) == 0 {
		return refusal{}
	}
	devices, err := now.devices()
	if err != nil {
		return failed("not begun, since what is attached could not be read again: %v", err)
	}
	attached := snapshot.AttachedTo(devices, t.judged.EID)
	if slices.ContainsFunc(t.item.Unattached, func(i snapshot.DeviceIndex) bool { return !slices.Contains(attached, i) }) {
		return refusal{}
	}
	return changed("GPU(s) %s are attached to its environment now", text.JoinIndices(t.item.Unattached))
}

func checkAnyDevice(judged, listed *snapshot.Process) refusal {
	if freed := freedDevices(judged, listed); len(freed) == len(judged.Usage) {
		return unused(freed)
	}
	return refusal{}
}

func freedDevices(judged, listed *snapshot.Process) []snapshot.DeviceIndex {
	var freed []snapshot.DeviceIndex
	for _, usage := range judged.Usage {
		if listed == nil || listed.Uses(usage.Index) == nil {
			freed = append(freed, usage.Index)
		}
	}
	slices.Sort(freed)
	return freed
}

func unused(freed []snapshot.DeviceIndex) refusal {
	return changed("it does not use GPU(s) %s any more", text.JoinIndices(freed))
}

func (x *execution) otherGPU(index snapshot.DeviceIndex, now *inspection, files *state.Files) refusal {
	uuid := x.gpus[index]
	if uuid == "" {
		return refusal{}
	}
	if now.gpus[index] != uuid {
		return changed("GPU %s is another GPU now than was judged: the GPUs were renumbered", index)
	}
	if files != nil {
		if d := files.Device(index); d != nil && d.UUID != "" && d.UUID != uuid {
			return changed("GPU %s was another GPU when it was attached: root's genv has to look first", index)
		}
	}
	return refusal{}
}

const (
	mpsServer  = "nvidia-cuda-mps-server"
	mpsControl = "nvidia-cuda-mps-control"
)

// ProtectedName is the daemon's name (of safety.Protected) that exempts a process from all rules, or "". It reads
// nothing more for people's processes, except MPS servers.
func (x *Executor) ProtectedName(p *snapshot.Process) string {
	if p.UID == nil || *p.UID >= system.FirstUID() && p.Name != "" && p.Name != mpsServer[:proc.NameLength] &&
		p.Name != mpsServer {
		return ""
	}
	stat, err := x.proc().Stat(p.PID)
	if err != nil {
		return ""
	}
	return x.protectedBy(stat, *p.UID, nil)
}

// protectedBy is the name that protects a process, unless it is in unprotected, or "".
//
// The owner of a process chooses its name (prctl(2), or a link to the program), and can start the real /usr/sbin/sshd
// with other code in it (LD_PRELOAD), so neither the name nor the program's path protects. The owner can't choose the
// uid, and can't leave a container. So a name counts only
//   - for a system account (see system.FirstUID) in our own PID namespace: any user can be root in a container;
//   - or for an nvidia-cuda-mps-server whose parent is a protected nvidia-cuda-mps-control, which starts servers under
//     the uid of the client. The client can have its server run another program (ptrace(2)), so it counts only with the
//     installed one.
func (x *Executor) protectedBy(stat proc.Stat, uid snapshot.UID, unprotected []string) string {
	name := x.nameOf(stat)
	switch {
	case name == "" || slices.Contains(unprotected, name) || !x.sameNamespace(stat.PID):
		return ""
	case uid < system.FirstUID():
		return name
	case name == mpsServer && x.isSystemMPS(stat):
		return name
	}
	return ""
}

// The kernel keeps 15 bytes of a command.
func (x *Executor) nameOf(stat proc.Stat) string {
	names := safety.Protected()
	if program := x.proc().Program(stat.PID); slices.Contains(names, program) {
		return program
	}
	for _, name := range names {
		if name[:min(len(name), proc.NameLength)] == stat.Name {
			return name
		}
	}
	return ""
}

func (x *Executor) isSystemMPS(server proc.Stat) bool {
	control, err := x.proc().Stat(server.PPID)
	if err != nil {
		return false
	}
	uid, err := x.proc().Owner(control.PID)
	return err == nil && uid < system.FirstUID() && x.nameOf(control) == mpsControl &&
		x.proc().IsInstalledWith(control.PID, mpsServer, server.PID)
}

// sameNamespace says whether a process is in our PID namespace; also if that can't be read: then it can't be signalled
// either.
func (x *Executor) sameNamespace(pid snapshot.PID) bool {
	theirs, err := x.proc().Namespace(pid)
	if err != nil {
		return true
	}
	ours, err := x.proc().Namespace(snapshot.PID(os.Getpid()))
	return err != nil || theirs == ours
}
