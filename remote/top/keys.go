package top

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

func (m *Model) key(msg tea.KeyPressMsg) tea.Cmd {
	name := msg.String()
	if name == "ctrl+c" {
		return tea.Quit
	}
	m.message = ""
	switch m.mode {
	case typing:
		return m.typed(name, msg.Text)
	case confirm:
		return m.decided(name)
	case read:
		m.mode, m.details = browse, nil
		return nil
	}
	if m.move(name) || m.change(name) {
		return nil
	}
	return m.command(name)
}

// move moves the selection, or to another tab.
func (m *Model) move(name string) bool {
	c, page := m.cursor(), max(1, m.page())
	switch name {
	case "down", "j":
		if c.gone { // what followed the row that is gone has its place now
			m.choose(c.at)
		} else {
			m.choose(c.at + 1)
		}
	case "up", "k":
		m.choose(c.at - 1)
	case "pgdown":
		m.choose(c.at + page)
	case "pgup":
		m.choose(c.at - page)
	case "g", "home":
		m.choose(0)
	case "G", "end":
		m.choose(len(m.rows) - 1)
	case "tab", "right":
		m.open((m.tab + 1) % tabCount)
	case "shift+tab", "left":
		m.open((m.tab + tabCount - 1) % tabCount)
	case "1", "2", "3", "4", "5", "6", "7":
		m.open(tabID(name[0] - '1'))
	default:
		return false
	}
	return true
}

// open shows all of a tab.
func (m *Model) open(tab tabID) {
	m.tab, m.scope, m.way = tab, scope{}, nil
	m.arrange()
}

func (m *Model) change(name string) bool {
	switch name {
	case "enter":
		m.enter()
	case "esc":
		m.back()
	case "/":
		m.ask(inputFilter, "filter: ", m.filter.String())
	case "s":
		m.sortByNext()
	case "S":
		m.cursor().backward = !m.cursor().backward
		m.arrange()
	case "space":
		m.tag()
	case "p":
		m.pause()
	case "?":
		m.mode, m.details = read, help
	default:
		return false
	}
	return true
}

// enter shows what belongs to the selected row, or all that is known about it.
func (m *Model) enter() {
	r := m.selectedOrSay()
	if r == nil {
		return
	}
	switch m.tab {
	case tabHosts:
		m.into(tabGPUs, scope{host: r.id.host})
	case tabGPUs:
		m.into(tabProcesses, scope{host: r.id.host, gpu: &r.gpu.Index})
	case tabUsers:
		m.into(tabGPUs, scope{user: r.user.Name})
	case tabFindings, tabProcesses, tabHistory, tabFailed, tabCount:
		m.mode, m.details = read, m.describe(r)
	}
}

func (m *Model) into(tab tabID, s scope) {
	m.way = append(m.way, place{m.tab, m.scope, *m.cursor()})
	m.tab, m.scope = tab, s
	m.cursors[tab] = cursor{sort: m.cursors[tab].sort, backward: m.cursors[tab].backward}
	m.arrange()
}

// back undoes the last Enter, or else the filter.
func (m *Model) back() {
	if last := len(m.way) - 1; last >= 0 {
		p := m.way[last]
		m.way, m.tab, m.scope = m.way[:last], p.tab, p.scope
		m.cursors[m.tab] = p.cursor
	} else {
		m.filter = Filter{}
	}
	m.arrange()
}

func (m *Model) sortByNext() {
	c, list := m.cursor(), m.scene.columns(m.tab)
	for c.sort++; c.sort <= len(list); c.sort++ {
		if list[c.sort-1].compare != nil {
			break
		}
	}
	if c.sort > len(list) {
		c.sort = 0
	}
	m.arrange()
}

// tag tags the selected row, or takes its tag away.
func (m *Model) tag() {
	r := m.selectedOrSay()
	if r == nil {
		return
	}
	if m.tagged[r.id] {
		delete(m.tagged, r.id)
	} else {
		m.tagged[r.id] = true
	}
	m.choose(m.cursor().at + 1)
}

// pause keeps what is shown, or shows what came meanwhile.
func (m *Model) pause() {
	m.paused = !m.paused
	if !m.paused && m.waiting != nil {
		m.show(m.waiting)
		m.waiting = nil
	}
}

// selectedOrSay is selected, and says it if there is none.
func (m *Model) selectedOrSay() *row {
	r := m.selected()
	switch {
	case r != nil:
	case m.cursor().gone:
		m.message = m.cursor().id.String() + " isn't here any more: move to select another row"
	default:
		m.message = "there is no row to select"
	}
	return r
}

// command leaves the program, or asks for something that has an effect.
func (m *Model) command(name string) tea.Cmd {
	switch name {
	case "q":
		return tea.Quit
	case "ctrl+l":
		return tea.ClearScreen
	case "ctrl+z":
		return tea.Suspend
	case "o":
		return m.ssh()
	case "t", "w", "d":
		m.message = name + " is not available any more: o is ssh to the host, e exempts, h holds everything"
	case "e":
		m.begin(operator.Exempt)
	case "h":
		m.begin(m.holdOrRelease())
	}
	return nil
}

// ssh opens a shell on the selected row's host, with this program suspended.
func (m *Model) ssh() tea.Cmd {
	r := m.selectedOrSay()
	if r == nil {
		return nil
	}
	if r.id.host == "" {
		m.message = "select a row of a host"
		return nil
	}
	command, err := sshCommand(m.options.SSH, string(r.id.host))
	if err != nil {
		m.message = err.Error()
		return nil
	}
	said := &text.Tail{Limit: draw.MaxText} // the view hides it again
	command.Stderr = io.MultiWriter(m.options.Out, said)
	return tea.ExecProcess(command, func(err error) tea.Msg {
		if err != nil {
			err = fmt.Errorf("ssh: %w: %s", err, text.LastLine(said.String()))
		}
		return answerMsg{err: err}
	})
}

func (m *Model) answered(msg answerMsg) {
	if m.message = draw.Shown(msg.text); msg.err != nil {
		m.message = strings.TrimSpace(draw.Shown(msg.text + " " + msg.err.Error()))
	}
}

var help = []string{
	"A GPU is a letter: . free, m in MIG mode and not used, a attached or idle,",
	"A busy, ! finding, ? unknown, U unusable, F failed, x exempt.",
	"",
	"1-7, Tab, left, right   another tab",
	"up, down, j, k          another row; also PgUp, PgDn, g, G",
	"Enter, Esc              into a host, GPU or user; out again",
	"/                       filter: host~gpu-1 user=bob mem>40g state=finding",
	"s, S                    sort by the next column; the other way round",
	"Space                   tag a row: an exemption is for all tagged rows",
	"o                       ssh to the host",
	"p, Ctrl-L               pause; draw the screen again",
	"q                       quit",
	"",
	"With --allow-actions, each after a reason and a confirmation:",
	"e exempt for hours     h hold or release everything",
}

// inputKind is what is typed.
type inputKind int

const (
	inputFilter inputKind = iota
	inputHours
	inputReason
)

// maxInput is how many bytes can be typed.
const maxInput = 500

type input struct {
	kind   inputKind
	prompt string
	text   string
}

// add appends what is typed or pasted, on one line.
func (i *input) add(s string) {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	i.text = text.Cut(i.text+text.Masked(s), maxInput)
}

func (m *Model) ask(kind inputKind, prompt, text string) {
	m.mode, m.input = typing, input{kind, prompt, text}
}

func (m *Model) typed(name, typed string) tea.Cmd {
	switch name {
	case "enter":
		m.entered()
	case "esc":
		if m.mode = browse; m.request != nil {
			m.cancel()
		}
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(m.input.text)
		m.input.text = m.input.text[:len(m.input.text)-size]
	case "ctrl+u":
		m.input.text = ""
	default:
		m.input.add(typed)
	}
	return nil
}

// entered takes the line. One that can't be understood is typed further.
func (m *Model) entered() {
	if m.input.kind != inputFilter {
		m.complete()
		return
	}
	f, err := ParseFilter(m.input.text)
	if err != nil {
		m.message = err.Error()
		return
	}
	m.filter, m.mode = f, browse
	m.arrange()
	if m.cursor().gone { // left out by whom it was selected by, not by an update
		m.message = ""
		m.choose(0)
	}
}
