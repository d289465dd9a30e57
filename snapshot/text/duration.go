package text

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// maxSeconds is the largest number of seconds without a unit: more do not fit
// into a time.Duration.
const maxSeconds = 1e9

// ParseDuration reads a duration that is not negative, as in flags and policy files: 10
// (seconds), 500ms, 10s, 15m, 1h30m, 7d or 1d12h. A day is 24 hours. Its error says how
// to write one.
func ParseDuration(s string) (time.Duration, error) {
	d, ok := parseSeconds(s)
	if !ok {
		d, ok = parseUnits(s)
	}
	if !ok {
		return 0, fmt.Errorf("%q is not a duration; write it as 10s, 500ms, 15m, 1h30m or 7d", s)
	}
	return d, nil
}

// parseSeconds reads a decimal number without a unit.
func parseSeconds(s string) (time.Duration, bool) {
	if strings.Trim(s, "0123456789.") != "" {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(s, 64)
	return time.Duration(seconds * float64(time.Second)), err == nil && seconds < maxSeconds
}

// parseUnits reads days, followed by a duration in the syntax of time.ParseDuration.
func parseUnits(s string) (time.Duration, bool) {
	days, rest, ok := strings.Cut(s, "d")
	if !ok {
		days, rest = "0", s
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil || strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
		return 0, false
	}
	d := time.Duration(n) * day
	if ok && rest == "" {
		return d, true
	}
	more, err := time.ParseDuration(rest)
	return d + more, err == nil && more < math.MaxInt64-d
}

// FormatDuration writes a duration without parts that are zero: 10s, 15m, 1h30m, 7d.
func FormatDuration(d time.Duration) string {
	if d >= day && d%time.Second == 0 {
		days := fmt.Sprintf("%dd", d/day)
		if d%day == 0 {
			return days
		}
		return days + FormatDuration(d%day)
	}
	s := d.String()
	if minutes, ok := strings.CutSuffix(s, "m0s"); ok {
		s = minutes + "m"
	}
	if hours, ok := strings.CutSuffix(s, "h0m"); ok {
		s = hours + "h"
	}
	return s
}

// ShortDuration is FormatDuration of a duration rounded to minutes, or to seconds
// below a minute.
func ShortDuration(d time.Duration) string {
	if seconds := d.Round(time.Second); seconds < time.Minute {
		return FormatDuration(seconds)
	}
	return FormatDuration(d.Round(time.Minute))
}
