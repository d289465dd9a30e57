package web

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// counts are of GPUs, and of the hosts that failed.
type counts struct {
	Free, Busy, Idle, Unknown int
	Failed, Hosts             int
}

// Total is the number of GPUs.
func (c counts) Total() int { return c.Free + c.Busy + c.Idle + c.Unknown }

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

// place is a GPU of the fleet.
type place struct {
	host  snapshot.Hostname
	index snapshot.DeviceIndex
}

// placesOf are the GPUs that findings are about: those of a process or a device that they
// name, and those that are to be detached.
func placesOf(f *live.Fleet) map[place]bool {
	places, byHost := make(map[place]bool), make(map[snapshot.Hostname][]*live.Finding)
	processes := make(map[snapshot.Hostname]map[snapshot.PID]bool)
	for i := range f.Findings {
		finding := &f.Findings[i]
		byHost[finding.Host] = append(byHost[finding.Host], finding)
		for _, d := range finding.Detach {
			places[place{d.Host, d.Index}] = true
		}
		for _, process := range finding.Terminate {
			if processes[process.Host] == nil {
				processes[process.Host] = make(map[snapshot.PID]bool)
			}
			processes[process.Host][process.PID] = true
		}
	}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		pids, findings := processes[h.Name], byHost[h.Name]
		for j := range h.GPUs {
			g, found := &h.GPUs[j], false
			for k := range g.Processes {
				found = found || pids[g.Processes[k].PID]
			}
			for _, finding := range findings {
				found = found || finding.About(h.Name, g)
			}
			if found {
				places[place{h.Name, g.Index}] = true
			}
		}
	}
	return places
}

// cell is a GPU as one letter, which `genv remote top` uses too.
type cell struct{ class, letter, means string }

var (
	cellFree    = cell{"f", ".", "free"}
	cellIdle    = cell{"i", "a", "attached or held, idle"}
	cellBusy    = cell{"b", "A", "busy"}
	cellFinding = cell{"n", "!", "a rule is violated"}
	cellExempt  = cell{"x", "x", "exempt from rules"}
	cellUnknown = cell{"u", "?", "unknown"}
)

func (p *page) cell(h *live.Host, g *gpus.GPU) cell {
	switch {
	case g.State == gpus.Unknown:
		return cellUnknown
	case p.busy[place{h.Name, g.Index}]:
		return cellFinding
	case len(p.Fleet.Exemptions) > 0 && p.Fleet.Exempt(h.Name, g) != nil:
		return cellExempt
	case g.State == gpus.Busy:
		return cellBusy
	case g.State == gpus.Free:
		return cellFree
	}
	return cellIdle
}

// Legend explains the letters.
func (*page) Legend() template.HTML {
	var b strings.Builder
	for _, c := range []cell{cellFree, cellIdle, cellBusy, cellFinding, cellExempt, cellUnknown} {
		b.WriteString(`<li><i class="` + c.class + `">` + c.letter + `</i> ` + c.means + `</li>`)
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
		b.WriteString(`<i class="` + cell.class + `">` + cell.letter + `</i>`)
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
	}{{c.Free, "free"}, {c.Busy, "busy"}, {c.Idle, "idle"}, {c.Unknown, "unknown"}} {
		if part.n > 0 {
			list = append(list, strconv.Itoa(part.n)+" "+part.word)
		}
	}
	if len(list) == 0 {
		return "no GPUs known"
	}
	return strings.Join(list, ", ")
}
