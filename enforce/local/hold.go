package local

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// hold opens a pidfd for each process that may be signalled at all, and
// concludes the others.
func (x *Executor) hold(ctx context.Context, items []enforce.Termination, outcomes []enforce.Outcome, spared map[snapshot.EnvID]verdict) []*target {
	var targets []*target
	untouchable, err := x.untouchable()
	for i := range items {
		p := &items[i].Process
		outcomes[i] = enforce.Outcome{PID: p.PID, EID: p.EID}
		t := &target{item: &items[i], judged: p, outcome: &outcomes[i]}
		v := mayHold(ctx, p, spared)
		switch {
		case v.objects():
		case err != nil:
			v = failed("not begun, since nobody can tell what genv itself descends from: %v", err)
		case untouchable[p.PID] != "":
			v = refused("%s", untouchable[p.PID])
		default:
			t.fd, v = take(p.PID)
		}
		if v.objects() {
			t.conclude(v)
			continue
		}
		untouchable[p.PID] = "it is listed twice"
		targets = append(targets, t)
	}
	return targets
}

// mayHold refuses what a sound report never holds, and what comes too late.
func mayHold(ctx context.Context, p *snapshot.Process, spared map[snapshot.EnvID]verdict) verdict {
	switch {
	case ctx.Err() != nil:
		return notBegun(ctx)
	case p.PID <= 1:
		return refused("PID %d is never signalled", p.PID)
	case p.EnvUnknown && (!p.EnvOverwritten || p.EID != ""):
		return refused("it was judged although its environment was not known")
	case len(p.Usage) == 0:
		return refused("it was judged although it used no device")
	case p.EID != "":
		if v := spared[p.EID]; v.status != enforce.StatusChanged || p.Start == 0 {
			return v
		} // else verify finds out whether it is the process that was judged
	}
	return verdict{}
}

func notBegun(ctx context.Context) verdict { return failed("not begun: %v", context.Cause(ctx)) }

// take opens a pidfd, which holds on to the process that has the PID now.
func take(pid snapshot.PID) (pidfd, verdict) {
	fd, err := openPidfd(pid)
	switch {
	case err == nil:
		return fd, verdict{}
	case errors.Is(err, unix.ESRCH):
		return fd, gone()
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return fd, changed("the number was given to a thread of another process")
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fd, failed("too many open files to hold the process: raise the limit (ulimit -n)")
	case errors.Is(err, unix.ENOSYS):
		return fd, failed("this kernel has no pidfd_open, without which a process can't be signalled safely: Linux 5.3 or newer is needed")
	}
	return fd, failed("pidfd_open: %v", err)
}

// untouchable are this process and all that it descends from, with the reason.
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
	for _, pid := range ancestors {
		pids[pid] = "genv itself descends from it"
	}
	return pids, nil
}
