package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (x *execution) terminate(ctx context.Context, items []order.Termination) []order.Outcome {
	x.memories.removeDead(x.proc())
	outcomes := make([]order.Outcome, len(items))
	targets := x.openTargets(ctx, items, outcomes)
	longest := max(x.steps[0].Wait, order.DefaultGrace) + order.KillWait
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
	x.stopping = stopping
	defer func() {
		x.stops.Wait()
		cancel()
		for _, t := range targets {
			t.fd.close()
		}
	}()
	signalled := x.begin(targets)
	left := x.signal(ctx, targets, nil, &x.steps[0])
	signalled(left)
	if x.GraceMS <= 0 {
		return outcomes
	}
	begun := time.Now()
	for _, group := range x.byGrace(left) {
		x.await(ctx, group, begun)
	}
	return outcomes
}

func (x *execution) await(ctx context.Context, group []*target, begun time.Time) {
	grace, mayGoOn := group[0].grace, group[0].mayGoOn
	left, err := wait(ctx, group, time.Until(begun.Add(grace)), x.steps[0].Ended)
	if err == nil {
		left, err = x.awaitStops(ctx, left)
	}
	step := x.steps[0]
	step.Wait = grace
	for i := 1; err == nil && mayGoOn && len(left) > 0 && i < len(x.steps); i++ {
		left = x.signal(ctx, left, &x.steps[i-1], &x.steps[i])
		step = x.steps[i]
		left, err = wait(ctx, left, step.Wait, step.Ended)
	}
	for _, t := range left {
		o := refusal{status: order.StatusSignalled} // another order may follow
		if err != nil || mayGoOn {
			o = x.notEnded(err, t, &step)
		}
		t.conclude(o)
	}
}

// signal inspects once, then verifies, signals and concludes each target. It returns those that got the signal, now or
// by an earlier order. last is the step before; nil for none.
func (x *execution) signal(ctx context.Context, targets []*target, last, step *order.Step) (signalled []*target) {
	if len(targets) == 0 {
		return nil
	}
	now, err := x.inspect(ctx)
	for _, t := range targets {
		var o refusal
		switch {
		case ctx.Err() != nil:
			o = notBegun(ctx)
		case err != nil:
			o = failed("not begun, since the GPUs could not be read again: %v", err)
		default:
			o = x.signalOne(ctx, t, now, step, last == nil)
		}
		switch {
		case !o.raised():
			o, signalled = refusal{status: order.StatusSignalled}, append(signalled, t)
		case last != nil && o.status == order.StatusGone:
			o = refusal{status: last.Ended}
		case last != nil:
			o.reason = fmt.Sprintf("it still ran %s after %s; %s was not sent: %s", last.Wait, last.Signal, step.Signal,
				o.reason)
		}
		t.conclude(o)
	}
	return signalled
}

// signalOne verifies and signals a target. Without a refusal it got the signal. Only the first step is skipped after an
// earlier order, and may stop a container.
func (x *execution) signalOne(ctx context.Context, t *target, now *inspection, step *order.Step, first bool) refusal {
	asking := first && t.earlier == nil
	var running *container.Running
	if asking {
		running = x.findContainer(ctx, t, now)
	}
	if o := x.verify(t, now); o.raised() {
		return o
	}
	if first && !asking {
		return refusal{} // it got the signal by another order
	}
	release, err := x.hold()
	if err != nil {
		return failed("not begun: %v", err)
	}
	defer release()
	if running != nil {
		x.stop(t, *running)
	} else if o := sendError(t.fd.signal(unix.SignalNum(step.Signal))); o.raised() {
		return o
	}
	if first && t.state == 'T' {
		_ = t.fd.signal(unix.SIGCONT) // a job that its owner stopped (Ctrl-Z) would never handle the signal
	}
	x.onAction(step.Verb + " " + t.item.Object())
	return refusal{}
}

const pollInterval = 50 * time.Millisecond // of one call of poll, so that the end of a context is noticed

// wait waits for the targets until the timeout. It concludes ended ones with status, and returns the others, with an
// error if it gave up early.
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
				t.conclude(refusal{status: status})
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

func (x *execution) notEnded(err error, t *target, step *order.Step) refusal {
	if err != nil {
		return because(order.StatusSignalled, "%s was sent, but waiting for the end was given up: %v", step.Signal, err)
	}
	advice := ", so " + step.Advice
	if step.Signal == "SIGKILL" {
		x.memories.record(t.key(), func(m *processRecord) { m.unkillable = true })
		if x.proc().WaitsForFUSE(t.judged.PID) {
			advice = ": a thread waits for a FUSE file system, and ends when its server does"
		}
	}
	return because(order.StatusSurvived, "it did not end within %s of %s%s", step.Wait, step.Signal, advice)
}

// Containers stops containers of this machine, as *container.Lookup does.
type Containers interface {
	// Init returns the container whose first process now has this PID.
	Init(ctx context.Context, pid snapshot.PID) (container.Running, error)
	// Stop has the container's engine stop it, and returns once it has stopped.
	Stop(ctx context.Context, r container.Running, grace time.Duration) error
}

// findContainer returns the container whose first process the target is; nil for none, or with t.engineErr.
func (x *execution) findContainer(ctx context.Context, t *target, now *inspection) *container.Running {
	listed := now.processes[t.judged.PID]
	if x.options.Containers == nil || listed == nil || listed.ContainerInfo == nil || !listed.ContainerInfo.Init {
		return nil
	}
	running, err := x.options.Containers.Init(ctx, t.judged.PID)
	if err != nil {
		if !errors.Is(err, container.ErrNotInit) {
			t.engineErr = err
		}
		return nil
	}
	return &running
}

// stop has the engine stop the target's container, finally with SIGKILL: the kernel drops SIGTERM for the first process
// of a container that doesn't handle it. Otherwise the target gets the signal itself.
func (x *execution) stop(t *target, running container.Running) {
	t.stopping = &running
	x.stops.Go(func() {
		if err := x.options.Containers.Stop(x.stopping, running, x.steps[0].Wait); err != nil {
			t.stopErr.Store(&err)
			if release, err := x.hold(); err == nil {
				_ = t.fd.signal(unix.SIGTERM) // the wait for its end shows whether it helped
				release()
			}
		}
	})
}

func (x *execution) awaitStops(ctx context.Context, left []*target) ([]*target, error) {
	var stopping, others []*target
	for _, t := range left {
		if t.stopping != nil && t.stopErr.Load() == nil {
			stopping = append(stopping, t)
		} else {
			others = append(others, t)
		}
	}
	if len(stopping) == 0 {
		return left, nil
	}
	stopping, err := wait(ctx, stopping, order.KillWait, order.StatusKilled)
	return append(others, stopping...), err
}

func (t *target) containerReason() string {
	switch {
	case t.engineErr != nil:
		return fmt.Sprintf("it is the first process of a container, and its engine could not be asked to stop it: %v",
			t.engineErr)
	case t.stopping == nil:
		return ""
	}
	if err := t.stopErr.Load(); err != nil {
		return fmt.Sprintf("it is the first process of %s, and got the signal itself: %v", t.stopping.Text, *err)
	}
	return "its container was stopped: " + t.stopping.Text
}

// begin notes that the targets are asked to end, and finds those that were asked before. The caller passes to signalled
// the targets that got SIGTERM, now or then.
func (x *execution) begin(targets []*target) (signalled func([]*target)) {
	if x.options.Asked == nil || len(targets) == 0 {
		return func([]*target) {}
	}
	processes := make([]proc.ID, len(targets))
	for i, t := range targets {
		if stat, err := x.proc().Stat(t.judged.PID); err == nil {
			t.start = stat.Start // if it isn't that of its pidfd, verify finds it out
		}
		processes[i] = proc.ID{PID: t.judged.PID, Start: t.start}
	}
	request := ending.EndRequest{By: x.asker.Name, Order: x.id, Grace: x.steps[0].Wait}
	end, earlier, err := x.options.Asked.Begin(request, processes)
	for i, e := range earlier {
		targets[i].earlier = e
	}
	if err != nil {
		x.onWarning(err.Error())
		return func([]*target) {}
	}
	return func(got []*target) {
		var mine []proc.ID
		for _, t := range got {
			if t.earlier == nil {
				mine = append(mine, proc.ID{PID: t.judged.PID, Start: t.start})
			}
		}
		if err := end(mine); err != nil {
			x.onWarning(err.Error())
		}
	}
}

func (x *execution) byGrace(targets []*target) (groups [][]*target) {
	for _, t := range targets {
		t.grace, t.mayGoOn = t.earlier.Rest(x.steps[0].Wait)
		alike := func(group []*target) bool { return group[0].grace == t.grace && group[0].mayGoOn == t.mayGoOn }
		if i := slices.IndexFunc(groups, alike); i >= 0 {
			groups[i] = append(groups[i], t)
		} else {
			groups = append(groups, []*target{t})
		}
	}
	slices.SortStableFunc(groups, func(a, b []*target) int { return cmp.Compare(a[0].grace, b[0].grace) })
	return groups
}

func (t *target) earlierReason() string {
	e := t.earlier
	said := fmt.Sprintf("already under way: another order asked it to end %s ago",
		text.FormatDuration(e.Ago.Round(time.Second)))
	if e.Left > 0 {
		said += fmt.Sprintf(", and it has %s from then on", text.FormatDuration((e.Ago + e.Left).Round(time.Second)))
	}
	return said
}
