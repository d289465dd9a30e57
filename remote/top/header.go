package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// old says how old the data are, if they are; empty if they are fresh.
func (m *Model) old() string {
	if m.scene == nil {
		return ""
	}
	age := m.now.Sub(m.scene.Time)
	if m.scene.Time.IsZero() || m.err == nil && age <= m.scene.patience() {
		return ""
	}
	return "OLD: " + short(age)
}

// header says which controller has these data and how the fleet is, as far as there is room.
func (m *Model) header() string {
	if m.scene == nil {
		return m.painter.Paint("genv top", draw.Bold)
	}
	f := m.scene.FleetState
	var parts []string
	if m.paused {
		parts = append(parts, m.painter.Paint("PAUSED", draw.Reverse))
	}
	if old := m.old(); old != "" {
		parts = append(parts, m.painter.Paint(old, draw.Reverse, draw.Red))
	}
	hosts := fmt.Sprintf("%d hosts", len(f.Hosts))
	if n := len(f.Failed); n > 0 {
		hosts += m.painter.Paint(fmt.Sprintf(", %d failed", n), draw.Red)
	}
	parts = append(parts, hosts, m.counts(), m.activity())
	if f.Cycle > 0 {
		parts = append(parts, fmt.Sprintf("cycle %d, %s ago", f.Cycle, short(m.now.Sub(f.Time))))
	}
	line := m.painter.Paint("genv top", draw.Bold)
	for _, part := range parts {
		if ansi.StringWidth(line)+3+ansi.StringWidth(part) <= m.width {
			line += m.painter.Paint(" | ", draw.Faint) + part
		}
	}
	return line
}

func (m *Model) counts() string {
	names := []string{}
	for _, state := range gpus.States() {
		n := m.scene.Counts.In(state)
		if n > 0 || state == gpus.Free {
			names = append(names, m.painter.Paint(fmt.Sprintf("%d %s", n, state), stateStyle(state)))
		}
	}
	return fmt.Sprintf("%d GPUs: %s", m.scene.Counts.Total(), strings.Join(names, ", "))
}

func (m *Model) activity() string {
	f := m.scene.FleetState
	doing := "watching"
	switch {
	case f.Election != nil && f.Election.Role != election.Leading:
		doing = string(f.Election.Role)
	case f.Enforcing && f.DryRun:
		doing = "dry run"
	case f.Enforcing:
		doing = "enforcing"
	}
	if m.origin != "" {
		doing += " (" + m.origin + ")"
	}
	return doing
}

// alerts are what an administrator must know, a line each, as far as there is room.
func (m *Model) alerts() []string {
	var list []string
	if m.err != nil {
		list = append(list, "No new data: "+draw.Shown(m.err.Error()))
	}
	if m.scene != nil {
		list = append(list, alertsOf(m.scene.FleetState)...)
	}
	if guard := m.guardAlert(); guard != "" {
		list = append(list, guard)
	}
	for i := range list {
		list[i] = m.painter.Paint(list[i], draw.Bold, draw.Red)
	}
	if m.scene != nil && leads(m.scene.Election) {
		list = append(list, draw.Shown(m.scene.Election.String()))
	}
	if m.scene != nil && m.scene.waiting != nil {
		list = append(list, "Waiting: "+strings.Join(m.scene.waiting, "; "))
	}
	if m.scene != nil && m.scene.booked != nil {
		list = append(list, "Reserved: "+strings.Join(m.scene.booked, "; "))
	}
	return list[:min(len(list), max(0, (m.height-4)/4))]
}

// leads reports whether the controller leads, and etcd says so.
func leads(e *election.Shown) bool { return e != nil && e.Role == election.Leading && e.Error == "" }

func (m *Model) tabs() string {
	var b strings.Builder
	for tab := range tabCount {
		name, as := fmt.Sprintf("%d:%s", tab+1, tabs[tab].name), draw.Faint // 2 GPUs would look like a number of them
		if n := m.tabCount(tab); n > 0 {
			name, as = fmt.Sprintf("%s(%d)", name, n), draw.Red
		}
		if tab == m.tab {
			if of := m.scope.String(); of != "" {
				name += " of " + of
			}
			b.WriteString(m.painter.Selected(draw.Span{Text: "[" + name + "]", Style: draw.Bold}) + " ")
			continue
		}
		if m.width < 80 { // the names of the others don't fit
			name = fmt.Sprintf("%d", tab+1)
		}
		b.WriteString(m.painter.Paint(name, as) + " ")
	}
	return b.String()
}

// tabCount is a number worth to be seen from all tabs.
func (m *Model) tabCount(tab tabID) int {
	switch {
	case m.scene == nil:
	case tab == tabFindings:
		return len(m.scene.Findings)
	case tab == tabFailed:
		return len(m.scene.Failed)
	}
	return 0
}

// alertsOf are those about the controller.
func alertsOf(f *live.FleetState) (list []string) {
	if f.Hold != nil {
		list = append(list, draw.Shown(f.Hold.String()))
	}
	if e := f.Election; e != nil && !leads(e) {
		list = append(list, draw.Shown(e.String()))
	}
	if f.Unrecorded != "" {
		list = append(list, "The record can't be written: "+draw.Shown(f.Unrecorded))
	}
	for _, h := range append(f.HeldUsers[:len(f.HeldUsers):len(f.HeldUsers)], f.HeldHosts...) {
		if line := "Safety limit: " + draw.Shown(h.Because); !slices.Contains(list, line) {
			list = append(list, line)
		}
	}
	return list
}
