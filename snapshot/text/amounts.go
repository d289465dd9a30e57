package text

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// memoryUnits has the longest suffixes first.
var memoryUnits = []struct {
	suffix string
	bytes  int64
}{
	{"ki", 1 << 10},
	{"mi", 1 << 20},
	{"gi", 1 << 30},
	{"b", 1},
	{"k", 1e3},
	{"m", 1e6},
	{"g", 1e9},
}

// ParseMemory parses whole bytes, or with a unit b, k, m, g (1000s) or ki, mi, gi (1024s) in any case. Its error says
// how to write one.
func ParseMemory(s string) (bytes int64, err error) {
	digits, factor := strings.ToLower(s), int64(1)
	for _, unit := range memoryUnits {
		if rest, ok := strings.CutSuffix(digits, unit.suffix); ok {
			digits, factor = rest, unit.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is not an amount of memory: write a whole number with a unit of b, k, m, g, ki, mi "+
			"or gi, such as 4g", s)
	}
	if int64(n) > math.MaxInt64/factor {
		return 0, fmt.Errorf("%q is more memory than can be counted", s)
	}
	return int64(n) * factor, nil
}

// GiB formats bytes in units of 2^30 for people: 61.2 GiB, 0.005 GiB.
func GiB(bytes int64) string {
	if bytes > 0 && bytes < 1<<30/10 {
		return fmt.Sprintf("%.3f GiB", max(float64(bytes)/(1<<30), 0.001))
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}

// CapAmount formats an amount of "gpus", "memory" (bytes), "environments" or "gpu-hours" (seconds) for people.
func CapAmount(counts string, n int64) string {
	switch counts {
	case "memory":
		return GiB(n) + " of GPU memory"
	case "environments":
		return Plural(int(n), "environment")
	case "gpu-hours":
		return fmt.Sprintf("%.1f GPU hours", float64(n)/3600)
	}
	return Plural(int(n), "GPU")
}

// UsedGiB formats used and total memory for a column of GiB: 61.2/80. nil is unknown.
func UsedGiB(used, total *int64) string {
	words := [2]string{"?", "?"}
	if used != nil {
		words[0] = fmt.Sprintf("%.1f", float64(*used)/(1<<30))
	}
	if total != nil {
		words[1] = fmt.Sprintf("%.0f", float64(*total)/(1<<30))
	}
	return words[0] + "/" + words[1]
}

// Megabytes formats memory in whole units of 1,000,000 bytes, rounded down, as genv 1.4.3 does: 4000m.
func Megabytes(bytes int64) string { return fmt.Sprintf("%dm", bytes/1e6) }

const day = 24 * time.Hour

// ParseDuration parses a duration that isn't negative, for flags and policies: 10 (seconds), 500ms, 10s, 15m, 1h30m, 7d
// or 1d12h. A day has 24 hours. Its error says how to write one.
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

// parseSeconds parses a decimal number without a unit.
func parseSeconds(s string) (time.Duration, bool) {
	const maxSeconds = 1e9 // more do not fit into a time.Duration
	if strings.Trim(s, "0123456789.") != "" {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(s, 64)
	return time.Duration(seconds * float64(time.Second)), err == nil && seconds < maxSeconds
}

// parseUnits parses days, followed by the syntax of time.ParseDuration.
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

// FormatDuration omits parts that are zero: 10s, 15m, 1h30m, 7d.
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

// ShortDuration is FormatDuration rounded to minutes, or to seconds below a minute.
func ShortDuration(d time.Duration) string {
	if seconds := d.Round(time.Second); seconds < time.Minute {
		return FormatDuration(seconds)
	}
	return FormatDuration(d.Round(time.Minute))
}

// ParseIndices parses device indices separated by commas: 0 or 0,2.
func ParseIndices[Index ~int](list string) ([]Index, error) {
	var indices []Index
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseUint(word, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is not the index of a GPU", word)
		}
		indices = append(indices, Index(n))
	}
	return indices, nil
}

// JoinIndices joins device indices by commas, as in CUDA_VISIBLE_DEVICES and genv 1.4.3.
func JoinIndices[Index ~int](indices []Index) string {
	words := make([]string, len(indices))
	for i, index := range indices {
		words[i] = strconv.Itoa(int(index))
	}
	return strings.Join(words, ",")
}

// Plural is a number with its noun: "1 host", "2 hosts" or "2 processes".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
