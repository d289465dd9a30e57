package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// objection is why a process isn't signalled. The zero value is none.
type objection struct {
	status enforce.Status
	reason string
	// evasive: the process itself may have caused it, as often as it likes (see
	// memory.evasions).
	evasive bool
}

func (o objection) raised() bool { return o.status != "" }

func gone() objection { return objection{status: enforce.StatusGone} }

func changed(format string, args ...any) objection {
	return objection{status: enforce.StatusChanged, reason: fmt.Sprintf(format, args...)}
}

// evasive is changed for what the process itself may have changed.
func evasive(format string, args ...any) objection {
	return objection{status: enforce.StatusChanged, reason: fmt.Sprintf(format, args...), evasive: true}
}

func refused(format string, args ...any) objection {
	return objection{status: enforce.StatusRefused, reason: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) objection {
	return objection{status: enforce.StatusFailed, reason: fmt.Sprintf(format, args...)}
}

// inspection is what the Inspector read right before the signals.
type inspection struct {
	processes map[snapshot.PID]*snapshot.Process
	// environments reads the registered environments, once, and only if needed.
	environments func() ([]snapshot.Environment, error)
}

// inspect reads which processes use devices now. It comes after the pidfds are
// opened: a process that lives through it is the one that the driver reports.
func (x *Executor) inspect(ctx context.Context) (*inspection, error) {
	processes, _, err := x.inspector.Processes(ctx) // its warnings are about other processes
	if err != nil {
		return nil, err
	}
	byPID := make(map[snapshot.PID]*snapshot.Process, len(processes))
	for i := range processes {
		byPID[processes[i].PID] = &processes[i]
	}
	return &inspection{byPID, sync.OnceValues(func() ([]snapshot.Environment, error) {
		environments, _, err := x.inspector.Environments(ctx)
		return environments, err
	})}, nil
}

// verify objects unless the process of a target's pidfd is still what was judged.
//
// compare reads by PID, and a PID is reused only after its process was reaped. So
// first everything is read, and only then the pidfd is asked whether its process
// is still there: if so, it was there all the time, and what was read is of it.
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

// sendError is the objection that an error of sending a signal means.
func sendError(err error) objection {
	switch {
	case err == nil:
		return objection{}
	case errors.Is(err, unix.ESRCH):
		return gone()
	case errors.Is(err, unix.EPERM):
		return failed("not permitted to signal it: run genv as root (sudo)")
	}
	return failed("signal: %v", err)
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
	listed := now.processes[t.judged.PID]
	o := checkEnvironment(t, now, p, uid)
	if !o.raised() {
		o = checkDevices(t, listed)
	}
	if !o.evasive {
		return o
	}
	m := x.memories.change(t.identity(), func(m *memory) { m.evasions++ })
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
	case x.memories.get(t.identity()).unkillable:
		return objection{status: enforce.StatusSurvived, reason: "SIGKILL was sent to it in an earlier cycle and has not ended it; it is not signalled again"}
	}
	if name := x.protectedBy(stat, uid, x.unprotected); name != "" {
		return refused("it is %s, which is never signalled unless it is named in the policy", name)
	}
	return objection{}
}

func unreadable(err error) objection {
	switch {
	case errors.Is(err, proc.ErrGone): // although its pidfd was open
		return changed("it can't be seen in /proc any more")
	case errors.Is(err, os.ErrPermission):
		return failed("not permitted to read it: run genv as root (sudo)")
	}
	return failed("%v", err)
}
