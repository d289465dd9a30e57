package local

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// openTargets opens each process that may be signalled at all, and concludes the others.
func (x *execution) openTargets(ctx context.Context, items []order.Termination, outcomes []order.Outcome) []*target {
	var targets []*target
	untouchable, err := x.untouchable()
	for i := range items {
		p := &items[i].Process
		outcomes[i] = order.Outcome{PID: p.PID, EID: p.EID}
		t := &target{item: &items[i], judged: p, outcome: &outcomes[i], failedStop: make(chan error, 1)}
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

// checkItem objects to what a valid order never contains, and to what comes too late.
func (x *execution) checkItem(ctx context.Context, item *order.Termination) objection {
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
	return objection{}
}

// openProcess refers to the process that has the PID now.
func openProcess(fs proc.FS, pid snapshot.PID) (reference, objection) {
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
		return r, objection{}
	case thread:
		return r, changed("the PID now belongs to a thread of another process")
	}
	r.close()
	if errors.Is(err, proc.ErrGone) {
		return r, gone()
	}
	return r, unreadable(err)
}

// untouchable are this process and its ancestors, each with the reason.
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
