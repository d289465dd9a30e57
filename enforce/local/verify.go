package local

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// verify objects unless the process to which a target refers is still what was judged.
//
// compare reads by PID, which is reused only after its process was reaped. So the reference is asked last whether its
// process is still there: if so, all that was read is of it.
func (x *execution) verify(t *target, now *inspection) objection {
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

// compare objects unless the process that has the judged PID now is what was judged.
func (x *execution) compare(t *target, now *inspection) objection {
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
		if o := otherGPU(u.Index, x.gpus, now.gpus, nil); o.raised() {
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
	m := x.memories.change(t.key(), func(m *processRecord) { m.evasions++ })
	if m.evasions > maxEvasions {
		return checkAnyDevice(t.judged, listed)
	}
	return o
}

func (x *execution) checkIdentity(t *target, stat proc.Stat, uid snapshot.UID) objection {
	judged := t.judged
	switch {
	case stat.IsKernelThread():
		return refused("it is a kernel thread")
	case judged.Start != 0 && judged.Start != stat.Start:
		return changed("the PID was given to another process, which started at another time")
	case judged.UID != nil && *judged.UID != uid:
		return changed("it belongs to uid %d, and uid %d was judged", uid, *judged.UID)
	case x.memories.get(t.key()).unkillable:
		return objection{status: order.StatusSurvived, reason: "SIGKILL was sent to it in an earlier cycle and has " +
			"not ended it; it is not signalled again"}
	}
	if name := x.protectedBy(stat, uid, x.Unprotected); name != "" {
		return refused("it is %s, which is never signalled unless it is named in the policy", name)
	}
	return objection{}
}
