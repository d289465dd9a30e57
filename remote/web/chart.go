package web

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Bars consist of numbers and classes only, so that the texts of hosts can't get into them.

func bar(c gpus.StateCounts) template.HTML {
	var b strings.Builder
	b.WriteString(`<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">`)
	x := 0.0
	for _, part := range []struct {
		class string
		n     int
	}{{"f", c.Free + c.MIG}, {"b", c.Busy}, {"i", c.Held()}, {"u", c.Unknown + c.Unusable + c.Failed}} {
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
	return template.HTML(
		fmt.Sprintf(`<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">`+
			`<rect class="b" width="%.2f" height="8"/></svg>`, width)) //nolint:gosec // numbers only
}
