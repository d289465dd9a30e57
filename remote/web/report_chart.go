package web

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
)

// chart stacks GPU hours by day. Widths are in per cent, to fit every screen; heights are in pixels.
type chart struct {
	By, Unit string       // day, or month for long periods
	Lines    []chartLabel // grid lines, with their hours
	Columns  []chartColumn
	Series   []chartPart // without times
	Idle     bool        // some of it was idle
	Unknown  bool        // some of it is unknown
}

type chartLabel struct {
	X, Y float64
	Text string
}

type chartColumn struct {
	Date, Label      string // Label is empty if there is no room
	X, Middle, Width float64
	Parts            []chartPart // per series
}

type chartPart struct {
	Number                    int    // of the colour
	Key                       string // of the row
	Used, Idle, Unknown       int64  // seconds
	UsedAt, IdleAt, UnknownAt template.HTMLAttr
}

const (
	chartTop     = 14.0  // top line
	chartHeight  = 200.0 // from the line of 0 to the top line
	chartColours = 7     // plus one for all others
	chartLabels  = 5     // that fit on a phone
	chartMaxDays = 100   // columns are months beyond this
)

func newChart(d *usage.Report) *chart {
	keys, days := d.Days.Largest(chartColours)
	c := &chart{By: d.By, Unit: "day"}
	dates, length := datesOf(d), len(time.DateOnly)
	if len(dates) > chartMaxDays {
		c.Unit, length = "month", len("2026-11")
	}
	for i, key := range keys {
		if key == usage.Others {
			i = chartColours
		}
		c.Series = append(c.Series, chartPart{Number: i, Key: key})
	}
	for _, date := range dates {
		if last := len(c.Columns) - 1; last < 0 || c.Columns[last].Date != date[:length] {
			c.Columns = append(c.Columns, chartColumn{Date: date[:length], Parts: slices.Clone(c.Series)})
		}
		for i := range c.Series {
			part := &c.Columns[len(c.Columns)-1].Parts[i]
			a := days[part.Key][date]
			part.Used += a.Used
			part.Idle += a.Idle
			part.Unknown += a.Unknown + max(0, a.Attached-a.Used-a.Idle) // attached, but its processes are unknown
		}
	}
	most := int64(0)
	for i := range c.Columns {
		most = max(most, c.Columns[i].total())
	}
	if most == 0 {
		return nil
	}
	c.draw(float64(most))
	return c
}

func datesOf(d *usage.Report) (dates []string) {
	in := d.Since.Location()
	first := usage.DayOf(max(d.Since.Unix(), d.Begun.Unix()), in)
	for day := first; day < d.Until.Unix(); day = usage.NextDay(day, in) {
		dates = append(dates, time.Unix(day, 0).In(in).Format(time.DateOnly))
	}
	return dates
}

func (c *chartColumn) total() (sum int64) {
	for i := range c.Parts {
		sum += c.Parts[i].Used + c.Parts[i].Idle + c.Parts[i].Unknown
	}
	return sum
}

// draw places everything. most is the highest column's seconds.
func (c *chart) draw(most float64) {
	step := stepOf(most / 3600)
	top := math.Ceil(most/3600/step) * step
	for hours := 0.0; hours <= top+step/2; hours += step {
		y := chartTop + chartHeight*(1-hours/top)
		c.Lines = append(c.Lines, chartLabel{0, y, strconv.FormatFloat(hours, 'g', 6, 64)})
	}
	every, width := (len(c.Columns)+chartLabels-1)/chartLabels, 100/float64(len(c.Columns))
	for i := range c.Columns {
		column := &c.Columns[i]
		column.X, column.Width = (float64(i)+0.1)*width, 0.8*width
		column.Middle = (float64(i) + 0.5) * width
		if i%every == 0 {
			column.Label = shortDate(column.Date)
		}
		y := chartTop + chartHeight
		place := func(seconds int64) template.HTMLAttr {
			height := chartHeight * float64(seconds) / 3600 / top
			y -= height
			return template.HTMLAttr(fmt.Sprintf(`y="%.1f" height="%.1f"`, y, height)) //nolint:gosec // numbers only
		}
		for j := range column.Parts {
			p := &column.Parts[j]
			p.UsedAt, p.IdleAt, p.UnknownAt = place(p.Used), place(p.Idle), place(p.Unknown)
			c.Idle, c.Unknown = c.Idle || p.Idle > 0, c.Unknown || p.Unknown > 0
		}
	}
}

// stepOf is the grid's step in hours: 1, 2 or 5 times a power of ten.
func stepOf(hours float64) float64 {
	least := hours / 4
	power := math.Pow(10, math.Floor(math.Log10(least)))
	i := slices.IndexFunc([]float64{1, 2, 5}, func(n float64) bool { return n*power >= least })
	return power * []float64{10, 1, 2, 5}[i+1]
}

func shortDate(date string) string {
	if day, err := time.Parse(time.DateOnly, date); err == nil {
		return day.Format("2 Jan")
	}
	return date
}

// WriteReport writes a self-contained page without scripts.
func WriteReport(w io.Writer, d *usage.Report) error {
	style, err := staticFiles.ReadFile("static/style.css")
	if err != nil {
		return err
	}
	type usageBody struct {
		*usage.Report
		Chart *chart // nil if nothing is recorded
	}
	ours := template.CSS(style) //nolint:gosec // not a user's
	return templates().ExecuteTemplate(w, "reportFile", map[string]any{
		"Title": "GPU usage by " + d.By, "Style": ours, "Body": usageBody{d, newChart(d)},
	})
}
