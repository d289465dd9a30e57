package web

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	maxModels = 50
	manyHosts = 100 // from here on they are drawn smaller
	maxCells  = 64  // GPUs per host with letters
)

type hostFilter struct {
	Query string // part of a host's or user's name
	Model string
	Free  bool
}

func filterOf(r *http.Request) hostFilter {
	q := r.URL.Query()
	return hostFilter{text.Cut(strings.TrimSpace(q.Get("q")), 64), text.Cut(q.Get("model"), 256), q.Get("free") != ""}
}

// Any says whether the filter hides anything.
func (f hostFilter) Any() bool { return f != hostFilter{} }

func (f hostFilter) key() string {
	q := url.Values{"q": {f.Query}, "model": {f.Model}}
	if f.Free {
		q.Set("free", "1")
	}
	return q.Encode()
}

func (f hostFilter) selects(h *live.FleetHost) bool {
	fits := func(g gpus.GPU) bool {
		return (!f.Free || g.State == gpus.Free) && (f.Model == "" || model(g.Model) == f.Model)
	}
	part := func(s string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(f.Query)) }
	switch {
	case (f.Free || f.Model != "") && !slices.ContainsFunc(h.GPUs, fits):
		return false
	case f.Query != "" && !part(string(h.Name)):
		return slices.ContainsFunc(h.Users(), func(u snapshot.Username) bool { return part(string(u)) })
	}
	return true
}

func (p *page) Dense() bool { return len(p.Fleet.Hosts) >= manyHosts }

type modelRow struct {
	Model  string
	Counts gpus.StateCounts
	Free   []tile // hosts with free ones, most first
	Search string
}

type tile struct {
	*live.FleetHost
	Counts gpus.StateCounts
	Cells  template.HTML // letters of its GPUs
}

func overview(p *page, r *http.Request) (string, any) {
	type overviewBody struct {
		Filter hostFilter
		Models []modelRow
		Tiles  []tile
		Users  []live.FleetUser
		Failed []*live.FleetHost
	}
	p.Title = "GPUs"
	body := overviewBody{Filter: filterOf(r), Models: modelsOf(p.Fleet.FleetState)}
	for i := range p.Fleet.Hosts {
		h := &p.Fleet.Hosts[i]
		if h.Failure != nil {
			body.Failed = append(body.Failed, h)
		}
		if body.Filter.selects(h) {
			body.Tiles = append(body.Tiles, p.tile(h))
		}
	}
	body.Users = slices.Clone(p.Fleet.Users)
	slices.SortStableFunc(body.Users, func(a, b live.FleetUser) int {
		return cmp.Compare(max(b.Attached, b.Used), max(a.Attached, a.Used))
	})
	return "overview", body
}

func (p *page) tile(h *live.FleetHost) tile {
	t := tile{FleetHost: h}
	t.Counts.Add(h.GPUs...)
	for i := range h.GPUs[:min(len(h.GPUs), maxCells)] {
		t.Cells += p.cell(h.Name, &h.GPUs[i]).html()
	}
	return t
}

func modelsOf(f *live.FleetState) []modelRow {
	rows := make(map[string]*modelRow)
	for i := range f.Hosts {
		h, free := &f.Hosts[i], make(map[string]int)
		for j := range h.GPUs {
			g := &h.GPUs[j]
			if rows[g.Model] == nil {
				rows[g.Model] = &modelRow{Model: g.Model}
			}
			rows[g.Model].Counts.Add(*g)
			if g.State == gpus.Free {
				free[g.Model]++
			}
		}
		for model, n := range free {
			rows[model].Free = append(rows[model].Free, tile{FleetHost: h, Counts: gpus.StateCounts{Free: n}})
		}
	}
	list := make([]modelRow, 0, len(rows))
	for _, row := range rows {
		slices.SortStableFunc(row.Free, func(a, b tile) int { return cmp.Compare(b.Counts.Free, a.Counts.Free) })
		row.Search = "/?" + hostFilter{Model: model(row.Model), Free: true}.key() + "#hosts"
		list = append(list, *row)
	}
	slices.SortFunc(list, func(a, b modelRow) int {
		return cmp.Or(cmp.Compare(b.Counts.Free, a.Counts.Free), cmp.Compare(a.Model, b.Model))
	})
	return list[:min(len(list), maxModels)]
}

type cell struct {
	mark         live.Mark
	Class, Means string
}

// Letter is the mark.
func (c *cell) Letter() string { return string(rune(c.mark)) }

// html renders a GPU in the grid of hosts. For thousands, a template is several times slower.
func (c *cell) html() template.HTML {
	return template.HTML(`<i class="` + c.Class + `">` + c.Letter() + `</i>`) //nolint:gosec // constants only
}

var cells = []cell{
	{live.MarkFree, "f", "free"},
	{live.MarkMIG, "f", "MIG mode, not used"},
	{live.MarkUnused, "i", "attached or idle"},
	{live.MarkBusy, "b", "busy"},
	{live.MarkFinding, "n", "a rule is violated"},
	{live.MarkExempt, "x", "exempt from rules"},
	{live.MarkUnknown, "u", "unknown"},
	{live.MarkUnusable, "e", "unusable"},
	{live.MarkFailed, "e", "failed"},
}

func (p *page) cell(host snapshot.Hostname, g *gpus.GPU) *cell {
	mark := p.Fleet.Mark(host, g)
	return &cells[slices.IndexFunc(cells, func(c cell) bool { return c.mark == mark })]
}

// Legend explains the letters.
func (*page) Legend() []cell { return cells }

func words(c gpus.StateCounts) string {
	var list []string
	words := []string{"free", "MIG", "busy", "idle", "unknown", "unusable", "failed"}
	for i, n := range []int{c.Free, c.MIG, c.Busy, c.Held(), c.Unknown, c.Unusable, c.Failed} {
		if n > 0 {
			list = append(list, strconv.Itoa(n)+" "+words[i])
		}
	}
	if len(list) == 0 {
		return "no GPUs known"
	}
	return strings.Join(list, ", ")
}

// Bars have only numbers and classes, not hosts' texts.

func bar(c gpus.StateCounts) template.HTML {
	rects, x := "", 0.0
	for i, n := range []int{c.Free + c.MIG, c.Busy, c.Held(), c.Unknown + c.Unusable + c.Failed} {
		if n > 0 {
			width := 100 * float64(n) / float64(c.Total())
			rects += rect("fbiu"[i:i+1], x, width)
			x += width
		}
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

func memoryBar(used, total *int64) template.HTML {
	if used == nil || total == nil || *total <= 0 {
		return ""
	}
	return barOf(rect("b", 0, min(100*float64(max(*used, 0))/float64(*total), 100)))
}
