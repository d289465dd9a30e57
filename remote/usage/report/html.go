package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

//go:embed page.html charts.html
var files embed.FS

// page is the page, and charts; they are parsed when they are first needed. Names come from hosts: html/template
// escapes them wherever they are.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page.html").Funcs(template.FuncMap{
		"hours": Hours, "time": Time, "percent": Percent, "title": Title, "heading": Heading,
		"date": func(t time.Time) string { return t.Format("2006-01-02 15:04") },
	}).ParseFS(files, "page.html", "charts.html"))
})

// WritePage writes a page with charts, which needs nothing else: no script, no style sheet and
// no font. days is the same time by day; nil if d is that itself.
func WritePage(w io.Writer, d, days *Document) error {
	drawn, err := Charts(d, days)
	if err != nil {
		return err
	}
	return page().Execute(w, struct {
		*Document
		Charts template.HTML
	}{d, drawn})
}

// Charts are the charts of WritePage, as parts of a page that has styles for their classes.
func Charts(d, days *Document) (template.HTML, error) {
	view := struct {
		*Document
		Columns *columns
		Bars    *bars
	}{Document: d}
	if d.By == ByDay {
		days = d
	} else if len(d.Rows) > 0 {
		view.Bars = barsOf(d.Rows)
	}
	if days != nil && len(days.Rows) > 0 {
		view.Columns = columnsOf(days.Rows)
	}
	var b strings.Builder
	if err := page().ExecuteTemplate(&b, "charts", view); err != nil {
		return "", err
	}
	return template.HTML(b.String()), nil //nolint:gosec // a template's result
}

// part is a part of a bar or column: its class is its colour.
type part struct {
	Class, Label     string
	X, Y, Width, Len float64
}

// partsOf divides a row: what its devices were doing. Time without an attachment is not in it.
func partsOf(r *Row) []part {
	used := max(r.Attached-r.Idle, 0)
	computing := min(r.Computing, used)
	var parts []part
	for _, p := range []struct {
		class   string
		seconds int64
	}{{"computing", computing}, {"used", used - computing}, {"idle", r.Idle}, {"unknown", r.Unknown}} {
		if p.seconds > 0 {
			parts = append(parts, part{Class: p.class, Len: float64(p.seconds), Label: fmt.Sprintf("%s: %s h", p.class, Hours(p.seconds))})
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

func barsOf(rows []Row) *bars {
	rows = rows[:min(len(rows), maxLines)]
	most := 1.0
	for i := range rows {
		most = max(most, float64(rows[i].Attached+rows[i].Unknown))
	}
	b := &bars{Height: float64(len(rows)) * lineHeight}
	for i := range rows {
		line := barLine{Key: text.Shorten(text.OneLine(Title(rows[i].Key)), maxBarKey), Value: Hours(rows[i].Attached), Y: float64(i) * lineHeight, Parts: partsOf(&rows[i]), End: barLeft}
		for j := range line.Parts {
			p := &line.Parts[j]
			p.X, p.Y, p.Width = line.End, line.Y+4, p.Len/most*barWidth
			line.End += p.Width
		}
		b.Lines = append(b.Lines, line)
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

func columnsOf(rows []Row) *columns {
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
