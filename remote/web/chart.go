package web

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Charts consist of numbers and classes only, so that the texts of hosts can't get into
// them.

// bar is a bar of the parts, in percent of their sum.
func bar(c gpus.StateCounts) template.HTML {
	var b strings.Builder
	b.WriteString(`<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">`)
	x := 0.0
	for _, part := range []struct {
		class string
		n     int
	}{{"f", c.Free}, {"b", c.Busy}, {"i", c.Held()}, {"u", c.Unknown + c.Failed}} {
		if part.n == 0 {
			continue
		}
		width := 100 * float64(part.n) / float64(c.Total())
		fmt.Fprintf(&b, `<rect class="%s" x="%.2f" width="%.2f" height="8"/>`, part.class, x, width)
		x += width
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers only
}

// memoryBar is how full a memory is.
func memoryBar(used, total *int64) template.HTML {
	if used == nil || total == nil || *total <= 0 {
		return ""
	}
	width := min(100*float64(max(*used, 0))/float64(*total), 100)
	return template.HTML(fmt.Sprintf(`<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">`+
		`<rect class="b" width="%.2f" height="8"/></svg>`, width)) //nolint:gosec // numbers only
}

// chart is a trend as areas on top of each other: busy, held, and of a host what is unknown
// or free.
func chart(t live.Trend, of string) template.HTML {
	var b strings.Builder
	top := topOf(t)
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 288 100" preserveAspectRatio="none" role="img" aria-labelledby="ct cd">`+
		`<title id="ct">GPUs of %s, last 24 hours</title><desc id="cd">%s The table below has the figures.</desc>`,
		template.HTMLEscapeString(of), summary(t))
	for _, area := range areas(t, top) {
		fmt.Fprintf(&b, `<path class="%s" d="%s"/>`, area.class, area.path)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers, and a text that is escaped
}

// spark is a trend in a line of text.
func spark(t live.Trend) template.HTML {
	if len(t.Points) == 0 {
		return ""
	}
	coarse := t
	coarse.Points = make([]live.Point, 0, len(t.Points)/6)
	for i := 0; i+6 <= len(t.Points); i += 6 {
		coarse.Points = append(coarse.Points, average(t.Points[i:i+6]))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" viewBox="0 0 48 100" preserveAspectRatio="none" role="img" aria-label="%s">`, summary(t))
	for _, area := range areas(coarse, topOf(t)) {
		if area.class != "f" {
			fmt.Fprintf(&b, `<path class="%s" d="%s"/>`, area.class, area.path)
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers only
}

// area is the path of a class.
type area struct {
	class, path string
}

// areas are the steps of all points, from the bottom up; points that aren't known are gaps
// of full height.
func areas(t live.Trend, top float64) []area {
	layers := []struct {
		class string
		of    func(live.Point) float64
	}{
		{"b", func(p live.Point) float64 { return p.Busy }},
		{"i", func(p live.Point) float64 { return p.Held }},
		{"u", func(p live.Point) float64 { return p.Unknown }},
		{"f", func(p live.Point) float64 { return p.Free }},
	}
	below, list := make([]float64, len(t.Points)), []area{{"gap", gaps(t.Points)}}
	for _, layer := range layers {
		height := make([]float64, len(t.Points))
		for i, p := range t.Points {
			height[i] = layer.of(p) / top * 100
		}
		list = append(list, area{layer.class, steps(below, height)})
		for i := range below {
			below[i] += height[i]
		}
	}
	return list
}

func gaps(points []live.Point) string {
	zero, height := make([]float64, len(points)), make([]float64, len(points))
	for i, p := range points {
		if !p.Known {
			height[i] = 100
		}
	}
	return steps(zero, height)
}

// steps is a path of rectangles, equal neighbours joined.
func steps(below, height []float64) string {
	var b strings.Builder
	for i := 0; i < len(height); {
		j := i + 1
		for j < len(height) && height[j] == height[i] && below[j] == below[i] {
			j++
		}
		if height[i] > 0 {
			fmt.Fprintf(&b, "M%d %sh%dv%sh-%dz", i, number(100-below[i]), j-i, number(-height[i]), j-i)
		}
		i = j
	}
	return b.String()
}

func number(f float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.1f", f), "0"), ".")
}

// topOf is the upper end of a chart: the most GPUs of a point, rounded up.
func topOf(t live.Trend) float64 {
	top := 1.0
	for _, p := range t.Points {
		top = max(top, p.Busy+p.Held+p.Free+p.Unknown)
	}
	return math.Ceil(top)
}

// average is of the points that are known.
func average(points []live.Point) (a live.Point) {
	n := 0.0
	for _, p := range points {
		if !p.Known {
			continue
		}
		n++
		a.Known, a.Busy, a.Held, a.Free, a.Unknown = true, a.Busy+p.Busy, a.Held+p.Held, a.Free+p.Free, a.Unknown+p.Unknown
	}
	if n > 0 {
		a.Busy, a.Held, a.Free, a.Unknown = a.Busy/n, a.Held/n, a.Free/n, a.Unknown/n
	}
	return a
}

// summary says in words what a chart shows.
func summary(t live.Trend) string {
	a, known, most := average(t.Points), 0, 0.0
	for _, p := range t.Points {
		if p.Known {
			known++
		}
		most = max(most, p.Busy)
	}
	if known == 0 {
		return "Nothing is known yet."
	}
	return fmt.Sprintf("On average %.1f busy and %.1f held idle; at most %.0f busy; known for %s.", a.Busy, a.Held, math.Ceil(most), span(time.Duration(known)*t.Step))
}

// hour is a row of a chart's table.
type hour struct {
	From, To time.Time
	live.Point
}

// hourly are the hours of a trend of which something is known, the newest first.
func hourly(t live.Trend) []hour {
	var list []hour
	each := int(time.Hour / max(t.Step, time.Second))
	for end := len(t.Points); end > 0 && each > 0; end -= each {
		begin := max(end-each, 0)
		if p := average(t.Points[begin:end]); p.Known {
			to := t.End.Add(-time.Duration(len(t.Points)-end) * t.Step)
			list = append(list, hour{to.Add(-time.Duration(end-begin) * t.Step), to, p})
		}
	}
	return list
}
