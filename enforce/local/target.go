package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

type target struct {
	item    *order.Termination
	judged  *snapshot.Process // the item's
	outcome *order.Outcome
	fd      reference          // open until the order is carried out
	start   snapshot.StartTime // as read by the last verification
	state   byte               // of /proc/PID/stat, likewise

	earlier *ending.Earlier // what another order asked it; nil for nothing
	grace   time.Duration   // how long the order waits for it
	mayGoOn bool            // the next step may follow then

	stopping  *container.Running    // that its engine was asked to stop; nil for none
	stopErr   atomic.Pointer[error] // why it didn't; nil while it may
	engineErr error                 // why the engine was not asked
}

func (t *target) key() proc.ID { return proc.ID{PID: t.judged.PID, Start: t.start} }

func (t *target) conclude(o refusal) {
	if t.earlier != nil {
		o.reason = joined(o.reason, t.earlierReason())
	}
	t.outcome.Status, t.outcome.Reason = o.status, o.reason
	if about := t.containerReason(); about != "" && o.status != order.StatusGone {
		t.outcome.Reason = joined(o.reason, about)
	}
}

func joined(a, b string) string { return strings.Trim(a+"; "+b, "; ") }

// poll waits until processes have ended with all threads, or the timeout. Zombies have ended.
func poll(targets []*target, timeout time.Duration) ([]bool, error) {
	polled := make([]unix.PollFd, len(targets))
	for i, t := range targets {
		polled[i] = unix.PollFd{Fd: int32(t.fd.pidfd), Events: unix.POLLIN} // the kernel leaves out noPidfd
	}
	_, err := unix.Poll(polled, int(timeout.Milliseconds()))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return nil, fmt.Errorf("wait for processes to end: %w", err)
	}
	ended := make([]bool, len(targets))
	for i, t := range targets {
		ended[i] = polled[i].Revents&unix.POLLIN != 0 // a pidfd becomes readable when its process ends
		if t.fd.pidfd == noPidfd {
			alive, err := t.fd.alive()
			ended[i] = err == nil && !alive
		}
	}
	return ended, nil
}

// reference is one process, however often its PID is reused (pidfd_open(2)). Without pidfds, which Linux before 5.3
// lacks and seccomp may refuse, start is checked right before each signal.
type reference struct {
	pidfd int // or noPidfd
	pid   snapshot.PID
	start snapshot.StartTime
	proc  proc.FS
}

const noPidfd = -1

func (r reference) close() {
	if r.pidfd != noPidfd {
		_ = unix.Close(r.pidfd) // nothing was written to it
	}
}

func (r reference) alive() (bool, error) { return r.proc.Alive(r.pid, r.start) }

// signal sends a signal; 0 asks whether it may be sent. ESRCH means that the process has ended.
func (r reference) signal(sig unix.Signal) error {
	if r.pidfd != noPidfd {
		if err := unix.PidfdSendSignal(r.pidfd, sig, nil, 0); !lacksPidfd(err) {
			return err
		}
	}
	switch alive, err := r.alive(); {
	case err != nil:
		return err
	case !alive:
		return unix.ESRCH
	}
	return unix.Kill(int(r.pid), sig)
}

// lacksPidfd reports whether pidfds may not work here.
func lacksPidfd(err error) bool { return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) }

func (x *execution) openTargets(ctx context.Context, items []order.Termination, outcomes []order.Outcome) []*target {
	var targets []*target
	untouchable, err := x.untouchable()
	for i := range items {
		p := &items[i].Process
		outcomes[i] = order.Outcome{PID: p.PID, EID: p.EID}
		t := &target{item: &items[i], judged: p, outcome: &outcomes[i]}
		o := x.checkItem(ctx, &items[i])
		switch {
		case o.raised():
		case err != nil:
			o = failed("not begun, since the ancestors of genv itself could not be found: %v", err)
		case untouchable[p.PID] != "":
			o = refused("%s", untouchable[p.PID])
		default:
			t.fd, o = openProcess(x.proc(), p.PID)
		}
		if o.raised() {
			t.conclude(o)
			continue
		}
		untouchable[p.PID] = "it is listed twice"
		targets = append(targets, t)
	}
	return targets
}

// checkItem refuses items that a valid order never has, or that are too late.
func (x *execution) checkItem(ctx context.Context, item *order.Termination) refusal {
	p := &item.Process
	switch {
	case ctx.Err() != nil:
		return notBegun(ctx)
	case p.PID <= 1:
		return refused("PID %d is never signalled", p.PID)
	case !item.MayBeJudged():
		return refused("it was judged although its environment was not known")
	case len(p.Usage) == 0:
		return refused("it was judged although it used no GPU")
	case p.EID != "" && !item.Counted:
		if o := x.attached[p.EID]; o.status != order.StatusChanged || p.Start == 0 {
			return o
		} // else verify finds out whether it is the process that was judged
	}
	return refusal{}
}

func openProcess(fs proc.FS, pid snapshot.PID) (reference, refusal) {
	r := reference{pid: pid, proc: fs}
	fd, err := unix.PidfdOpen(int(pid), 0) // always close-on-exec
	r.pidfd = fd
	switch {
	case err == nil:
	case errors.Is(err, unix.ESRCH):
		return r, gone()
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return r, changed("the PID now belongs to a thread of another process")
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return r, failed("too many open files to open the process: raise the limit (ulimit -n)")
	case lacksPidfd(err):
		r.pidfd = noPidfd
	default:
		return r, failed("pidfd_open: %v", err)
	}
	var stat proc.Stat
	thread := false
	if stat, err = fs.Stat(pid); err == nil && r.pidfd == noPidfd {
		thread, err = fs.IsThread(pid)
	}
	r.start = stat.Start
	switch {
	case err == nil && !thread:
		return r, refusal{}
	case thread:
		return r, changed("the PID now belongs to a thread of another process")
	}
	r.close()
	if errors.Is(err, proc.ErrGone) {
		return r, gone()
	}
	return r, unreadable(err)
}

func (x *Executor) untouchable() (map[snapshot.PID]string, error) {
	if err := x.proc().CheckNamespace(); err != nil {
		return nil, err
	}
	self := snapshot.PID(os.Getpid())
	ancestors, err := x.proc().Ancestors(self)
	if err != nil {
		return nil, err
	}
	pids := map[snapshot.PID]string{self: "it is genv itself"}
	for _, a := range ancestors {
		pids[a.PID] = "genv itself descends from it"
	}
	return pids, nil
}
