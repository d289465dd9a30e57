package enforcement

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/controller/wake"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// summary counts what happens, and says it once in a period: that the loop is alive, and
// how it is. A nil summary does nothing.
type summary struct {
	period time.Duration
	since  time.Time
	times  answerTimes

	cycles, begun, ended int
	outcomes             map[order.Status]int
	lost, back           int // of the HostLog, when the period began
}

// newSummary is nil if no summary is asked for.
func newSummary(period time.Duration, start time.Time) *summary {
	if period == 0 {
		return nil
	}
	return &summary{period: period, since: start, outcomes: make(map[order.Status]int)}
}

// count counts an event.
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
		render.Plural(s.cycles, "cycle"),
		fmt.Sprintf("%d of %s answer", cycle.Cluster.CountAnswered(), render.Plural(len(cycle.Cluster.Hosts), "host")),
		fmt.Sprintf("%d lost and %d back", hosts.Lost-s.lost, hosts.Back-s.back),
		fmt.Sprintf("%d findings begun, %d over, %d now", s.begun, s.ended, len(cycle.Plan.Findings)),
		s.actions(),
	}
	if host, took := s.times.slowest(); host != "" {
		parts = append(parts, fmt.Sprintf("slowest answer %s of %s", took.Round(time.Millisecond),
			text.Printable(string(host))))
	}
	write(fmt.Sprintf("Summary of %s: %s", text.FormatDuration(s.period), strings.Join(parts, "; ")))
	s.since = s.since.Add(cycle.Start.Sub(s.since).Truncate(s.period))
	s.cycles, s.begun, s.ended, s.lost, s.back = 0, 0, 0, hosts.Lost, hosts.Back
	clear(s.outcomes)
}

// actions counts what came of actions, by kind.
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

// timed is a link that measures how long hosts take for a snapshot.
func (s *summary) timed(link controller.Link) controller.Link {
	if s == nil {
		return link
	}
	return &timedLink{link, &s.times}
}

type timedLink struct {
	controller.Link
	times *answerTimes
}

// Snapshot implements controller.Link.
func (l *timedLink) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	begun := time.Now()
	s, err := l.Link.Snapshot(ctx, host)
	if err == nil {
		l.times.add(snapshot.Hostname(host.Name), time.Since(begun))
	}
	return s, err //nolint:wrapcheck // it is the link's
}

// Await implements wake.Link.
func (l *timedLink) Await(ctx context.Context, host remote.Host, done func(woke bool, err error)) {
	if events, ok := l.Link.(wake.Link); ok {
		events.Await(ctx, host, done)
	} else {
		go done(false, agent.ErrNoEvents)
	}
}

// answerTimes keeps the longest time for an answer. It is safe for concurrent use.
type answerTimes struct {
	mu   sync.Mutex
	host snapshot.Hostname
	took time.Duration
}

func (t *answerTimes) add(host snapshot.Hostname, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if took > t.took {
		t.host, t.took = host, took
	}
}

// slowest is the host that took longest since the last call; empty if none answered.
func (t *answerTimes) slowest() (snapshot.Hostname, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	host, took := t.host, t.took
	t.host, t.took = "", 0
	return host, took
}
