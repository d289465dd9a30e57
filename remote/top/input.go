package top

import (
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// inputKind is what is typed.
type inputKind int

const (
	inputFilter inputKind = iota
	inputHours
	inputReason
)

// maxInput is how many bytes can be typed.
const maxInput = 500

// input is a line that is typed.
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

// typed acts on a key while a line is typed.
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
