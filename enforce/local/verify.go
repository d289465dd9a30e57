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

// verdict is why a process isn't signalled. Its zero value has no objection.
type verdict struct {
	status enforce.Status
	reason string
	// evasive says that the process itself may have brought it about, as often as it
	// likes (see evasions).
	evasive bool
}

func (v verdict) objects() bool { return v.status != "" }

func gone() verdict { return verdict{status: enforce.StatusGone} }

func changed(format string, args ...any) verdict {
	return verdict{status: enforce.StatusChanged, reason: fmt.Sprintf(format, args...)}
}

// evasive is changed for what the process itself may have changed.
func evasive(format string, args ...any) verdict {
	return verdict{status: enforce.StatusChanged, reason: fmt.Sprintf(format, args...), evasive: true}
}

func refused(format string, args ...any) verdict {
	return verdict{status: enforce.StatusRefused, reason: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) verdict {
	return verdict{status: enforce.StatusFailed, reason: fmt.Sprintf(format, args...)}
}

// present is what the Inspector found right before the signals.
type present struct {
	processes map[snapshot.PID]*snapshot.Process
	// environments reads the registered environments, once, and only if needed.
	environments func() ([]snapshot.Environment, error)
}

// look asks which processes use devices now. It is asked after the processes
// are held by pidfds: one that lives on through the question is the one that
// the driver speaks of.
func (x *Executor) look(ctx context.Context) (*present, error) {
	processes, _, err := x.machine.Processes(ctx) // its warnings are of others: what is judged here is listed or not
	if err != nil {
		return nil, err
	}
	byPID := make(map[snapshot.PID]*snapshot.Process, len(processes))
	for i := range processes {
		byPID[processes[i].PID] = &processes[i]
	}
	return &present{byPID, sync.OnceValues(func() ([]snapshot.Environment, error) {
		environments, _, err := x.machine.Environments(ctx)
		return environments, err
	})}, nil
}

// verify says whether the process that a target holds is still what was judged.
//
// All that inspect reads, it reads by PID, and a PID is reused only after
// its process was reaped. So first everything is read, and only then the pidfd
// is asked whether its process is still there: if it is, it was there all along
// and what was read is of it. If it isn't, what was read may be of another.
func (x *Executor) verify(t *target, now *present) verdict {
	v := x.inspect(t, now)
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
func (x *Executor) inspect(t *target, now *present) verdict {
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
	listed := now.processes[t.judged.PID]
	v := inspectEnvironment(t, now, p, uid)
	if !v.objects() {
		v = inspectDevices(t, listed)
	}
	if v.evasive && x.evasions.exhausted(identity{t.judged.PID, stat.Start}) {
		return inspectAnyDevice(t.judged, listed)
	}
	return v
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
		return verdict{status: enforce.StatusSurvived, reason: "SIGKILL was sent to it in an earlier cycle and has not ended it; it is not signalled again"}
	}
	if name := x.protectedBy(stat, uid); name != "" {
		return refused("it is %s, which is never signalled unless it is named in the policy", name)
	}
	return verdict{}
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
