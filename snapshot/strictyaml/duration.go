package strictyaml

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Duration is a time from low to high with its unit, as 10s, 15m, 1h30m or 7d.
// A day is 24 hours, whatever the clocks do.
func (n *Node) Duration(low, high time.Duration) time.Duration {
	if n.kind == number && n.text == "0" && low <= 0 {
		return 0
	}
	if n.kind == number {
		n.Failf("%sa duration has a unit: write %ss, %sm or %sh", n.label(), n.text, n.text, n.text)
		return 0
	}
	if !n.want(word, "10s") {
		return 0
	}
	d, ok := parseDuration(n.text)
	if !ok {
		n.Failf("%s%q is not a duration; write it as 10s, 15m, 1h30m or 7d", n.label(), n.text)
		return 0
	}
	if d < low || d > high {
		n.Failf("%s%s is not from %s to %s", n.label(), n.text, FormatDuration(low), FormatDuration(high))
		return 0
	}
	return d
}

// parseDuration reads days and what time.ParseDuration knows behind them.
func parseDuration(text string) (time.Duration, bool) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		d, err := time.ParseDuration(text)
		return d, err == nil
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, false
	}
	d := time.Duration(n) * day
	if rest == "" {
		return d, true
	}
	more, err := time.ParseDuration(rest)
	return d + more, err == nil && more >= 0 && more < math.MaxInt64-d
}

// ParseDuration reads a duration as files have it, such as 90s, 2h30m or 7d.
func ParseDuration(text string) (time.Duration, bool) { return parseDuration(text) }

// FormatDuration is a duration as it is written in a file: 10s, 15m, 1h30m, 7d.
func FormatDuration(d time.Duration) string {
	if d >= day && d%time.Second == 0 {
		rest := ""
		if d%day != 0 {
			rest = FormatDuration(d % day)
		}
		return fmt.Sprintf("%dd%s", d/day, rest)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
