package enforcement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Remark is a line about an outcome, or "" if it is what was asked for.
func Remark(o order.Outcome) string {
	switch o.Status {
	case order.StatusTerminated, order.StatusDetached, order.StatusGone, order.StatusNotAttached, order.StatusSignalled:
		return ""
	}
	what := fmt.Sprintf("process %d", o.PID)
	if o.PID == 0 {
		what = fmt.Sprintf("environment %s on GPU %s", text.Shown(string(o.EID)), o.Device)
	}
	if o.Reason == "" {
		return fmt.Sprintf("%s: %s", what, o.Status)
	}
	return fmt.Sprintf("%s: %s: %s", what, o.Status, o.Reason)
}

// remarkOfRecord says that the record could not be written, when that begins or its reason changes.
func remarkOfRecord(cycle *controller.Cycle) string {
	switch {
	case !cycle.RecordChanged || cycle.Unrecorded == nil:
		return ""
	case len(cycle.Results) == 0 && len(cycle.Plan.Orders) > 0:
		return fmt.Sprintf("No action taken, since it could not be recorded: %v. Make room there, or run with "+
			"--act-unrecorded.", cycle.Unrecorded)
	}
	return fmt.Sprintf("The record is incomplete: %v. What is missing is written as soon as there is room.",
		cycle.Unrecorded)
}

// failuresOfCycle lists the hosts that did not answer, those where an order failed or has an unknown outcome, and those
// where nothing can be done, each once.
func failuresOfCycle(cycle *controller.Cycle) []remote.Failure {
	failures := render.FailuresIn(cycle.Cluster)
	for _, a := range cycle.Results {
		known := slices.ContainsFunc(failures, func(f remote.Failure) bool { return f.Host == string(a.Host) })
		if a.Err != nil && !known {
			failures = append(failures, remote.FailureOf(string(a.Host), a.Err))
		}
	}
	unable := cycle.Unable()
	for _, host := range slices.Sorted(maps.Keys(unable)) {
		err := remote.Errorf(remote.CommandFailed, "nothing can be ended there: %s", unable[host])
		err.Next = "run `sudo genv doctor` on the host"
		failures = append(failures, remote.FailureOf(string(host), err))
	}
	return failures
}

// unableHosts names the hosts where nothing can be done; empty for none. This machine has no name.
func unableHosts(cycle *controller.Cycle) string {
	var names []string
	for host := range cycle.Unable() {
		names = append(names, cmp.Or(string(host), "this machine"))
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "nothing can be ended on " + render.Hosts(names)
}

// holds says what a safety limit holds back, when that begins and then now and then.
func (w *cycleWriter) holds(e *enforce.Event, now time.Time) {
	key := e.Held.Whom()
	if w.held == nil {
		w.held = make(map[string]time.Time)
	}
	if _, known := w.held[key]; !known {
		w.held[key] = now
	}
	if again, ok := w.repeats.admit("held "+key, now); ok {
		w.remark(e.Text + ". If it is intended, raise `limits:` in the policy." + again)
	}
}

// released says against whom nothing is held back any more.
func (w *cycleWriter) released(cycle *controller.Cycle, now time.Time) {
	if len(w.held) == 0 || cycle.Stopped {
		return
	}
	left := make(map[string]bool)
	for _, list := range [][]safety.Held{cycle.Plan.HeldHosts, cycle.Plan.HeldUsers} {
		for i := range list {
			left[list[i].Whom()] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.held)) {
		if left[key] {
			continue
		}
		w.remark(fmt.Sprintf("No safety limit keeps actions back any more %s, after %s.", key,
			text.ShortDuration(now.Sub(w.held[key]))))
		delete(w.held, key)
		delete(w.repeats.known, "held "+key)
	}
}

// exit has the exit code of a cycle; nil for 0. If the loop ends, hosts and orders that were
// cancelled by that don't count as failures.
func (l *loop) exit(cycle *controller.Cycle, ends bool) error {
	failures := failuresOfCycle(cycle)
	if ends {
		failures = slices.DeleteFunc(failures, func(f remote.Failure) bool { return f.Class == remote.Cancelled })
	}
	if err := command.FleetExit(failures, cycle.Cluster.CountAnswered()); err != nil {
		return err
	}
	switch {
	case cycle.Unrecorded != nil:
		return &command.ExitError{Code: command.ExitUnrecorded}
	case cycle.Plan.Held(), cycle.Hold != nil:
		return &command.ExitError{Code: command.ExitHeld}
	case !l.options.loops() && slices.ContainsFunc(cycle.Results, func(r controller.OrderResult) bool {
		return r.Undone(order.StatusFailed, order.StatusSurvived) != ""
	}):
		return &command.ExitError{Code: command.ExitSomeFailed}
	case l.options.ExitCode && l.options.DryRun && len(cycle.Plan.Orders) > 0:
		return &command.ExitError{Code: command.ExitWork}
	}
	return nil
}
