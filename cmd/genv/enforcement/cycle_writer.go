package enforcement

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// cycleWriter shows cycles to people, event by event, or as one JSON document a line.
type cycleWriter struct {
	out, err io.Writer
	format   string
	quiet    bool
	lookOnly bool // print hosts that are lost or back, and nothing else
	bar      *render.Progress

	failures bool // hosts were lost or came back in this cycle
	shown    map[snapshot.Hostname]int
	broken   error // out can't be written
}

// Consume implements controller.Sink.
func (w *cycleWriter) Consume(cycle *controller.Cycle, events []enforce.Event) {
	w.bar.End()
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case enforce.EventHostLost, enforce.EventHostBack:
			w.failures = true
		case enforce.EventHeld: // also with -q and for programs: the administrator has to decide
			w.remark(e.Text + ". If it is intended, raise `limits:` in the policy.")
		case controller.EventOperator: // also with -q and for programs: people decided it
			w.remark(e.Text)
		case enforce.EventOutcome:
			w.failures = w.failures || e.Err != nil
			w.outcome(e)
		case enforce.EventNote:
			w.note(e.Host, e.Text)
		case enforce.EventMore:
			w.more(e.Host)
		case enforce.EventNew, enforce.EventChanged, enforce.EventDue:
			// A finding that is acted on is shown in each such cycle; the others once.
			if acts := e.Decision == enforce.DecisionAct; acts == (e.Kind == enforce.EventDue) {
				w.finding(e.Finding, cycle.Start)
			}
		}
	}
}

// finding prints a finding as 1.4.3 does, and why nothing is done about it.
func (w *cycleWriter) finding(f *enforce.Finding, now time.Time) {
	if w.shown == nil {
		w.shown = make(map[snapshot.Hostname]int)
	}
	switch w.shown[f.Host]++; {
	case w.shown[f.Host] == maxFindingsShown+1:
		w.more(f.Host)
	case w.shown[f.Host] <= maxFindingsShown:
		w.print(f.Host, f.Line()+waitOf(f, now))
	}
}

func (w *cycleWriter) more(host snapshot.Hostname) {
	w.print(host, "… and more findings; --format json has them all")
}

// outcome prints what a host did: 1.4.3's lines, and on stderr what did not go as
// it should.
func (w *cycleWriter) outcome(e *enforce.Event) {
	for _, line := range e.Lines {
		w.print(e.Host, line)
	}
	for _, text := range e.Warnings {
		w.note(e.Host, text)
	}
	for _, o := range e.Outcomes {
		if text := Remark(o); text != "" && e.Err == nil {
			w.note(e.Host, text)
		}
	}
}

func (w *cycleWriter) print(host snapshot.Hostname, s string) {
	if w.format == "json" || w.broken != nil {
		return
	}
	_, w.broken = fmt.Fprintln(w.out, text.OneLine(on(host, s)))
}

func (w *cycleWriter) note(host snapshot.Hostname, s string) {
	if w.format != "json" && !w.quiet && !w.lookOnly {
		w.remark(on(host, s))
	}
}

func (w *cycleWriter) remark(s string) {
	fmt.Fprintln(w.err, text.OneLine(s))
}

// write ends a cycle.
func (w *cycleWriter) write(cycle *controller.Cycle) error {
	w.bar.End()
	failures := failuresOfCycle(cycle)
	switch {
	case w.format == "json":
		w.broken = render.WriteJSON(w.out, documentOf(cycle, failures))
	case cycle.DryRun:
		w.intentions(cycle.Plan)
	}
	if unrecorded := remarkOfRecord(cycle); unrecorded != "" {
		w.remark(unrecorded)
		w.failures = true // there were no events
	}
	if !w.quiet && (w.failures || cycle.Stopped) {
		render.WriteFailures(w.err, failures, len(cycle.Cluster.Hosts))
		if w.lookOnly && len(failures) == 0 && !cycle.Stopped {
			w.remark("All hosts answer again.")
		}
	}
	render.WriteDuplicates(w.err, cycle.Duplicates)
	w.failures, w.shown = false, nil
	return w.broken
}

// maxFindingsShown is how many findings of a host a cycle shows to people: one
// that makes up processes must not fill the screen.
const maxFindingsShown = 256

// waitOf says why nothing is done about a finding; empty when something is, or
// would be, as in 1.4.3.
func waitOf(f *enforce.Finding, now time.Time) string {
	left := f.Due.Sub(now)
	switch {
	case f.Waits != "":
		return fmt.Sprintf(" (waits: %s)", f.Waits)
	case f.Pending && left > 0:
		return fmt.Sprintf(" (waits for %s)", text.FormatDuration(max(left.Truncate(time.Second), time.Second)))
	case f.Pending:
		return " (waits for more cycles)"
	case f.Decision() == enforce.DecisionUnderWay:
		return " (a report about it is under way)"
	case len(f.Stuck) > 0:
		return fmt.Sprintf(" (process %d: %s)", f.Stuck[0].PID, cmp.Or(f.Stuck[0].Reason, "it cannot be ended"))
	}
	return ""
}

// because is the reasons of an intention.
func because(why []string) string {
	if len(why) == 0 {
		return ""
	}
	return " because: " + strings.Join(why, "; ")
}

// intentions prints what a dry run leaves undone.
func (w *cycleWriter) intentions(plan enforce.Plan) {
	for _, r := range plan.Reports {
		for _, d := range r.Report.Detach {
			w.print(r.Host, d.Intention()+because(d.Why))
		}
		for _, t := range r.Report.Terminate {
			w.print(r.Host, t.Intention()+because(t.Why))
		}
	}
}

// on puts a host in front of a line; this machine has no name.
func on(host snapshot.Hostname, s string) string {
	if host == "" {
		return s
	}
	return fmt.Sprintf("[%s] %s", host, s)
}

// Remark is a line about an outcome, or "" if it is what was asked for.
func Remark(o enforce.Outcome) string {
	switch o.Status {
	case enforce.StatusTerminated, enforce.StatusDetached, enforce.StatusGone, enforce.StatusNotAttached, enforce.StatusSignalled:
		return ""
	}
	what := fmt.Sprintf("process %d", o.PID)
	if o.PID == 0 {
		what = fmt.Sprintf("environment %s on device %s", text.Shown(string(o.EID)), o.Device)
	}
	if o.Reason == "" {
		return fmt.Sprintf("%s: %s", what, o.Status)
	}
	return fmt.Sprintf("%s: %s: %s", what, o.Status, o.Reason)
}

// remarkOfRecord says that the record could not be written, when that begins or its
// reason changes.
func remarkOfRecord(cycle *controller.Cycle) string {
	switch {
	case !cycle.RecordChanged || cycle.Unrecorded == nil:
		return ""
	case len(cycle.Actions) == 0 && len(cycle.Plan.Reports) > 0:
		return fmt.Sprintf("No action taken, since it could not be recorded: %v. Make room there, or run with --act-unrecorded.", cycle.Unrecorded)
	}
	return fmt.Sprintf("The record is incomplete: %v. What is missing is written as soon as there is room.", cycle.Unrecorded)
}

// failuresOfCycle lists the hosts that did not answer, and those whose report
// failed or has an unknown outcome, each once.
func failuresOfCycle(cycle *controller.Cycle) []remote.Failure {
	failures := render.FailuresIn(cycle.Cluster)
	for _, a := range cycle.Actions {
		known := slices.ContainsFunc(failures, func(f remote.Failure) bool { return f.Host == string(a.Host) })
		if a.Err != nil && !known {
			failures = append(failures, remote.FailureOf(string(a.Host), a.Err))
		}
	}
	return failures
}
