package enforcement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// summary counts what happens, and says it once in a period: that the loop is alive, and
// how it is. A nil summary does nothing.
type summary struct {
	period time.Duration
	since  time.Time

	slowest snapshot.Hostname // the host that took longest to answer in this period; empty if none answered
	took    time.Duration

	cycles, begun, ended int
	outcomes             map[order.OutcomeStatus]int
	lost, back           int // of the HostLog, when the period began
}

func newSummary(period time.Duration, start time.Time) *summary {
	if period == 0 {
		return nil
	}
	return &summary{period: period, since: start, outcomes: make(map[order.OutcomeStatus]int)}
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

// cycle counts a cycle, and ends the period when it is time.
func (s *summary) cycle(cycle *controller.Cycle, hosts *render.HostLog, write func(string)) {
	if s == nil || cycle.Stopped {
		return
	}
	s.cycles++
	if cycle.Start.Sub(s.since) < s.period {
		return
	}
	parts := []string{
		text.Plural(s.cycles, "cycle"),
		fmt.Sprintf("%d of %s answer", cycle.Cluster.CountAnswered(), text.Plural(len(cycle.Cluster.Hosts), "host")),
		fmt.Sprintf("%d lost and %d back", hosts.Lost-s.lost, hosts.Back-s.back),
		fmt.Sprintf("%d findings begun, %d over, %d now", s.begun, s.ended, len(cycle.Plan.Findings)),
		s.actions(),
	}
	if s.slowest != "" {
		parts = append(parts, fmt.Sprintf("slowest answer %s of %s", s.took.Round(time.Millisecond),
			text.Printable(string(s.slowest))))
	}
	if unable := unableHosts(cycle); unable != "" {
		parts = append(parts, unable)
	}
	write(fmt.Sprintf("Summary of %s: %s", text.FormatDuration(s.period), strings.Join(parts, "; ")))
	s.since = s.since.Add(cycle.Start.Sub(s.since).Truncate(s.period))
	s.cycles, s.begun, s.ended, s.lost, s.back = 0, 0, 0, hosts.Lost, hosts.Back
	s.slowest, s.took = "", 0
	clear(s.outcomes)
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

// measure looks for the host that took longest to answer.
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
