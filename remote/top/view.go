package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// View implements tea.Model.
func (m *Model) View() tea.View {
	v := tea.NewView(strings.Join(m.frame(), "\n"))
	v.AltScreen = true
	return v
}

func (m *Model) frame() []string {
	if m.width <= 0 || m.height <= 0 {
		return nil
	}
	lines := append(m.head(), m.body()...)
	if m.height >= 2 {
		foot := m.foot()
		lines = append(lines, make([]string, m.height)...)
		lines = append(lines[:m.height-len(foot)], foot...)
	}
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "")
	}
	return lines
}

func (m *Model) head() []string {
	lines := []string{m.header()}
	if m.height >= 6 {
		lines = append(lines, m.tabs())
	}
	return append(lines, m.alerts()...)
}

func (m *Model) room() int {
	room := m.height - len(m.head())
	if m.height >= 2 {
		room -= len(m.foot())
	}
	return max(0, room)
}

func (m *Model) page() int { return max(0, m.room()-1) }

func (m *Model) body() []string {
	switch {
	case m.mode == read:
		return m.cut(m.wrapped(m.details))
	case m.mode == confirm, m.mode == typing && m.request != nil:
		return m.cut(m.wrapped(question(m.request)))
	case m.scene == nil:
		return []string{"  waiting for the first look at the hosts …"}
	}
	c := m.cursor()
	end := min(len(m.rows), c.top+m.page())
	lines := m.table(m.rows[min(c.top, end):end]).Lines(m.width)
	if len(m.rows) == 0 {
		lines = append(lines, "  "+m.empty())
	}
	return m.cut(lines)
}

func (m *Model) cut(lines []string) []string { return lines[:min(len(lines), m.room())] }

func (m *Model) table(rows []tabRow) *draw.Table {
	c, list, selected := m.cursor(), m.scene.columns(m.tab), m.selected()
	t := &draw.Table{
		Painter: m.painter, Columns: make([]draw.ColumnLayout, len(list)), Rows: make([]draw.TableRow, len(rows)),
		Sort: c.sort, Backward: c.backward, Old: m.old() != "",
	}
	for j := range list {
		t.Columns[j] = list[j].ColumnLayout
	}
	for i := range rows {
		t.Rows[i] = draw.TableRow{Prefix: "  ", Cells: make([]draw.Cell, len(list))}
		if selected != nil && selected.id == rows[i].id {
			t.Rows[i].Prefix, t.Rows[i].Selected = "> ", true
		}
		if m.tagged[rows[i].id] {
			t.Rows[i].Prefix = t.Rows[i].Prefix[:1] + "*"
		}
		for j := range list {
			t.Rows[i].Cells[j] = list[j].cell(&rows[i])
		}
	}
	return t
}

func (m *Model) empty() string {
	if m.filter.String() != "" {
		return "no row meets the filter (Esc removes it)"
	}
	if m.tab == tabFindings && !m.scene.Enforcing {
		return "no rules are applied: this only watches"
	}
	return "none"
}

func (m *Model) wrapped(texts []string) []string {
	return strings.Split(ansi.Wrap(strings.Join(texts, "\n"), max(1, m.width-1), ""), "\n")
}

// foot is a message or question and the typed text, or the keys.
func (m *Model) foot() (lines []string) {
	message := draw.Shown(m.message)
	switch {
	case m.mode == read:
		return []string{m.painter.Paint("any key: back", draw.Faint)}
	case m.mode == confirm:
		message = cmp.Or(message, "Ask for this? y/n")
	case m.mode == browse && message == "":
		return []string{m.keys()}
	}
	if message != "" {
		lines = m.wrapped([]string{message})
		lines = lines[:min(len(lines), max(1, m.height/4))]
	}
	for i := range lines {
		lines[i] = m.painter.Paint(lines[i], draw.Bold)
	}
	if m.mode == typing {
		lines = append(lines, m.typingLine())
	}
	return lines
}

func (m *Model) keys() string {
	left, as := "Enter in, Esc out, / filter, s sort, ? help, q quit", draw.Faint
	if m.filter.String() != "" {
		as = draw.Plain
		left = "filter: " + draw.Shown(m.filter.String())
		if ignored := ignored(m.filter, m.tab); len(ignored) > 0 {
			left += " (not on this tab: " + strings.Join(ignored, ", ") + ")"
		}
	}
	right := ""
	if c := m.cursor(); len(m.rows) > 0 && !c.gone {
		right = fmt.Sprintf(" %d/%d", c.at+1, len(m.rows))
	}
	left = ansi.Truncate(left, max(0, m.width-len(right)), "…")
	return m.painter.Paint(left+strings.Repeat(" ", max(0, m.width-draw.Width(left)-len(right)))+right, as)
}

func (m *Model) typingLine() string {
	line := m.input.prompt + draw.Shown(m.input.text)
	if excess := draw.Width(line) + 1 - m.width; excess > 0 {
		line = ansi.TruncateLeft(line, excess, "")
	}
	return line + m.painter.Paint(" ", draw.Reverse)
}

func (m *Model) describe(r *tabRow) []string {
	lines := []string{}
	for _, c := range m.scene.columns(m.tab) {
		if s := c.cell(r).Plain(); s != "" {
			lines = append(lines, c.Name+": "+s)
		}
	}
	if r.process != nil {
		lines = append(lines, fmt.Sprintf("START: %d", r.id.start), "COMMAND: "+draw.Shown(r.process.CommandLine()))
	}
	if r.process != nil || r.finding != nil {
		for _, g := range gpusOf(r) {
			if e, _ := m.scene.Exempt(r.id.host, g); e != nil {
				lines = append(lines, fmt.Sprintf("GPU %d: %s", g.Index, draw.Shown(e.String())))
			}
		}
	}
	if r.event != nil && r.event.Why != "" {
		lines = append(lines, "WHY: "+draw.Shown(r.event.Why))
	}
	if r.failure != nil {
		lines = append(lines, "CLASS: "+string(r.failure.Class))
	}
	return append(lines, "", "As of "+m.now.Format(time.TimeOnly)+".")
}

// old says how old the data is; empty if fresh.
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
	hosts := text.Plural(len(f.Hosts), "host")
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
		if n := m.scene.Counts.In(state); n > 0 || state == gpus.Free {
			names = append(names, m.painter.Paint(fmt.Sprintf("%d %s", n, state), stateStyle(state)))
		}
	}
	return fmt.Sprintf("%s: %s", text.Plural(m.scene.Counts.Total(), "GPU"), strings.Join(names, ", "))
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

// alerts are what an administrator must know, as far as they fit.
func (m *Model) alerts() []string {
	var list []string
	if m.err != nil {
		list = append(list, "No new data: "+draw.Shown(m.err.Error()))
	}
	s := cmp.Or(m.scene, &scene{Index: live.NewIndex(new(live.FleetState))})
	list = append(list, alertsOf(s.FleetState)...)
	if h := s.Host(m.scope.host); h != nil && h.Guard.Differs() {
		list = append(list, "Kernel guard of "+draw.Shown(string(h.Name))+": "+draw.Shown(h.Guard.String()))
	}
	for i := range list {
		list[i] = m.painter.Paint(list[i], draw.Bold, draw.Red)
	}
	if leads(s.Election) {
		list = append(list, draw.Shown(s.Election.String()))
	}
	if s.waiting != nil {
		list = append(list, "Waiting: "+strings.Join(s.waiting, "; "))
	}
	if s.booked != nil {
		list = append(list, "Reserved: "+strings.Join(s.booked, "; "))
	}
	return list[:min(len(list), max(0, (m.height-4)/4))]
}

func leads(e *election.StatusDocument) bool {
	return e != nil && e.Role == election.Leading && e.Error == ""
}

func (m *Model) tabs() string {
	var b strings.Builder
	for tab := range tabCount {
		name, as := fmt.Sprintf("%d:%s", tab+1, tabs[tab].name), draw.Faint // "2 GPUs" reads as a number
		if n := m.tabCount(tab); n > 0 {
			name, as = fmt.Sprintf("%s(%d)", name, n), draw.Red
		}
		if tab == m.tab {
			if m.scope != (rowID{}) {
				name += " of " + strings.TrimPrefix(m.scope.String(), "host ")
			}
			b.WriteString(m.painter.Selected(draw.Span{Text: "[" + name + "]", Style: draw.Bold}) + " ")
			continue
		}
		if m.width < 80 { // the other names don't fit
			name = fmt.Sprintf("%d", tab+1)
		}
		b.WriteString(m.painter.Paint(name, as) + " ")
	}
	return b.String()
}

// tabCount is a number worth seeing from all tabs.
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
	for _, h := range slices.Concat(f.HeldUsers, f.HeldHosts) {
		if line := "Safety limit: " + draw.Shown(h.Because); !slices.Contains(list, line) {
			list = append(list, line)
		}
	}
	return list
}
