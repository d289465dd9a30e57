package metrics

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
)

// Counters count since the controller's start, across reloads. They are a controller.Sink, safe for concurrent use.
type Counters struct {
	mu       sync.Mutex
	interval time.Duration
	latest   time.Time     // end of the last cycle, or start of the controller
	took     time.Duration // the last cycle
	cycles   uint64
	early    uint64 // cycles in between

	durations    *histogram
	terminations map[[2]string]uint64 // by rule and status
	warnings     map[[2]string]uint64 // by rule and whether delivered
	detachments  map[enforce.Rule]uint64

	names    *usage.Names       // bounded, as each name stays in Prometheus for weeks
	seconds  map[string]float64 // of attached GPUs, by label
	holdings map[snapshot.Hostname]holding
}

// NewCounters starts now.
func NewCounters(now time.Time, interval time.Duration) *Counters {
	return &Counters{
		interval: interval, latest: now,
		durations:    newHistogram(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
		terminations: make(map[[2]string]uint64), warnings: make(map[[2]string]uint64),
		detachments: make(map[enforce.Rule]uint64),
		names:       usage.NewNames(), seconds: make(map[string]float64),
	}
}

// Configure sets the interval after a reload.
func (c *Counters) Configure(interval time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interval = interval
}

// Consume implements controller.Sink.
func (c *Counters) Consume(round *controller.Round, events []enforce.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range events {
		if events[i].Kind == enforce.EventOutcome {
			c.countOutcomes(&events[i])
		}
	}
	if round.Ended {
		c.countCycle(round)
	}
}

// countOutcomes counts each item for its first finding.
func (c *Counters) countOutcomes(e *enforce.Event) {
	for i := range e.Outcomes {
		o := &e.Outcomes[i]
		status := o.Status
		if !status.Known() {
			status = order.StatusUnknown
		}
		var because []string
		if t, d := e.Order.ItemOf(*o); t != nil {
			because = t.Because
		} else if d != nil {
			because = d.Because
		}
		switch {
		case o.PID != 0:
			c.terminations[[2]string{string(ruleOf(because)), string(status)}]++
		case status == order.StatusDetached:
			c.detachments[ruleOf(because)]++
		}
	}
}

// ruleOf is the first finding's rule, with which its ID starts.
func ruleOf(because []string) enforce.Rule {
	name, _, _ := strings.Cut(strings.Join(because[:min(1, len(because))], ""), "/")
	if rule := enforce.Rule(name); slices.Contains(rules(), rule) {
		return rule
	}
	return otherRule
}

func (c *Counters) countCycle(round *controller.Round) {
	for i := range round.Notified {
		d := &round.Notified[i]
		delivered := strconv.FormatBool(d.Err == nil && d.Terminals > 0)
		c.warnings[[2]string{string(ruleOf([]string{d.ID})), delivered}]++
	}
	if round.Stopped {
		return
	}
	c.cycles++
	c.early += uint64(max(round.Earlier, 0)) //nolint:gosec // it is not negative
	c.took, c.latest = round.Took, round.Start.Add(round.Took)
	c.durations.observe(round.Took.Seconds())
	c.countGPUTime(round, 4*c.interval+2*round.Took)
}

// Healthy says whether cycles advance.
func (c *Counters) Healthy(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interval == 0 || now.Sub(c.latest) <= 10*c.interval+2*c.took+5*time.Minute
}

// Ready reports whether there was a cycle.
func (c *Counters) Ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cycles > 0
}

// Text has all counts except users'; actions only when enforcing.
func (c *Counters) Text(enforcing bool) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var w Writer
	w.Value("genv_cycle_interval_seconds", "Time between the starts of two cycles; 0 for a single one.",
		c.interval.Seconds())
	if c.cycles > 0 {
		w.Value("genv_last_cycle_timestamp_seconds", "When the last cycle ended, in seconds since 1970.",
			float64(c.latest.UnixMilli())/1000)
	}
	w.histogram(c.durations, "genv_cycle_duration_seconds", "How long cycles took.")
	if enforcing {
		w.Counter("genv_early_cycles_total", "Cycles between two others, about hosts on which something happened.")
		w.Sample(float64(c.early))
		c.writeActions(&w)
	}
	return w.Text()
}

// writeActions writes zeros, as Prometheus sees no increase in a series that starts with 1.
func (c *Counters) writeActions(w *Writer) {
	w.Counter("genv_terminations_total", "Processes that hosts were to end, by rule and by what came of it.", "rule",
		"status")
	sampleRules(w, c.terminations, order.OfProcesses())
	w.Counter("genv_detachments_total", "GPUs that were detached, by rule.", "rule")
	for _, rule := range rules() {
		w.Sample(float64(c.detachments[rule]), string(rule))
	}
	w.Counter("genv_warnings_total", "Messages to users about findings, by rule and whether one of their terminals "+
		"showed them.", "rule", "delivered")
	sampleRules(w, c.warnings, []string{"true", "false"})
}

func sampleRules[T ~string](w *Writer, counts map[[2]string]uint64, values []T) {
	for _, rule := range rules() {
		for _, value := range values {
			labels := [2]string{string(rule), string(value)}
			w.Sample(float64(counts[labels]), labels[:]...)
		}
	}
}

var userFamilies = []family{
	{"genv_user_devices", "user", "GPUs that are attached to the user's environments, on hosts that answered."},
	{"genv_user_idle_devices", "user", "GPUs of genv_user_devices that the user's processes don't use, or that " +
		"compute nothing."},
}

// Users has users' GPUs on hosts that answered, and their counts. Users who never attached any have no series.
func (c *Counters) Users(users []live.FleetUser) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	sums := make(map[string]live.FleetUser)
	_, full := c.seconds[Other]
	for i := range users {
		label, counted := c.names.Label(users[i].Name)
		if !counted && full {
			label = Other
		}
		if counted || full {
			sum := sums[label]
			sum.Attached, sum.Idle = sum.Attached+users[i].Attached, sum.Idle+users[i].Idle
			sums[label] = sum
		}
	}
	g := begin(userFamilies, "", "")
	for _, label := range slices.Sorted(maps.Keys(sums)) {
		g.add("genv_user_devices", float64(sums[label].Attached), label)
		g.add("genv_user_idle_devices", float64(sums[label].Idle), label)
	}
	w := Writer{text: g.text()}
	w.Counter("genv_user_gpu_seconds_total", "Time for which GPUs were attached to the user's environments, summed "+
		"over the GPUs.", "user")
	for _, label := range slices.Sorted(maps.Keys(c.seconds)) {
		w.Sample(c.seconds[label], label)
	}
	return w.Text()
}

// Other is the label of all users beyond the bounds.
const Other = string(usage.Other)

type holding struct {
	at       time.Time
	snapshot *snapshot.Snapshot
	devices  map[string]int // by label
}

// countGPUTime counts the time since each host's last answer, unless it exceeds maxGap, for what was attached.
func (c *Counters) countGPUTime(round *controller.Round, maxGap time.Duration) {
	holdings := make(map[snapshot.Hostname]holding, len(round.Cluster.Hosts))
	for i := range round.Cluster.Hosts {
		h := &round.Cluster.Hosts[i]
		last, known := c.holdings[h.Name]
		if h.Err != nil || h.Snapshot == nil {
			if known {
				holdings[h.Name] = last
			}
			continue
		}
		if gap := round.Start.Sub(last.at); known && gap > 0 && gap <= maxGap {
			for label, count := range last.devices {
				c.seconds[label] += gap.Seconds() * float64(count)
			}
		}
		if h.Snapshot != last.snapshot { // an unchanged host answers with the same one
			last.snapshot, last.devices = h.Snapshot, c.names.Attached(h.Name, h.Snapshot)
			for label := range last.devices {
				c.seconds[label] += 0
			}
		}
		last.at = round.Start
		holdings[h.Name] = last
	}
	c.holdings = holdings
}
