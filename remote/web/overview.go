package web

import (
	"cmp"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// How many rows a page has at most; beyond that it says how many there are.
const (
	maxUsers  = 300
	maxModels = 50
	maxFailed = 10
	manyHosts = 100 // from which on they are drawn smaller
	maxPlaces = 6   // hosts that are named for a model
	maxTags   = 3   // users that are named for a host
)

type hostFilter struct {
	Query string // a part of the name of a host or of a user
	Model string
	Free  bool
}

func filterOf(r *http.Request) hostFilter {
	q := r.URL.Query()
	return hostFilter{text.Cut(strings.TrimSpace(q.Get("q")), 64), text.Cut(q.Get("model"), 256), q.Get("free") != ""}
}

// Any reports whether it leaves anything out.
func (f hostFilter) Any() bool { return f != hostFilter{} }

func (f hostFilter) key() string {
	if !f.Any() {
		return ""
	}
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

// Dense reports whether hosts are drawn small.
func (p *page) Dense() bool { return len(p.Fleet.Hosts) >= manyHosts }

// modelRow is what is free of a model, and where.
type modelRow struct {
	Model  string
	Counts gpus.StateCounts
	Free1  []freeAt // where most are free
	More   int      // hosts with free ones besides
	Search string
}

type freeAt struct {
	Host snapshot.Hostname
	N    int
}

type tile struct {
	*live.FleetHost
	Counts   gpus.StateCounts
	Cells    template.HTML // the letters of its GPUs
	MoreGPUs int
	Users    []snapshot.Username
	More     int // users
}

type failedRow struct {
	remote.Failure
	Host snapshot.Hostname
	Seen time.Time
}

func overview(p *page, r *http.Request) (string, any) {
	// overviewBody is what the first page shows.
	type overviewBody struct {
		Filter    hostFilter
		Models    []modelRow
		Tiles     []tile
		Users     []live.FleetUser
		MoreUsers int
		Failed    []failedRow
		// MoreFailed are those besides Failed.
		MoreFailed int
	}
	p.Title = "GPUs"
	body := overviewBody{Filter: filterOf(r), Models: modelsOf(p.Fleet.FleetState)}
	for i := range p.Fleet.Hosts {
		h := &p.Fleet.Hosts[i]
		switch {
		case h.Failure == nil:
		case len(body.Failed) < maxFailed:
			body.Failed = append(body.Failed, failedRow{*h.Failure, h.Name, h.Seen})
		default:
			body.MoreFailed++
		}
		if body.Filter.selects(h) {
			body.Tiles = append(body.Tiles, p.tile(h))
		}
	}
	users := slices.Clone(p.Fleet.Users)
	slices.SortStableFunc(users, func(a, b live.FleetUser) int {
		return cmp.Compare(max(b.Attached, b.Used), max(a.Attached, a.Used))
	})
	if excess := len(users) - maxUsers; excess > 0 {
		users, body.MoreUsers = users[:maxUsers], excess
	}
	body.Users = users
	return "overview", body
}

func (p *page) tile(h *live.FleetHost) tile {
	t := tile{FleetHost: h, Users: h.Users(), MoreGPUs: max(0, len(h.GPUs)-maxCells)}
	t.Counts.Add(h.GPUs...)
	for i := range h.GPUs[:min(len(h.GPUs), maxCells)] {
		t.Cells += p.cell(h.Name, &h.GPUs[i]).html()
	}
	if excess := len(t.Users) - maxTags; excess > 0 {
		t.Users, t.More = t.Users[:maxTags], excess
	}
	return t
}

// modelsOf are the models of the fleet, those with the most free GPUs first.
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
			rows[model].Free1 = append(rows[model].Free1, freeAt{h.Name, n})
		}
	}
	list := make([]modelRow, 0, len(rows))
	for _, row := range rows {
		slices.SortStableFunc(row.Free1, func(a, b freeAt) int { return cmp.Compare(b.N, a.N) })
		if excess := len(row.Free1) - maxPlaces; excess > 0 {
			row.Free1, row.More = row.Free1[:maxPlaces], excess
		}
		row.Search = "/?" + hostFilter{Model: model(row.Model), Free: true}.key() + "#hosts"
		list = append(list, *row)
	}
	slices.SortFunc(list, func(a, b modelRow) int {
		return cmp.Or(cmp.Compare(b.Counts.Free, a.Counts.Free), cmp.Compare(a.Model, b.Model))
	})
	if len(list) > maxModels {
		list = list[:maxModels]
	}
	return list
}

// cell is how a mark looks, and what it means.
type cell struct {
	mark         live.Mark
	Class, Means string
}

// Letter is the mark.
func (c *cell) Letter() string { return string(rune(c.mark)) }

// html is one GPU in the grid of hosts. For thousands of them a template takes several times as long.
func (c *cell) html() template.HTML {
	return template.HTML(`<i class="` + c.Class + `">` + c.Letter() + `</i>`) //nolint:gosec // constants only
}

// cells are those of all marks, in the order of the legend.
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

// maxCells is of how many GPUs a host has letters.
const maxCells = 64

// words are the numbers of a host's GPUs, for those who don't see the letters.
func words(c gpus.StateCounts) string {
	var list []string
	for _, part := range []struct {
		n    int
		word string
	}{
		{c.Free, "free"},
		{c.MIG, "MIG"},
		{c.Busy, "busy"},
		{c.Held(), "idle"},
		{c.Unknown, "unknown"},
		{c.Unusable, "unusable"},
		{c.Failed, "failed"},
	} {
		if part.n > 0 {
			list = append(list, strconv.Itoa(part.n)+" "+part.word)
		}
	}
	if len(list) == 0 {
		return "no GPUs known"
	}
	return strings.Join(list, ", ")
}
