package local

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// target is a process that is to end.
type target struct {
	item    *enforce.Termination
	judged  *snapshot.Process // the item's
	outcome *enforce.Outcome
	fd      pidfd              // held until the report is carried out
	start   snapshot.StartTime // as it was when it was verified last
	state   byte               // of /proc/PID/stat, likewise
}

func (t *target) conclude(v verdict) { t.outcome.Status, t.outcome.Reason = v.status, v.reason }

// terminate climbs the ladder with all processes at once: hold, verify and
// SIGTERM, wait, verify and SIGKILL, look.
func (x *Executor) terminate(ctx context.Context, items []enforce.Termination, outcomes []enforce.Outcome, spared map[snapshot.EnvID]verdict) {
	x.forgetDead()
	targets := x.hold(ctx, items, outcomes, spared)
	defer func() {
		for _, t := range targets {
			t.fd.close()
		}
	}()
	left := x.term(ctx, targets)
	if x.grace <= 0 {
		return
	}
	left, err := await(ctx, left, x.grace, enforce.StatusTerminated)
	if err == nil && x.kills {
		x.kill(ctx, left)
		return
	}
	for _, t := range left {
		t.conclude(unended(err, "SIGTERM", x.grace))
	}
}

// term sends SIGTERM to what still is what was judged, and returns the targets
// that got it.
func (x *Executor) term(ctx context.Context, targets []*target) []*target {
	var struck []*target
	for i, v := range x.strike(ctx, targets, unix.SIGTERM) {
		t := targets[i]
		if !v.objects() {
			v = verdict{status: enforce.StatusSignalled}
			struck = append(struck, t)
		}
		t.conclude(v)
	}
	return struck
}

// kill sends SIGKILL to what outlived SIGTERM and still is what was judged.
func (x *Executor) kill(ctx context.Context, targets []*target) {
	var struck []*target
	for i, v := range x.strike(ctx, targets, unix.SIGKILL) {
		t := targets[i]
		switch {
		case v.status == enforce.StatusGone:
			t.conclude(verdict{status: enforce.StatusTerminated})
		case v.objects():
			v.reason = fmt.Sprintf("it still ran %s after SIGTERM; SIGKILL was not sent: %s", x.grace, v.reason)
			t.conclude(v)
		default:
			struck = append(struck, t)
		}
	}
	left, err := await(ctx, struck, x.killWait(), enforce.StatusKilled)
	for _, t := range left {
		t.conclude(unended(err, "SIGKILL", x.killWait()))
		if err == nil {
			x.unkillable[identity{t.judged.PID, t.start}] = true
		}
	}
}

// strike asks the GPUs once, and then for each target verifies it and sends the
// signal, one right after the other. The verdicts that don't object are of the
// targets that got it.
func (x *Executor) strike(ctx context.Context, targets []*target, sig unix.Signal) []verdict {
	if len(targets) == 0 {
		return nil
	}
	now, err := x.look(ctx)
	verdicts := make([]verdict, len(targets))
	for i, t := range targets {
		switch {
		case ctx.Err() != nil:
			verdicts[i] = notBegun(ctx)
		case err != nil:
			verdicts[i] = failed("not begun, since the GPUs could not be asked again: %v", err)
		default:
			verdicts[i] = x.strikeOne(t, now, sig)
		}
	}
	return verdicts
}

func (x *Executor) strikeOne(t *target, now *present, sig unix.Signal) verdict {
	if v := x.verify(t, now); v.objects() {
		return v
	}
	if v := sendVerdict(t.fd.signal(sig)); v.objects() {
		return v
	}
	if sig == unix.SIGTERM && t.state == 'T' {
		_ = t.fd.signal(unix.SIGCONT) // or a job that its owner stopped (Ctrl-Z) would never see it
	}
	x.say(signalLine(sig, t.item))
	return verdict{}
}

// pollSlice bounds one wait, so that the end of a context is noticed.
const pollSlice = 50 * time.Millisecond

// await waits until the targets have ended or the time is over, concludes those
// that ended with status, and returns the others. Its error says why it could
// not wait to the end.
func await(ctx context.Context, targets []*target, wait time.Duration, status enforce.Status) ([]*target, error) {
	for deadline := time.Now().Add(wait); ; {
		remaining := max(0, time.Until(deadline))
		ended, err := poll(pidfds(targets), min(remaining, pollSlice))
		if err != nil {
			return targets, err
		}
		var left []*target
		for i, t := range targets {
			if ended[i] {
				t.conclude(verdict{status: status})
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

func pidfds(targets []*target) []pidfd {
	fds := make([]pidfd, len(targets))
	for i, t := range targets {
		fds[i] = t.fd
	}
	return fds
}

// unended is what is said of a process that had not ended after a signal; err
// is why nobody waited to the end.
func unended(err error, signal string, wait time.Duration) verdict {
	switch {
	case err != nil:
		return verdict{status: enforce.StatusSignalled, reason: fmt.Sprintf("%s was sent, and nobody waited for the end: %v", signal, err)}
	case signal == "SIGKILL":
		return verdict{status: enforce.StatusSurvived, reason: fmt.Sprintf("it did not end within %s of SIGKILL, so it hangs in the kernel: look at `dmesg` for a sick GPU or file server", wait)}
	}
	return verdict{status: enforce.StatusSurvived, reason: fmt.Sprintf("it did not end within %s of %s", wait, signal)}
}
