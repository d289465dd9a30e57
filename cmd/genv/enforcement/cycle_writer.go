package enforcement

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// cycleWriter prints events, or a JSON document per cycle on one line. Stdout has 1.4.3's lines: findings and what was
// done; everything else goes to stderr.
type cycleWriter struct {
	out, err  io.Writer
	now       func() time.Time
	format    string
	quiet     bool
	byUser    bool // print a row per user instead of lines
	lookOnly  bool // print only which hosts are lost or back
	concludes bool // also print that there was nothing to do
	dated     bool // stdout is for people: limits repeated lines

	colourOut, colourErr bool

	bar     *render.Progress
	summary *summary // nil for none

	hosts    render.HostLog
	findings map[string]*printedFinding // printed, not resolved; bounded by the memory of rules
	repeats  repeats[string]            // lines
	held     repeats[string]            // by safety limits, for each user or host
	intended map[string]bool            // what the last cycle of a dry run printed

	undelivered []remote.Failure // orders that failed in this cycle
	broken      error            // why out can't be written
}

func newCycleWriter(p *command.Program, options *Options) cycleWriter {
	w := cycleWriter{
		out: p.Out, err: render.DatedLog(p.Err, p.Now, p.Getenv), now: p.Now, format: options.Format,
		quiet: options.Quiet, byUser: options.ByUser, lookOnly: options.LookOnly, bar: options.Progress,
		concludes: (options.Interval == 0 || options.DryRun) && !options.LookOnly && !options.Quiet &&
			options.Format != "json",
		colourOut: render.Colourful(p.Out, p.Getenv), colourErr: render.Colourful(p.Err, p.Getenv),
	}
	if options.Summary > 0 {
		outcomes := make(map[order.OutcomeStatus]int)
		w.summary = &summary{period: options.Summary, since: p.Now(), outcomes: outcomes}
	}
	dates := options.Timestamps == "always" || options.Timestamps == "auto" && render.IsTerminal(p.Out)
	if w.dated = dates && options.Format != "json" && !options.ByUser; w.dated {
		w.out = render.NewDated(p.Out, p.Now)
	}
	return w
}

// Consume implements controller.Sink.
func (w *cycleWriter) Consume(round *controller.Round, events []enforce.Event) {
	if round.Ended {
		return // write prints it
	}
	w.bar.End()
	now := w.time(round)
	w.look(round)
	w.summary.measure(round.Cluster)
	for i := range events {
		e := &events[i]
		w.summary.count(e)
		switch e.Kind {
		case enforce.EventHeld: // also with -q and JSON: the administrator has to decide
			w.printHeld(e, now)
		case controller.EventOperator: // also with -q and JSON: people decided it
			w.remark(e.Text)
		case enforce.EventActing:
			w.underWay(e, 1)
		case enforce.EventOutcome:
			w.outcome(e, now)
			w.underWay(e, -1)
		case enforce.EventGuard:
			w.note(e.Host, e.Text)
		case enforce.EventNote:
			w.repeatedNote(e.Host, e.Text, now)
		case enforce.EventMore:
			const text = "… and more findings; --format json has them all"
			if _, ok := w.repeats.admit(on(e.Host, text), now); ok {
				w.print(e.Host, text)
			}
		case enforce.EventNew, enforce.EventChanged:
			w.finding(e, now)
		case enforce.EventDue:
			if w.findings[e.ID] != nil { // else the host has more findings than are printed
				w.finding(e, now)
			}
		case enforce.EventOver:
			if f := w.findings[e.ID]; f != nil {
				lasted := max(now.Sub(f.since), time.Second)
				f.over = on(e.Host, fmt.Sprintf("Resolved after %s: %s", text.ShortDuration(lasted), f.line))
				w.resolved(e.ID)
			}
		}
	}
}

func (w *cycleWriter) underWay(e *enforce.Event, n int) {
	for i := range e.Findings {
		if f := w.findings[e.Findings[i].ID]; f != nil {
			f.orders = max(f.orders+n, 0)
			w.resolved(e.Findings[i].ID)
		}
	}
}

// resolved prints that a finding is over, after the last outcome about it.
func (w *cycleWriter) resolved(id string) {
	f := w.findings[id]
	if f.over == "" || f.orders > 0 {
		return
	}
	if len(f.printed) > 0 {
		w.note("", f.over)
	}
	delete(w.findings, id)
}

func (w *cycleWriter) time(round *controller.Round) time.Time {
	if at := cmp.Or(round.Now, round.Start); !at.IsZero() || w.now == nil {
		return at
	}
	return w.now()
}

func (w *cycleWriter) look(round *controller.Round) {
	if round.Stopped {
		return
	}
	for _, line := range w.hosts.Look(round.Cluster, w.time(round)) {
		if !w.quiet {
			w.line(line)
		}
	}
}

// finding also prints why nothing is done about a finding, when that begins or changes.
func (w *cycleWriter) finding(e *enforce.Event, now time.Time) {
	known, earlier := w.findings[e.ID]
	if !earlier || known.over != "" {
		earlier = false
		known = &printedFinding{line: e.Finding.String(), since: cmp.Or(e.Finding.Since, now)}
		if w.findings == nil {
			w.findings = make(map[string]*printedFinding)
		}
		w.findings[e.ID] = known
	}
	acts := e.Decision == enforce.DecisionAct
	switch {
	case acts != (e.Kind == enforce.EventDue):
		return
	case earlier && e.Decision == enforce.DecisionHold: // the reason is printed once for all findings
		return
	case known.admits(e.Decision, now):
		w.print(e.Host, e.Finding.Line()+waitOf(e.Finding, now))
	}
}

type printedFinding struct {
	line    string // 1.4.3's
	since   time.Time
	printed repeats[enforce.Decision]

	orders int    // running orders about it
	over   string // what to print after these; empty while it lasts
}

// admits reports whether to print a decision. What is done about a lasting finding changes often, and is printed once.
func (f *printedFinding) admits(d enforce.Decision, now time.Time) bool {
	if d == enforce.DecisionUnderWay {
		return false
	}
	again, ok := f.printed.admit(d, now)
	return ok && (again == "" || d != enforce.DecisionAct && d != enforce.DecisionStuck)
}

// waitOf is why nothing is done about a finding; empty if something is, or would be, as in 1.4.3.
func waitOf(f *enforce.Finding, now time.Time) string {
	left := f.Due.Sub(now)
	switch {
	case f.BlockedBy != "":
		return fmt.Sprintf(" (waits: %s)", f.BlockedBy)
	case f.Pending && left >= 2*time.Minute:
		return fmt.Sprintf(" (waits for %s)", text.ShortDuration(left))
	case f.Pending && left > 0:
		return fmt.Sprintf(" (waits for %s)", text.FormatDuration(max(left.Truncate(time.Second), time.Second)))
	case f.Pending:
		return " (waits for more cycles)"
	case f.Decision() == enforce.DecisionUnderWay:
		return " (an order about it is under way)"
	case len(f.Stuck) > 0:
		return fmt.Sprintf(" (process %d: %s)", f.Stuck[0].PID, cmp.Or(f.Stuck[0].Reason, "it cannot be ended"))
	}
	return ""
}

func (w *cycleWriter) outcome(e *enforce.Event, now time.Time) {
	if e.Err != nil {
		w.undelivered = append(w.undelivered, remote.FailureOf(string(e.Host), e.Err))
	}
	for _, line := range e.Lines {
		again, ok := "", true
		if w.dated {
			again, ok = w.repeats.admit(on(e.Host, line), now)
		}
		if ok {
			w.print(e.Host, line+again)
		}
	}
	for _, text := range e.Warnings {
		w.repeatedNote(e.Host, text, now)
	}
	for _, o := range e.Outcomes {
		if text := Remark(o); text != "" && e.Err == nil {
			w.repeatedNote(e.Host, text, now)
		}
	}
}

func (w *cycleWriter) print(host snapshot.Hostname, s string) {
	if w.format == "json" || w.byUser || w.broken != nil {
		return
	}
	_, w.broken = io.WriteString(w.out, coloured(text.OneLine(on(host, s)), s, w.colourOut)+"\n")
}

func (w *cycleWriter) note(host snapshot.Hostname, s string) {
	if w.format != "json" && !w.quiet && !w.lookOnly {
		w.remark(on(host, s))
	}
}

func (w *cycleWriter) repeatedNote(host snapshot.Hostname, s string, now time.Time) {
	if again, ok := w.repeats.admit(on(host, s), now); ok {
		w.note(host, s+again)
	}
}

func (w *cycleWriter) remark(s string) { w.line(text.OneLine(s)) }

func (w *cycleWriter) line(s string) {
	_, _ = io.WriteString(w.err, coloured(s, s, w.colourErr)+"\n")
}

// write ends a cycle. part is nil without an election.
func (w *cycleWriter) write(round *controller.Round, part *election.StatusDocument) error {
	w.bar.End()
	now := w.time(round)
	w.look(round) // a cycle that could not be recorded had no events
	w.printReleased(round, now)
	failures := failuresOfCycle(round)
	switch {
	case w.format == "json":
		document := documentOf(round, failures)
		document.Standby, document.Election = round.Standby, part
		if w.byUser {
			document.ByUser = byUser(round)
		}
		w.broken = render.WriteJSON(w.out, document)
	case w.byUser && !round.Stopped:
		w.broken = writeByUser(w.out, byUser(round))
	case round.DryRun && !round.Stopped && !round.Standby:
		w.intentions(round)
	}
	unrecorded := remarkOfRecord(round)
	if unrecorded != "" {
		w.remark(unrecorded)
	}
	if w.concludes && unrecorded == "" && !round.Stopped && !round.Standby &&
		(round.DryRun || len(round.Plan.Findings) == 0) {
		w.line(conclusion(round))
	}
	if unable := unableHosts(round); unable != "" && !w.quiet && !round.Stopped {
		w.repeatedNote("", strings.ToUpper(unable[:1])+unable[1:]+": see the reason above", now)
	}
	w.concludes = false
	w.repeats.tidy(now)
	switch {
	case w.quiet:
	case round.Stopped:
		render.WriteFailures(w.err, failures, len(round.Cluster.Hosts))
	default:
		w.writeUndelivered(now)
	}
	render.WriteDuplicates(w.err, round.Duplicates)
	w.summary.round(round, &w.hosts, w.line)
	w.undelivered = nil
	return w.broken
}

func conclusion(round *controller.Round) string {
	answered, hosts := round.Cluster.CountAnswered(), len(round.Cluster.Hosts)
	s := fmt.Sprintf("%s answered, %s: ", text.Plural(hosts, "host"), text.Plural(len(round.Plan.Findings), "finding"))
	if answered < hosts {
		s = fmt.Sprintf("%d of %s", answered, s)
	}
	unjudged := ""
	if n := len(round.Plan.Notes); n > 0 {
		unjudged = fmt.Sprintf("; not everything could be judged (%s)", text.Plural(n, "note"))
	}
	if round.DryRun {
		return s + wouldBeDone(round) + unjudged + unmeasured(round) + uncounted(round.Plan.Uncounted)
	}
	return s + "nothing was done" + unjudged
}

func (w *cycleWriter) writeUndelivered(now time.Time) {
	causes := remote.Causes(w.undelivered)
	said := false
	for _, line := range render.CauseLines(causes) {
		if again, ok := w.repeats.admit("order "+line, now); ok {
			w.line("Order failed: " + line + again)
			said = true
		}
	}
	if said {
		for _, step := range render.NextSteps(causes) {
			w.line("next: " + step)
		}
	}
}

// on leaves a line without a host: this machine has no name.
func on(host snapshot.Hostname, s string) string {
	if host == "" {
		return s
	}
	return fmt.Sprintf("[%s] %s", host, s)
}

// coloured is red for what is done or lost, yellow for what may be done, green for recovery.
func coloured(line, says string, colourful bool) string {
	begins := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(says, word) })
	}
	style := draw.Plain
	switch {
	case begins("Terminating ", "Killing ", "Detaching ", "Lost: ", "Still lost: ", "Unsteady ", "Order failed: ",
		"Safety limit "):
		style = draw.Red
	case begins("Process ", "Environment ", "User ", "Would "):
		style = draw.Yellow
	case begins("Back ", "Steady ", "Resolved "), strings.Contains(line, "] Resolved "):
		style = draw.Green
	}
	return draw.Painter{Colour: colourful}.Paint(line, style)
}
