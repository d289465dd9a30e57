package enforcement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Remark describes an outcome; empty if it is as ordered.
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

// remarkOfRecord is empty unless the reason is new.
func remarkOfRecord(round *controller.Round) string {
	switch {
	case !round.RecordChanged || round.Unrecorded == nil:
		return ""
	case len(round.Results) == 0 && len(round.Plan.Orders) > 0:
		return fmt.Sprintf("No action taken, since it could not be recorded: %v. Make room there, or run with "+
			"--act-unrecorded.", round.Unrecorded)
	}
	return fmt.Sprintf("The record is incomplete: %v. What is missing is written as soon as there is room.",
		round.Unrecorded)
}

func failuresOfCycle(round *controller.Round) []remote.Failure {
	failures := render.FailuresIn(round.Cluster)
	for _, a := range round.Results {
		known := slices.ContainsFunc(failures, func(f remote.Failure) bool { return f.Host == string(a.Host) })
		if a.Err != nil && !known {
			failures = append(failures, remote.FailureOf(string(a.Host), a.Err))
		}
	}
	unable := round.Unable()
	for _, host := range slices.Sorted(maps.Keys(unable)) {
		err := remote.Errorf(remote.CommandFailed, "nothing can be ended there: %s", unable[host])
		err.Next = "run `sudo genv doctor` on the host"
		failures = append(failures, remote.FailureOf(string(host), err))
	}
	return failures
}

// unableHosts is empty if something can be ended on all hosts.
func unableHosts(round *controller.Round) string {
	names := texts(slices.Sorted(maps.Keys(round.Unable())))
	if len(names) == 0 {
		return ""
	}
	names[0] = cmp.Or(names[0], "this machine") // it has no name
	return "nothing can be ended on " + render.Hosts(names)
}

// printHeld prints what a safety limit holds back, at first and then as often as repeats allows.
func (w *cycleWriter) printHeld(e *enforce.Event, now time.Time) {
	if again, ok := w.held.admit(e.Held.Whom(), now); ok {
		w.remark(e.Text + ". If it is intended, raise `limits:` in the policy." + again)
	}
}

func (w *cycleWriter) printReleased(round *controller.Round, now time.Time) {
	if len(w.held) == 0 || round.Stopped {
		return
	}
	left := make(map[string]bool)
	for _, list := range [][]safety.Held{round.Plan.HeldHosts, round.Plan.HeldUsers} {
		for i := range list {
			left[list[i].Whom()] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.held)) {
		if left[key] {
			continue
		}
		w.remark(fmt.Sprintf("No safety limit keeps actions back any more %s, after %s.", key,
			text.ShortDuration(now.Sub(w.held[key].first))))
		delete(w.held, key)
	}
}

// exit ignores what the end of the loop cancelled.
func (l *loop) exit(round *controller.Round, ends bool) error {
	failures := failuresOfCycle(round)
	if ends {
		failures = slices.DeleteFunc(failures, func(f remote.Failure) bool { return f.Class == remote.Cancelled })
	}
	if err := command.FleetExit(failures, round.Cluster.CountAnswered()); err != nil {
		return err
	}
	switch {
	case round.Unrecorded != nil:
		return &command.ExitError{Code: command.ExitUnrecorded}
	case round.Plan.Held(), round.Hold != nil:
		return &command.ExitError{Code: command.ExitHeld}
	case !l.options.loops() && slices.ContainsFunc(round.Results, func(r controller.OrderResult) bool {
		return r.Undone(order.StatusFailed, order.StatusSurvived) != ""
	}):
		return &command.ExitError{Code: command.ExitSomeFailed}
	case l.options.ExitCode && l.options.DryRun && len(round.Plan.Orders) > 0:
		return &command.ExitError{Code: command.ExitWork}
	}
	return nil
}

// repeats lets through what is new, what has been repeated for an hour, then for two more, four, ….
type repeats[K comparable] map[K]*repeat

type repeat struct {
	first, last, next time.Time
	wait              time.Duration // until the one after next
	times             int
}

const (
	repeatAfter = time.Hour
	repeatMost  = 24 * time.Hour
	maxRepeats  = 1 << 16 // if there are more, all are forgotten
)

func (r repeats[K]) tidy(now time.Time) {
	maps.DeleteFunc(r, func(_ K, e *repeat) bool { return now.Sub(e.last) > repeatAfter })
}

// admit returns what to append to a line, if it may be printed.
func (r *repeats[K]) admit(what K, now time.Time) (remark string, ok bool) {
	e := (*r)[what]
	if e == nil {
		if *r == nil || len(*r) >= maxRepeats {
			*r = make(map[K]*repeat)
		}
		(*r)[what] = &repeat{first: now, last: now, next: now.Add(repeatAfter), wait: 2 * repeatAfter, times: 1}
		return "", true
	}
	e.last = now
	e.times++
	if now.Before(e.next) {
		return "", false
	}
	e.next, e.wait = now.Add(e.wait), min(2*e.wait, repeatMost)
	return fmt.Sprintf(" (%d times within %s)", e.times, text.ShortDuration(now.Sub(e.first))), true
}

// summary counts events, and prints a line per period. A nil summary does nothing.
type summary struct {
	period time.Duration
	since  time.Time

	slowest snapshot.Hostname // of this period; empty if none answered
	took    time.Duration

	cycles, begun, ended int
	outcomes             map[order.OutcomeStatus]int
	lost, back           int // of the HostLog at the start of the period
}

func (s *summary) count(e *enforce.Event) {
	if s == nil {
		return
	}
	switch e.Kind {
	case enforce.EventNew:
		if !e.Resumed {
			s.begun++
		}
	case enforce.EventOver:
		s.ended++
	case enforce.EventOutcome:
		for _, o := range e.Outcomes {
			s.outcomes[o.Status]++
		}
	}
}

func (s *summary) round(round *controller.Round, hosts *render.HostLog, write func(string)) {
	if s == nil || round.Stopped {
		return
	}
	s.cycles++
	if round.Start.Sub(s.since) < s.period {
		return
	}
	parts := []string{
		text.Plural(s.cycles, "cycle"),
		fmt.Sprintf("%d of %s answer", round.Cluster.CountAnswered(), text.Plural(len(round.Cluster.Hosts), "host")),
		fmt.Sprintf("%d lost and %d back", hosts.Lost-s.lost, hosts.Back-s.back),
		fmt.Sprintf("%d findings begun, %d over, %d now", s.begun, s.ended, len(round.Plan.Findings)),
		s.actions(),
	}
	if s.slowest != "" {
		parts = append(parts, fmt.Sprintf("slowest answer %s of %s", s.took.Round(time.Millisecond),
			text.Printable(string(s.slowest))))
	}
	if unable := unableHosts(round); unable != "" {
		parts = append(parts, unable)
	}
	write(fmt.Sprintf("Summary of %s: %s", text.FormatDuration(s.period), strings.Join(parts, "; ")))
	s.since = s.since.Add(round.Start.Sub(s.since).Truncate(s.period))
	clear(s.outcomes)
	*s = summary{period: s.period, since: s.since, outcomes: s.outcomes, lost: hosts.Lost, back: hosts.Back}
}

func (s *summary) actions() string {
	var counts []string
	for _, status := range slices.Sorted(maps.Keys(s.outcomes)) {
		counts = append(counts, fmt.Sprintf("%d %s", s.outcomes[status], status))
	}
	if len(counts) == 0 {
		return "no actions"
	}
	return "actions: " + strings.Join(counts, ", ")
}

func (s *summary) measure(cluster snapshot.Cluster) {
	if s == nil {
		return
	}
	for i := range cluster.Hosts {
		if h := &cluster.Hosts[i]; h.IsNew && h.Err == nil && h.Took > s.took {
			s.slowest, s.took = h.Name, h.Took
		}
	}
}
