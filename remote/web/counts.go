package web

import (
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// counts are of GPUs, and of the hosts that failed.
type counts struct {
	Free, Busy, Idle, Unknown, Broken int
	Failed, Hosts                     int
}

// Total is the number of GPUs.
func (c counts) Total() int { return c.Free + c.Busy + c.Idle + c.Unknown + c.Broken }

func (c *counts) add(g *gpus.GPU) {
	switch g.State {
	case gpus.Free:
		c.Free++
	case gpus.Busy:
		c.Busy++
	case gpus.Attached, gpus.Idle:
		c.Idle++
	case gpus.Unknown:
		c.Unknown++
	case gpus.Failed:
		c.Broken++
	}
}

func (p *page) count(hosts []live.Host) (c counts) {
	c.Hosts = len(hosts)
	for i := range hosts {
		if hosts[i].Failure != nil {
			c.Failed++
		}
		for j := range hosts[i].GPUs {
			c.add(&hosts[i].GPUs[j])
		}
	}
	return c
}

// cell is how a mark looks, and what it means.
type cell struct {
	mark         live.Mark
	class, means string
}

// cells are those of all marks, in the order of the legend.
var cells = []cell{
	{live.MarkFree, "f", "free"},
	{live.MarkUnused, "i", "attached or idle"},
	{live.MarkBusy, "b", "busy"},
	{live.MarkFinding, "n", "a rule is violated"},
	{live.MarkExempt, "x", "exempt from rules"},
	{live.MarkUnknown, "u", "unknown"},
	{live.MarkFailed, "e", "failed"},
}

func (p *page) cell(h *live.Host, g *gpus.GPU) *cell {
	mark := p.marks.Of(h.Name, g)
	return &cells[slices.IndexFunc(cells, func(c cell) bool { return c.mark == mark })]
}

func (c *cell) letter() string { return string(rune(c.mark)) }

// Legend explains the letters.
func (*page) Legend() template.HTML {
	var b strings.Builder
	for _, c := range cells {
		b.WriteString(`<li><i class="` + c.class + `">` + c.letter() + `</i> ` + c.means + `</li>`)
	}
	return template.HTML(b.String()) //nolint:gosec // constants only
}

// maxCells is of how many GPUs a host has letters.
const maxCells = 64

// writeCells writes the GPUs of a host as letters, with the numbers for those who don't see
// them.
func (p *page) writeCells(b *strings.Builder, h *live.Host, c *counts) {
	b.WriteString(`<span class="cells" role="img" aria-label="` + c.words() + `">`)
	for i := range h.GPUs[:min(len(h.GPUs), maxCells)] {
		cell := p.cell(h, &h.GPUs[i])
		b.WriteString(`<i class="` + cell.class + `">` + cell.letter() + `</i>`)
	}
	if excess := len(h.GPUs) - maxCells; excess > 0 {
		fmt.Fprintf(b, " +%d", excess)
	}
	b.WriteString(`</span>`)
}

func (c counts) words() string {
	var list []string
	for _, part := range []struct {
		n    int
		word string
	}{{c.Free, "free"}, {c.Busy, "busy"}, {c.Idle, "idle"}, {c.Unknown, "unknown"}, {c.Broken, "failed"}} {
		if part.n > 0 {
			list = append(list, strconv.Itoa(part.n)+" "+part.word)
		}
	}
	if len(list) == 0 {
		return "no GPUs known"
	}
	return strings.Join(list, ", ")
}
