package metrics

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
)

// Counters are what a controller counted since it started. They are a controller.Sink, and
// safe for concurrent use. They survive a reload if its controller gets the same ones.
type Counters struct {
	mu       sync.Mutex
	revision uint64 // grows with each change
	interval time.Duration
	latest   time.Time     // when the last cycle ended, or the controller started
	took     time.Duration // the last cycle
	cycles   uint64
	early    uint64 // cycles between these

	durations    *histogram
	terminations map[ruleAnd]uint64 // by rule and status
	warnings     map[ruleAnd]uint64 // by rule and whether they were delivered
	detachments  map[enforce.Rule]uint64
	gpuTime      gpuTime
}

// ruleAnd is a rule and another label.
type ruleAnd struct {
	rule  enforce.Rule
	other string
}

// NewCounters returns Counters of a controller that starts now.
func NewCounters(now time.Time, interval time.Duration) *Counters {
	return &Counters{
		interval: interval, latest: now,
		durations:    newHistogram(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
		terminations: make(map[ruleAnd]uint64), warnings: make(map[ruleAnd]uint64), detachments: make(map[enforce.Rule]uint64),
		gpuTime: newGPUTime(),
	}
}

// Configure sets the time between two cycles, after a reload.
func (c *Counters) Configure(interval time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interval = interval
}

// Consume implements controller.Sink: it counts what came of reports.
func (c *Counters) Consume(_ *controller.Cycle, events []enforce.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range events {
		if events[i].Kind == enforce.EventOutcome {
			c.revision++
			c.countOutcomes(&events[i])
		}
	}
}

// countOutcomes counts an item because of several findings once, for the first of them.
func (c *Counters) countOutcomes(e *enforce.Event) {
	for i := range e.Outcomes {
		o := &e.Outcomes[i]
		status := o.Status
		if !status.Known() {
			status = enforce.StatusUnknown
		}
		switch {
		case o.PID != 0:
			c.terminations[ruleAnd{ruleOf(terminationBecause(e.Report, o)), string(status)}]++
		case status == enforce.StatusDetached:
			c.detachments[ruleOf(detachmentBecause(e.Report, o))]++
		}
	}
}

func terminationBecause(r *enforce.Report, o *enforce.Outcome) []string {
	for i := range r.Terminate {
		if r.Terminate[i].Process.PID == o.PID {
			return r.Terminate[i].Because
		}
	}
	return nil
}

func detachmentBecause(r *enforce.Report, o *enforce.Outcome) []string {
	for i := range r.Detach {
		if d := &r.Detach[i]; d.Device == o.Device && d.Environment.EID == o.EID {
			return d.Because
		}
	}
	return nil
}

// ruleOf is the rule of the first of some findings, with which their ids begin.
func ruleOf(because []string) enforce.Rule {
	if len(because) > 0 {
		name, _, _ := strings.Cut(because[0], "/")
		for _, rule := range rules() {
			if string(rule) == name {
				return rule
			}
		}
	}
	return otherRule
}

// Show counts a cycle when it has ended.
func (c *Counters) Show(cycle *controller.Cycle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision++
	for i := range cycle.Notified {
		d := &cycle.Notified[i]
		delivered := strconv.FormatBool(d.Err == nil && d.Terminals > 0)
		c.warnings[ruleAnd{ruleOf([]string{d.ID}), delivered}]++
	}
	if cycle.Stopped {
		return
	}
	c.cycles++
	c.early += uint64(max(cycle.Earlier, 0)) //nolint:gosec // it is not negative
	c.took, c.latest = cycle.Took, cycle.Start.Add(cycle.Took)
	c.durations.observe(cycle.Took.Seconds())
	c.gpuTime.take(cycle, 4*c.interval+2*cycle.Took)
}

// Revision grows with each change.
func (c *Counters) Revision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision
}

// stallSlack is how late the next cycle may be besides what Healthy allows for.
const stallSlack = 5 * time.Minute

// Healthy reports whether cycles advance: the last one ended not much longer ago than the
// next one takes to come.
func (c *Counters) Healthy(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interval == 0 || now.Sub(c.latest) <= 10*c.interval+2*c.took+stallSlack
}

// Ready reports whether there was a cycle, also one in which hosts failed.
func (c *Counters) Ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cycles > 0
}
