package enforcement

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"

	"github.com/seed-3119e985/genv/cmd/genv/render"
)

// cycleWriter shows cycles to people, or as one JSON document a line.
type cycleWriter struct {
	out, err io.Writer
	format   string
	quiet    bool
	failed   []render.Failure // of the cycle before: told again only when they change
	remarks  []string         // likewise
	warned   map[string]bool
	decided  map[string]audit.Decision // of the findings of the cycle before
}

// quiet are the decisions that are told once.
var quiet = []audit.Decision{audit.DecisionWait, audit.DecisionHold, audit.DecisionStuck}

func (w *cycleWriter) write(cycle controller.Cycle) error {
	failures := failuresOfCycle(cycle)
	if w.format == "json" {
		if err := render.WriteJSON(w.out, documentOf(cycle, failures)); err != nil {
			return err
		}
	} else if err := w.writeCycle(cycle); err != nil {
		return err
	}
	if !w.quiet && !slices.EqualFunc(failures, w.failed, sameFailure) {
		render.WriteFailures(w.err, failures, len(cycle.Cluster.Hosts))
	}
	w.failed = failures
	render.WriteDuplicates(w.err, cycle.Duplicates)
	w.writeRemarks(&cycle)
	w.writeNotes(cycle)
	return nil
}

// sameFailure passes over the words: they say for how long a host is left alone.
func sameFailure(a, b render.Failure) bool { return a.Host == b.Host && a.Class == b.Class }

// writeRemarks says on stderr, also with -q and for programs, what was not done
// because of safety limits, or because it could not be recorded.
func (w *cycleWriter) writeRemarks(cycle *controller.Cycle) {
	for _, text := range heldRemarks(cycle) {
		fmt.Fprintln(w.err, render.Printable(render.OneLine(text)))
	}
	remarks := remarksOfCycle(cycle)
	for _, text := range remarks {
		if !slices.Contains(w.remarks, text) {
			fmt.Fprintln(w.err, render.Printable(render.OneLine(text)))
		}
	}
	w.remarks = remarks
}

// writeNotes tells on stderr, once each, what could not be judged and what the
// hosts warned of.
func (w *cycleWriter) writeNotes(cycle controller.Cycle) {
	now := make(map[string]bool)
	tell := func(host snapshot.Hostname, text string) {
		line := render.Printable(render.OneLine(on(host, text)))
		if !w.warned[line] && !now[line] && w.format != "json" && !w.quiet {
			fmt.Fprintln(w.err, line)
		}
		now[line] = true
	}
	for _, n := range cycle.Plan.Notes {
		tell(n.Host, n.Text)
	}
	for _, h := range cycle.Cluster.Answered() {
		for _, text := range h.Snapshot.Warnings {
			tell(h.Name, text)
		}
	}
	for _, a := range cycle.Actions {
		for _, text := range a.Execution.Warnings {
			tell(a.Host, text)
		}
		for _, o := range a.Execution.Outcomes {
			if text := Remark(o); text != "" {
				tell(a.Host, text)
			}
		}
	}
	w.warned = now
}

// writeCycle prints 1.4.3's lines: the findings, then what was done. A finding
// about which nothing is done is told when that begins, not in every cycle.
func (w *cycleWriter) writeCycle(cycle controller.Cycle) error {
	out, before := w.out, w.decided
	w.decided = make(map[string]audit.Decision, len(cycle.Plan.Findings))
	shown := make(map[snapshot.Hostname]int)
	for i := range cycle.Plan.Findings {
		f := &cycle.Plan.Findings[i]
		decision := cycle.Decision(f)
		w.decided[f.ID] = decision
		if before[f.ID] == decision && slices.Contains(quiet, decision) {
			continue
		}
		if shown[f.Host]++; shown[f.Host] == maxFindingsShown+1 {
			_, _ = fmt.Fprintln(out, on(f.Host, "… and more findings; --format json has them all")) // the next line would fail too
		}
		if shown[f.Host] > maxFindingsShown {
			continue
		}
		if _, err := fmt.Fprintln(out, render.Printable(on(f.Host, f.Line()+waitOf(f, cycle.Start)))); err != nil {
			return err
		}
	}
	if cycle.DryRun {
		return writeIntentions(out, cycle.Plan)
	}
	for _, a := range cycle.Actions {
		for _, text := range a.Execution.Lines {
			if _, err := fmt.Fprintln(out, render.Printable(render.OneLine(on(a.Host, text)))); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxFindingsShown is how many findings of a host a cycle shows to people: one
// that makes up processes must not fill the screen.
const maxFindingsShown = 256

// waitOf says why nothing is done about a finding; empty when something is, or
// would be, as in 1.4.3.
func waitOf(f *enforce.Finding, now time.Time) string {
	left := f.Due.Sub(now).Round(time.Second)
	switch {
	case f.Waits != "":
		return fmt.Sprintf(" (waits: %s)", f.Waits)
	case f.Pending && left > 0:
		return fmt.Sprintf(" (waits for %s)", strictyaml.FormatDuration(left))
	case f.Pending:
		return " (waits for more cycles)"
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

// writeIntentions prints what a dry run leaves undone.
func writeIntentions(out io.Writer, plan enforce.Plan) error {
	for _, r := range plan.Reports {
		for _, d := range r.Report.Detach {
			if _, err := fmt.Fprintln(out, render.Printable(on(r.Host, d.Intention()+because(d.Why)))); err != nil {
				return err
			}
		}
		for _, t := range r.Report.Terminate {
			if _, err := fmt.Fprintln(out, render.Printable(on(r.Host, t.Intention()+because(t.Why)))); err != nil {
				return err
			}
		}
	}
	return nil
}

// on puts a host in front of a line; this machine has no name.
func on(host snapshot.Hostname, text string) string {
	if host == "" {
		return text
	}
	return fmt.Sprintf("[%s] %s", host, text)
}

// failuresOfCycle lists the hosts that did not answer, and those of which
// nobody knows whether they did what they were sent.
func failuresOfCycle(cycle controller.Cycle) []render.Failure {
	failures := []render.Failure{}
	for _, h := range cycle.Cluster.Failed() {
		failures = append(failures, render.FailureOf(string(h.Name), h.Err))
	}
	for _, a := range cycle.Actions {
		if a.Err != nil {
			failures = append(failures, render.FailureOf(string(a.Host), a.Err))
		}
	}
	return failures
}
