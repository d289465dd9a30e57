package report

import (
	"math"
	"strings"

	"github.com/seed-3119e985/genv/remote/usage/report"
)

// fairShareColumns are those of a table that compares users with an equal share.
func fairShareColumns(d *report.Document) []column {
	return []column{
		{"USER", 0, func(r *report.Row) string { return keyOf(d.By, r.Key) }},
		{"GPU-HOURS", 0, func(r *report.Row) string { return report.Hours(r.Attached) }},
		{"SHARE", 1, func(r *report.Row) string { return report.Percent(r.Share) }},
		{"OF-EQUAL", 3, func(r *report.Row) string { return shown(r.OfEqual, report.Percent) }},
		{"OVER-OR-UNDER", 2, func(r *report.Row) string { return shown(r.OverEqual, report.Signed) }},
	}
}

// mostShares is the end of the scale of bars, in equal shares.
const mostShares = 5

// balanceOf is a bar from the equal share, which is a line, to what the user had. One that is
// longer than the scale ends with an ellipsis.
func balanceOf(r *report.Row, d *report.Document, width int, colourful bool) string {
	if r.OfEqual == nil {
		return ""
	}
	end := 2.0
	for i := range d.Rows {
		if of := d.Rows[i].OfEqual; of != nil {
			end = min(max(end, *of), mostShares)
		}
	}
	at := func(shares float64) int { return int(math.Round(min(shares, end) / end * float64(width-1))) }
	equal, own := at(1), at(*r.OfEqual)
	before, bar, after, colour := strings.Repeat(" ", min(own, equal)), strings.Repeat("░", max(equal-own, 0)), "", "\x1b[32m"
	if own > equal {
		bar, after, colour = "", strings.Repeat("█", own-equal), "\x1b[33m"
		if *r.OfEqual > end {
			after = strings.Repeat("█", own-equal-1) + "…"
		}
	}
	if !colourful {
		return before + bar + "│" + after
	}
	if own > equal {
		return before + "│" + colour + after + "\x1b[0m"
	}
	return before + colour + bar + "\x1b[0m│"
}
