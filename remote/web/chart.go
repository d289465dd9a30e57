package web

import (
	"fmt"
	"html/template"

	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Bars consist of numbers and classes only, so that the texts of hosts can't get into them.

func bar(c gpus.StateCounts) template.HTML {
	rects, x := "", 0.0
	for _, part := range []struct {
		class string
		n     int
	}{{"f", c.Free + c.MIG}, {"b", c.Busy}, {"i", c.Held()}, {"u", c.Unknown + c.Unusable + c.Failed}} {
		if part.n == 0 {
			continue
		}
		width := 100 * float64(part.n) / float64(c.Total())
		rects += rect(part.class, x, width)
		x += width
	}
	return barOf(rects)
}

func rect(class string, x, width float64) string {
	return fmt.Sprintf(`<rect class="%s" x="%.2f" width="%.2f" height="8"/>`, class, x, width)
}

func barOf(rects string) template.HTML {
	return template.HTML(`<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">` +
		rects + `</svg>`) //nolint:gosec // numbers only
}

// memoryBar is how full a memory is.
func memoryBar(used, total *int64) template.HTML {
	if used == nil || total == nil || *total <= 0 {
		return ""
	}
	return barOf(rect("b", 0, min(100*float64(max(*used, 0))/float64(*total), 100)))
}
