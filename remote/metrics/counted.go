package metrics

import (
	"maps"
	"slices"
	"strconv"

	"github.com/seed-3119e985/genv/remote/live"
)

// Text has what was counted, but for what belongs to users. Without enforcing there are no
// actions, and no series of them.
func (c *Counters) Text(enforcing bool) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var w Writer
	w.Gauge("genv_cycle_interval_seconds", "Time between the starts of two cycles; 0 for a single one.")
	w.Sample(c.interval.Seconds())
	if c.cycles > 0 {
		w.Gauge("genv_last_cycle_timestamp_seconds", "When the last cycle ended, in seconds since 1970.")
		w.Sample(float64(c.latest.UnixMilli()) / 1000)
	}
	w.histogram(c.durations, "genv_cycle_duration_seconds", "How long cycles took.")
	if enforcing {
		w.Counter("genv_early_cycles_total", "Cycles between two others, about hosts on which something happened.")
		w.Sample(float64(c.early))
	}
	if enforcing {
		c.writeActions(&w)
	}
	return w.Text()
}

// writeActions writes also what has not happened yet: Prometheus sees no increase in a
// series that begins with 1.
func (c *Counters) writeActions(w *Writer) {
	w.Counter("genv_terminations_total", "Processes that hosts were to end, by rule and by what came of it.", "rule", "status")
	for _, rule := range rules() {
		for _, status := range statuses() {
			w.Sample(float64(c.terminations[ruleAnd{rule, string(status)}]), string(rule), string(status))
		}
	}
	w.Counter("genv_detachments_total", "Devices that were detached, by rule.", "rule")
	for _, rule := range rules() {
		w.Sample(float64(c.detachments[rule]), string(rule))
	}
	w.Counter("genv_warnings_total", "Messages to users about findings, by rule and whether one of their terminals showed them.", "rule", "delivered")
	for _, rule := range rules() {
		for _, delivered := range []bool{true, false} {
			text := strconv.FormatBool(delivered)
			w.Sample(float64(c.warnings[ruleAnd{rule, text}]), string(rule), text)
		}
	}
}

// Users has what users have on the hosts that answered, and what was counted of them.
func (c *Counters) Users(users []live.User) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	labels, devices := c.gpuTime.labelled(users)
	var w Writer
	w.Gauge("genv_user_devices", "GPUs that are attached to the user's environments, on hosts that answered.", "user")
	for i, label := range labels {
		w.Sample(float64(devices[i].Attached), label)
	}
	w.Gauge("genv_user_idle_devices", "GPUs of genv_user_devices that the user's processes don't use, or that compute nothing.", "user")
	for i, label := range labels {
		w.Sample(float64(devices[i].Idle), label)
	}
	w.Counter("genv_user_gpu_seconds_total", "Time for which GPUs were attached to the user's environments, summed over the GPUs.", "user")
	for _, label := range slices.Sorted(maps.Keys(c.gpuTime.seconds)) {
		w.Sample(c.gpuTime.seconds[label], label)
	}
	return w.Text()
}
