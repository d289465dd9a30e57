package local

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot/container"
)

// terminate ends all processes together: open, verify and SIGTERM, wait, verify and SIGKILL, wait.
func (x *execution) terminate(ctx context.Context, items []order.Termination) []order.Outcome {
	x.memories.removeDead(x.proc())
	outcomes := make([]order.Outcome, len(items))
	targets := x.openTargets(ctx, items, outcomes)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(x.Grace, engineGrace)+x.options.KillWait)
	x.stopping = stopping
	defer func() {
		x.stops.Wait()
		cancel()
		for _, t := range targets {
			t.fd.close()
		}
	}()
	signalled := x.begin(targets)
	left := x.sendSIGTERM(ctx, targets)
	signalled(left)
	if x.Grace <= 0 {
		return outcomes
	}
	begun := time.Now()
	for _, group := range x.byGrace(left) {
		x.await(ctx, group, begun)
	}
	return outcomes
}

// await waits for the end of the targets' common grace, then ends what still runs if the order says so.
func (x *execution) await(ctx context.Context, group []*target, begun time.Time) {
	grace, mayKill := group[0].grace, group[0].mayKill
	left, err := wait(ctx, group, time.Until(begun.Add(grace)), order.StatusTerminated)
	if err == nil {
		left, err = x.awaitStops(ctx, left)
	}
	if err == nil && x.Kill && mayKill {
		x.sendSIGKILL(ctx, left)
		return
	}
	for _, t := range left {
		if err == nil && !mayKill {
			t.conclude(objection{status: order.StatusSignalled}) // another order may follow
		} else {
			t.conclude(notEnded(err, "SIGTERM", grace))
		}
	}
}

// sendSIGTERM signals what still is what was judged, and returns the targets that got the signal.
func (x *execution) sendSIGTERM(ctx context.Context, targets []*target) []*target {
	var signalled []*target
	for i, o := range x.signal(ctx, targets, unix.SIGTERM) {
		if !o.raised() {
			o = objection{status: order.StatusSignalled}
			signalled = append(signalled, targets[i])
		}
		targets[i].conclude(o)
	}
	return signalled
}

// sendSIGKILL ends what did not end after SIGTERM and still is what was judged.
func (x *execution) sendSIGKILL(ctx context.Context, targets []*target) {
	var signalled []*target
	for i, o := range x.signal(ctx, targets, unix.SIGKILL) {
		t := targets[i]
		switch {
		case o.status == order.StatusGone:
			t.conclude(objection{status: order.StatusTerminated})
		case o.raised():
			o.reason = fmt.Sprintf("it still ran %s after SIGTERM; SIGKILL was not sent: %s", x.Grace, o.reason)
			t.conclude(o)
		default:
			signalled = append(signalled, t)
		}
	}
	left, err := wait(ctx, signalled, x.options.KillWait, order.StatusKilled)
	for _, t := range left {
		o := notEnded(err, "SIGKILL", x.options.KillWait)
		if err == nil && x.proc().WaitsForFUSE(t.judged.PID) {
			o.reason = fmt.Sprintf("it did not end within %s of SIGKILL: a thread waits for a FUSE file system, and "+
				"ends when its server does", x.options.KillWait)
		}
		t.conclude(o)
		if err == nil {
			x.memories.change(t.key(), func(m *processRecord) { m.unkillable = true })
		}
	}
}

// signal reads once which processes use devices; then it verifies each target
// and right after that sends the signal. A target without an objection got it.
func (x *execution) signal(ctx context.Context, targets []*target, sig unix.Signal) []objection {
	if len(targets) == 0 {
		return nil
	}
	now, err := x.inspect(ctx)
	objections := make([]objection, len(targets))
	for i, t := range targets {
		switch {
		case ctx.Err() != nil:
			objections[i] = notBegun(ctx)
		case err != nil:
			objections[i] = failed("not begun, since the GPUs could not be read again: %v", err)
		default:
			objections[i] = x.signalOne(ctx, t, now, sig)
		}
	}
	return objections
}

func (x *execution) signalOne(ctx context.Context, t *target, now *inspection, sig unix.Signal) objection {
	asking := sig == unix.SIGTERM && t.earlier == nil
	var running *container.Running
	if asking {
		running = x.findContainer(ctx, t, now)
	}
	if o := x.verify(t, now); o.raised() {
		return o
	}
	if sig == unix.SIGTERM && !asking {
		return objection{} // it got the signal by another order
	}
	release, err := x.hold()
	if err != nil {
		return failed("not begun: %v", err)
	}
	defer release()
	if running != nil {
		x.stop(t, *running)
	} else if o := sendError(t.fd.signal(sig)); o.raised() {
		return o
	}
	if sig == unix.SIGTERM && t.state == 'T' {
		_ = t.fd.signal(unix.SIGCONT) // a job that its owner stopped (Ctrl-Z) would never handle SIGTERM
	}
	if sig == unix.SIGKILL {
		x.onAction(t.item.KillLine())
	} else {
		x.onAction(t.item.String())
	}
	return objection{}
}

// pollInterval bounds one call of poll, so that the end of a context is noticed.
const pollInterval = 50 * time.Millisecond

// wait waits until the targets have ended or the timeout is over, concludes those that ended with status, and returns
// the others. Its error is why it did not wait until then.
func wait(ctx context.Context, targets []*target, timeout time.Duration, status order.OutcomeStatus) ([]*target, error) {
	for deadline := time.Now().Add(timeout); ; {
		remaining := max(0, time.Until(deadline))
		ended, err := poll(targets, min(remaining, pollInterval))
		if err != nil {
			return targets, err
		}
		var left []*target
		for i, t := range targets {
			if ended[i] {
				t.conclude(objection{status: status})
			} else {
				left = append(left, t)
			}
		}
		if targets = left; len(targets) == 0 || remaining == 0 {
			return targets, nil
		}
		if ctx.Err() != nil {
			return targets, context.Cause(ctx)
		}
	}
}

// notEnded is the outcome of a process that did not end after a signal; err is why waiting was given up, if it was.
func notEnded(err error, signal string, timeout time.Duration) objection {
	if err != nil {
		why := fmt.Sprintf("%s was sent, but waiting for the end was given up: %v", signal, err)
		return objection{status: order.StatusSignalled, reason: why}
	}
	reason := fmt.Sprintf("it did not end within %s of %s", timeout, signal)
	if signal == "SIGKILL" {
		reason += ", so it hangs in the kernel: look at `dmesg` for a sick GPU or file server"
	} else {
		reason += ", so it ignores that or takes longer: kill: true in the policy ends it"
	}
	return objection{status: order.StatusSurvived, reason: reason}
}
