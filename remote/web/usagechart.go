package web

import (
	"fmt"
	"math"

	"github.com/seed-3119e985/genv/remote/usage/report"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// usageCharts are the charts of a report of usage.
type usageCharts struct {
	By      string
	Columns *columns
	Bars    *bars
}

// usageChartsOf are a report's charts. days is the same time by day; nil if d is that itself.
func usageChartsOf(d, days *report.Document) usageCharts {
	charts := usageCharts{By: d.By}
	if d.By == report.ByDay {
		days = d
	} else if len(d.Rows) > 0 {
		charts.Bars = barsOf(d.Rows)
	}
	if days != nil && len(days.Rows) > 0 {
		charts.Columns = columnsOf(days.Rows)
	}
	return charts
}

// part is a part of a bar or column: its class is its colour.
type part struct {
	Class, Label     string
	X, Y, Width, Len float64
}

// partsOf divides a row: what its devices were doing. Time without an attachment is not in it.
func partsOf(r *report.Row) []part {
	used := max(r.Attached-r.Idle, 0)
	computing := min(r.Computing, used)
	var parts []part
	for _, p := range []struct {
		class   string
		seconds int64
	}{{"computing", computing}, {"used", used - computing}, {"idle", r.Idle}, {"unknown", r.Unknown}} {
		if p.seconds > 0 {
			parts = append(parts, part{Class: p.class, Len: float64(p.seconds), Label: fmt.Sprintf("%s: %s h", p.class, report.Hours(p.seconds))})
		}
	}
	return parts
}

// bars is a chart with a line for each row.
type bars struct {
	Height float64
	Lines  []barLine
}

type barLine struct {
	Key, Value string
	Y          float64
	End        float64 // of the bar
	Parts      []part
}

// The sizes of the charts, in pixels.
const (
	maxLines   = 40
	lineHeight = 26
	maxBarKey  = 20 // characters
	barLeft    = 150
	barWidth   = 250 // a telephone shows all of it
	chartLeft  = 60
	chartWidth = 780
	chartHigh  = 180
)

func barsOf(rows []report.Row) *bars {
	rows = rows[:min(len(rows), maxLines)]
	most := 1.0
	for i := range rows {
		most = max(most, float64(rows[i].Attached+rows[i].Unknown))
	}
	b := &bars{Height: float64(len(rows)) * lineHeight}
	for i := range rows {
		bar := barLine{
			Key: text.Shorten(usageName(rows[i].Key), maxBarKey), Value: report.Hours(rows[i].Attached), Y: float64(i) * lineHeight,
			Parts: partsOf(&rows[i]), End: barLeft,
		}
		for j := range bar.Parts {
			p := &bar.Parts[j]
			p.X, p.Y, p.Width = bar.End, bar.Y+4, p.Len/most*barWidth
			bar.End += p.Width
		}
		b.Lines = append(b.Lines, bar)
	}
	return b
}

// columns is a chart with a column for each day.
type columns struct {
	Days  []dayColumn
	Marks []mark
}

type dayColumn struct {
	Label string // empty for days without room for one
	X     float64
	Parts []part
}

type mark struct {
	Y     float64
	Label string
}

func columnsOf(rows []report.Row) *columns {
	most := 1.0
	for i := range rows {
		most = max(most, float64(rows[i].Attached+rows[i].Unknown)/3600)
	}
	step := niceStep(most)
	top := math.Ceil(most/step) * step
	c := new(columns)
	for at := 0.0; at <= top; at += step {
		c.Marks = append(c.Marks, mark{chartHigh * (1 - at/top), fmt.Sprint(at)})
	}
	width := chartWidth / float64(len(rows))
	every := (len(rows)*60 + chartWidth - 1) / chartWidth // each label needs 60
	for i := range rows {
		day := dayColumn{X: chartLeft + (float64(i)+0.5)*width, Parts: partsOf(&rows[i])}
		if i%every == 0 && len(rows[i].Key) > 5 {
			day.Label = rows[i].Key[5:] // without the year
		}
		y := float64(chartHigh)
		for j := range day.Parts {
			p := &day.Parts[j]
			p.Len = p.Len / 3600 / top * chartHigh
			y -= p.Len
			p.X, p.Y, p.Width = chartLeft+float64(i)*width+width*0.1, y, width*0.8
			p.Label = rows[i].Key + ", " + p.Label
		}
		c.Days = append(c.Days, day)
	}
	return c
}

// niceStep divides a scale into about five steps of 1, 2 or 5 and zeros.
func niceStep(most float64) float64 {
	step := math.Pow(10, math.Floor(math.Log10(most/5)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if most/(step*factor) <= 6 {
			return max(step*factor, 1)
		}
	}
	return step * 10
}
