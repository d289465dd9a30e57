package top

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
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
		m.typed(name, msg.Text)
		return nil
	case confirm:
		return m.decided(name)
	case read:
		m.mode, m.details = browse, nil
		return nil
	}
	if do := actions[cmp.Or(aliases[name], name)]; do != nil {
		do(m)
	}
	switch name {
	case "q":
		return tea.Quit
	case "ctrl+l":
		return tea.ClearScreen
	case "ctrl+z":
		return tea.Suspend
	case "o":
		return m.ssh()
	}
	return nil
}

var aliases = map[string]string{"j": "down", "k": "up", "g": "home", "G": "end", "right": "tab", "left": "shift+tab"}

// actions don't need the terminal.
var actions = map[string]func(*Model){
	"down":      (*Model).down,
	"up":        func(m *Model) { m.choose(m.cursor().at - 1) },
	"pgdown":    func(m *Model) { m.choose(m.cursor().at + max(1, m.page())) },
	"pgup":      func(m *Model) { m.choose(m.cursor().at - max(1, m.page())) },
	"home":      func(m *Model) { m.choose(0) },
	"end":       func(m *Model) { m.choose(len(m.rows) - 1) },
	"tab":       func(m *Model) { m.open((m.tab + 1) % tabCount) },
	"shift+tab": func(m *Model) { m.open((m.tab + tabCount - 1) % tabCount) },
	"1":         func(m *Model) { m.open(tabHosts) },
	"2":         func(m *Model) { m.open(tabGPUs) },
	"3":         func(m *Model) { m.open(tabUsers) },
	"4":         func(m *Model) { m.open(tabFindings) },
	"5":         func(m *Model) { m.open(tabProcesses) },
	"6":         func(m *Model) { m.open(tabHistory) },
	"7":         func(m *Model) { m.open(tabFailed) },
	"enter":     (*Model).enter,
	"esc":       (*Model).back,
	"/":         func(m *Model) { m.ask("filter: ", m.filter.String(), m.setFilter) },
	"s":         (*Model).sortByNext,
	"S":         (*Model).reverse,
	"space":     (*Model).tag,
	"p":         (*Model).pause,
	"?":         func(m *Model) { m.mode, m.details = read, help },
	"e":         func(m *Model) { m.begin(operator.Exempt) },
	"h":         (*Model).holdOrRelease,
}

func (m *Model) down() {
	at := m.cursor().at
	if !m.cursor().gone { // otherwise the next row has moved to this place
		at++
	}
	m.choose(at)
}

func (m *Model) open(tab tabID) {
	m.tab, m.scope, m.undo = tab, rowID{}, nil
	m.arrange()
}

func (m *Model) enter() {
	r := m.selectedOrSay()
	if r == nil {
		return
	}
	switch m.tab {
	case tabHosts, tabUsers:
		m.into(tabGPUs, r.id)
	case tabGPUs:
		m.into(tabProcesses, r.id)
	case tabFindings, tabProcesses, tabHistory, tabFailed, tabCount:
		m.mode, m.details = read, m.describe(r)
	}
}

func (m *Model) into(tab tabID, scope rowID) {
	from, of, at := m.tab, m.scope, *m.cursor()
	m.undo = append(m.undo, func() { m.tab, m.scope, m.cursors[from] = from, of, at })
	m.tab, m.scope = tab, scope
	m.cursors[tab] = cursor{sort: m.cursors[tab].sort, backward: m.cursors[tab].backward}
	m.arrange()
}

func (m *Model) back() {
	if last := len(m.undo) - 1; last >= 0 {
		m.undo[last]()
		m.undo = m.undo[:last]
	} else {
		m.filter = Filter{}
	}
	m.arrange()
}

func (m *Model) sortByNext() {
	c, list := m.cursor(), m.scene.columns(m.tab)
	next := slices.IndexFunc(list[c.sort:], func(c column) bool { return c.compare != nil })
	if c.sort += next + 1; next < 0 {
		c.sort = 0
	}
	m.arrange()
}

func (m *Model) tag() {
	r := m.selectedOrSay()
	if r == nil {
		return
	}
	m.tagged[r.id] = !m.tagged[r.id]
	maps.DeleteFunc(m.tagged, func(_ rowID, tagged bool) bool { return !tagged })
	m.choose(m.cursor().at + 1)
}

func (m *Model) selectedOrSay() *tabRow {
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

func (m *Model) reverse() {
	m.cursor().backward = !m.cursor().backward
	m.arrange()
}

func (m *Model) pause() {
	if m.paused = !m.paused; !m.paused && m.waiting != nil {
		m.show(m.waiting)
		m.waiting = nil
	}
}

func (m *Model) holdOrRelease() {
	kind := operator.Hold
	if m.scene != nil && m.scene.Hold != nil {
		kind = operator.Release
	}
	m.begin(kind)
}

// ssh suspends this program for a shell on the selected row's host.
func (m *Model) ssh() tea.Cmd {
	r := m.selectedOrSay()
	if r == nil {
		return nil
	}
	command, err := sshCommand(m.options.SSH, string(r.id.host))
	if r.id.host == "" {
		err = errors.New("select a row of a host")
	}
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
		return m.answer("", err)
	})
}

// sshCommand refuses names that ssh takes for flags.
func sshCommand(arguments func(host string) []string, host string) (*exec.Cmd, error) {
	if host == "" || strings.HasPrefix(host, "-") || !text.IsMadeOf(host, "._-:%") {
		return nil, fmt.Errorf("%s isn't a name that ssh is called with", text.Shown(host))
	}
	return exec.Command("ssh", slices.Concat(arguments(host), []string{"--", host})...), nil
}

func (m *Model) answer(text string, err error) tea.Msg {
	return func() tea.Cmd {
		if err != nil {
			text = strings.TrimSpace(text + " " + err.Error())
		}
		m.message = draw.Shown(text)
		return nil
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

const maxInput = 500 // bytes

// input is what is typed. An error of done is shown, and typing continues.
type input struct {
	prompt, text string
	done         func(typed string) error
}

func (i *input) add(s string) {
	s = strings.NewReplacer("\n", " ", "\t", " ").Replace(strings.ToValidUTF8(s, ""))
	i.text = text.Cut(i.text+text.Masked(s), maxInput)
}

func (m *Model) ask(prompt, text string, done func(string) error) {
	m.mode, m.input = typing, input{prompt, text, done}
}

func (m *Model) typed(name, typed string) {
	switch name {
	case "enter":
		if err := m.input.done(strings.TrimSpace(m.input.text)); err != nil {
			m.message = err.Error()
		}
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
}

func (m *Model) setFilter(typed string) error {
	f, err := ParseFilter(typed)
	if err != nil {
		return err
	}
	m.filter, m.mode = f, browse
	m.arrange()
	if m.cursor().gone { // hidden by the user, not by an update
		m.message = ""
		m.choose(0)
	}
	return nil
}
