package top

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// View implements tea.Model.
func (m *Model) View() tea.View {
	v := tea.NewView(strings.Join(m.frame(), "\n"))
	v.AltScreen = true
	return v
}

// frame is the lines of the screen: as many as it has at most, and none wider.
func (m *Model) frame() []string {
	if m.width <= 0 || m.height <= 0 {
		return nil
	}
	lines := []string{m.header()}
	if m.height >= 6 {
		lines = append(lines, m.tabs())
	}
	lines = append(lines, m.alerts()...)
	lines = append(lines, m.body()...)
	if m.height >= 2 {
		foot := m.foot()
		for len(lines) < m.height-len(foot) {
			lines = append(lines, "")
		}
		lines = append(lines[:m.height-len(foot)], foot...)
	}
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "")
	}
	return lines
}

// room is how many lines the body has.
func (m *Model) room() int {
	room := m.height - 1 - len(m.alerts())
	if m.height >= 6 {
		room--
	}
	if m.height >= 2 {
		room -= len(m.foot())
	}
	return max(0, room)
}

// page is how many rows of the table are visible.
func (m *Model) page() int { return max(0, m.room()-1) }

func (m *Model) body() []string {
	switch {
	case m.mode == read:
		return m.wrapped(m.details)
	case m.mode == confirm, m.mode == typing && m.request != nil:
		return m.wrapped(m.request.question())
	case m.scene == nil:
		return []string{"  waiting for the first look at the hosts …"}
	}
	c := m.cursor()
	end := min(len(m.rows), c.top+m.page())
	t := table{
		painter: m.painter, scene: m.scene, columns: columns(m.tab), rows: m.rows[min(c.top, end):end], now: m.now,
		sort: c.sort - 1, backward: c.backward, old: m.old() != "", mark: m.mark,
	}
	lines := t.lines(m.width)
	if len(m.rows) == 0 {
		lines = append(lines, "  "+m.empty())
	}
	return lines[:min(len(lines), m.room())]
}

// empty says why there is no row.
func (m *Model) empty() string {
	if m.filter.String() != "" {
		return "no row meets the filter (Esc removes it)"
	}
	if m.tab == tabFindings && !m.scene.fleet.Enforcing {
		return "no rules are applied: this only watches"
	}
	return "none"
}

// mark is in front of a row: whether it is selected and tagged.
func (m *Model) mark(r *row) (string, bool) {
	prefix, selected := []byte("  "), m.selected()
	is := selected != nil && selected.id == r.id
	if is {
		prefix[0] = '>'
	}
	if m.tagged[r.id] {
		prefix[1] = '*'
	}
	return string(prefix), is
}

// wrapped are texts as lines of the body.
func (m *Model) wrapped(texts []string) (lines []string) {
	for _, s := range texts {
		lines = append(lines, strings.Split(ansi.Wrap(s, max(1, m.width-1), ""), "\n")...)
	}
	return lines[:min(len(lines), m.room())]
}

// fits reports whether all of a text is visible.
func (m *Model) fits(texts []string) bool {
	n := 0
	for _, s := range texts {
		n += strings.Count(ansi.Wrap(s, max(1, m.width-1), ""), "\n") + 1
	}
	return n <= m.room()
}

// old says how old the data are, if they are; empty if they are fresh.
func (m *Model) old() string {
	if m.scene == nil {
		return ""
	}
	age := m.now.Sub(m.scene.fleet.Time)
	if m.scene.fleet.Time.IsZero() || m.err == nil && age <= m.scene.patience() {
		return ""
	}
	return "OLD: " + short(age)
}

// header says whose data these are and how the fleet is, as far as there is room.
func (m *Model) header() string {
	if m.scene == nil {
		return m.painter.paint("genv top", bold)
	}
	f := m.scene.fleet
	var parts []string
	if m.paused {
		parts = append(parts, m.painter.paint("PAUSED", reverse))
	}
	if old := m.old(); old != "" {
		parts = append(parts, m.painter.paint(old, reverse, red))
	}
	hosts := fmt.Sprintf("%d hosts", len(f.Hosts))
	if n := len(f.Failed); n > 0 {
		hosts += m.painter.paint(fmt.Sprintf(", %d failed", n), red)
	}
	parts = append(parts, hosts, m.counts(), m.activity())
	if f.Cycle > 0 {
		parts = append(parts, fmt.Sprintf("cycle %d, %s ago", f.Cycle, short(m.now.Sub(f.Time))))
	}
	line := m.painter.paint("genv top", bold)
	for _, part := range parts {
		if ansi.StringWidth(line)+3+ansi.StringWidth(part) <= m.width {
			line += m.painter.paint(" | ", faint) + part
		}
	}
	return line
}

// counts are the GPUs by their state.
func (m *Model) counts() string {
	names := []string{}
	for _, state := range gpus.States() {
		n := m.scene.states[state]
		if n > 0 || state == gpus.Free {
			names = append(names, m.painter.paint(fmt.Sprintf("%d %s", n, state), stateStyle(state)))
		}
	}
	return fmt.Sprintf("%d GPUs: %s", m.scene.gpus, strings.Join(names, ", "))
}

// activity is what the controller does.
func (m *Model) activity() string {
	f := m.scene.fleet
	doing := "watching"
	switch {
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
		list = append(list, "No new data: "+shown(m.err.Error()))
	}
	if m.scene != nil {
		f := m.scene.fleet
		if f.Hold != nil {
			list = append(list, shown(f.Hold.String()))
		}
		if f.Unrecorded != "" {
			list = append(list, "The record can't be written: "+shown(f.Unrecorded))
		}
		for _, h := range append(f.HeldUsers[:len(f.HeldUsers):len(f.HeldUsers)], f.HeldHosts...) {
			list = append(list, "Safety limit: "+shown(h.Because))
		}
	}
	for i := range list {
		list[i] = m.painter.paint(list[i], bold, red)
	}
	return list[:min(len(list), max(0, (m.height-4)/4))]
}

// tabs are the names of the tabs.
func (m *Model) tabs() string {
	var b strings.Builder
	for tab := range tabCount {
		name, as := fmt.Sprintf("%d %s", tab+1, tabNames[tab]), faint
		if n := m.tabCount(tab); n > 0 {
			name, as = fmt.Sprintf("%s(%d)", name, n), red
		}
		if tab == m.tab {
			if of := m.scope.String(); of != "" {
				name += " of " + of
			}
			b.WriteString(m.painter.selected(span{"[" + name + "]", bold}) + " ")
			continue
		}
		if m.width < 80 { // the names of the others don't fit
			name = fmt.Sprintf("%d", tab+1)
		}
		b.WriteString(m.painter.paint(name, as) + " ")
	}
	return b.String()
}

// tabCount is a number worth to be seen from all tabs.
func (m *Model) tabCount(tab tabID) int {
	switch {
	case m.scene == nil:
	case tab == tabFindings:
		return len(m.scene.fleet.Findings)
	case tab == tabFailed:
		return len(m.scene.fleet.Failed)
	}
	return 0
}

// foot is the footer, or a message on as many lines as it needs, above what is typed.
func (m *Model) foot() []string {
	if m.message == "" || m.mode == read || m.height < 8 {
		return []string{m.footer()}
	}
	lines := strings.Split(ansi.Wrap(shown(m.message), max(1, m.width-1), ""), "\n")
	lines = lines[:min(len(lines), m.height/4)]
	for i := range lines {
		lines[i] = m.painter.paint(lines[i], bold)
	}
	if m.mode == typing {
		lines = append(lines, m.typingLine(""))
	}
	return lines
}

// footer is what is typed or asked, or a message, or which keys there are.
func (m *Model) footer() string {
	switch {
	case m.mode == confirm:
		return m.painter.paint(m.said("Ask for this? y/n"), bold)
	case m.mode == typing:
		return m.typingLine(shown(m.message))
	case m.mode == read:
		return m.painter.paint("any key: back", faint)
	case m.message != "":
		return m.painter.paint(shown(m.message), bold)
	}
	left, as := "Enter in, Esc out, / filter, s sort, ? help, q quit", faint
	if m.filter.String() != "" {
		as = plain
		left = "filter: " + shown(m.filter.String())
		if ignored := ignored(m.filter, m.tab); len(ignored) > 0 {
			left += " (not on this tab: " + strings.Join(ignored, ", ") + ")"
		}
	}
	right := ""
	if c := m.cursor(); len(m.rows) > 0 && !c.gone {
		right = fmt.Sprintf(" %d/%d", c.at+1, len(m.rows))
	}
	left = ansi.Truncate(left, max(0, m.width-len(right)), "…")
	return m.painter.paint(left+strings.Repeat(" ", max(0, m.width-width(left)-len(right)))+right, as)
}

// said is the message, or a text if there is none.
func (m *Model) said(otherwise string) string {
	if m.message != "" {
		return shown(m.message)
	}
	return otherwise
}

// typingLine shows the end of what is typed, and what is wrong with it; empty for nothing.
func (m *Model) typingLine(wrong string) string {
	line := m.input.prompt + shown(m.input.text)
	if wrong != "" {
		line = wrong + " | " + line
	}
	if excess := width(line) + 1 - m.width; excess > 0 {
		line = ansi.TruncateLeft(line, excess, "")
	}
	return line + m.painter.paint(" ", reverse)
}

// describe is all that is known about a row.
func (m *Model) describe(r *row) []string {
	lines := []string{}
	for _, c := range columns(m.tab) {
		if s := c.cell(m.scene, r, m.now).plain(); s != "" {
			lines = append(lines, c.name+": "+s)
		}
	}
	if r.process != nil {
		lines = append(lines, fmt.Sprintf("START: %d", r.id.start), "COMMAND: "+shown(r.process.Command))
	}
	if r.process != nil || r.finding != nil {
		for _, g := range gpusOf(r) {
			if e := m.scene.fleet.Exempt(r.id.host, g); e != nil {
				lines = append(lines, fmt.Sprintf("GPU %d: %s", g.Index, shown(e.String())))
			}
		}
	}
	if r.event != nil && r.event.Why != "" {
		lines = append(lines, "WHY: "+shown(r.event.Why))
	}
	if r.failure != nil {
		lines = append(lines, "CLASS: "+string(r.failure.Class))
	}
	return append(lines, "", "As of "+m.now.Format(time.TimeOnly)+".")
}
