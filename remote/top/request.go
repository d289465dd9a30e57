package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// maxActions bounds a request, so that people can read what they confirm.
const maxActions = 20

// begin prepares a request: to exempt what the tagged rows are about, or the selected one, or to hold and release
// everything that rules do. It is bound to these rows, whatever happens to them until it is confirmed.
func (m *Model) begin(kind operator.Verb) {
	if m.options.Act == nil {
		m.message = cmp.Or(m.options.NoAct, "this view is read-only")
		return
	}
	list := []operator.Instruction{{}}
	if kind == operator.Exempt {
		if list = m.exempted(); len(list) == 0 {
			return
		}
	}
	for i := range list {
		list[i].Schema, list[i].Kind = operator.ActionSchema, kind
	}
	m.request = list
	switch kind {
	case operator.Exempt:
		m.ask(inputHours, "for how many hours: ", "")
	case operator.Release:
		m.mode = confirm
	default:
		m.ask(inputReason, "reason: ", "")
	}
}

// exempted are the narrowest exemptions of the tagged rows, or of the selected one; the message says why there are
// none.
func (m *Model) exempted() (list []operator.Instruction) {
	var targets []*row
	for i := range m.rows {
		if m.tagged[m.rows[i].id] {
			targets = append(targets, &m.rows[i])
		}
	}
	if len(targets) == 0 {
		r := m.selectedOrSay()
		if r == nil {
			return nil
		}
		targets = append(targets, r)
	}
	if len(targets) > maxActions {
		m.message = fmt.Sprintf("that would be %d actions: choose at most %d at a time", len(targets), maxActions)
		return nil
	}
	for _, r := range targets {
		choices := exemptions(r)
		i := slices.IndexFunc(choices, func(a operator.Instruction) bool {
			e := a.Exemption()
			return e.Who.Check() == nil
		})
		if i < 0 {
			m.message = "select a user, a host, a GPU, a process or a finding"
			return nil
		}
		list = append(list, choices[i])
	}
	return list
}

// complete takes the hours or the reason that was typed. One that the controller would refuse is typed further.
func (m *Model) complete() {
	next, typed := slices.Clone(m.request), strings.TrimSpace(m.input.text)
	hours := 0.0
	if m.input.kind == inputHours {
		var err error
		if hours, err = strconv.ParseFloat(strings.TrimSuffix(typed, "h"), 64); err != nil {
			m.message = "write a number of hours, such as 8"
			return
		}
	}
	for i := range next {
		if a := &next[i]; m.input.kind == inputHours {
			a.Hours, a.Reason = hours, "x" // the reason is asked for next
		} else {
			a.Reason = typed
		}
		if err := next[i].Check(); err != nil {
			m.message = err.Error()
			return
		}
	}
	if m.request = next; m.input.kind == inputHours {
		m.ask(inputReason, "reason: ", "")
		return
	}
	m.mode = confirm
}

// decided acts on a key while a request is to be confirmed.
func (m *Model) decided(name string) tea.Cmd {
	switch name {
	case "y", "Y":
		if len(m.wrapped(question(m.request))) > m.room() {
			m.message = "the window is too small to show all of it: enlarge it, or cancel with n"
			return nil
		}
	case "n", "N", "esc", "q":
		m.cancel()
		return nil
	default:
		return nil
	}
	list := m.request
	m.mode, m.request, m.tagged = browse, nil, make(map[rowID]bool)
	m.message = "asking the controller …"
	return m.send(list)
}

func (m *Model) cancel() {
	m.mode, m.request = browse, nil
	m.message = "cancelled: nothing was asked for"
}

// send asks for one action after the other.
func (m *Model) send(list []operator.Instruction) tea.Cmd {
	ctx, act := m.context, m.options.Act
	return func() tea.Msg {
		var done answerMsg
		for i := range list {
			answer, err := act(ctx, &list[i])
			if err != nil {
				done.err = fmt.Errorf("refused: %s: %w", summary(&list[i]), err)
				break
			}
			done.text = strings.TrimPrefix(done.text+"; "+answer.Text, "; ")
		}
		return done
	}
}

// summary is an action with its full identity, for people.
func summary(a *operator.Instruction) string {
	if a.Kind == operator.Exempt {
		e := a.Exemption()
		return "exempt " + draw.Shown(e.Who.String())
	}
	return string(a.Kind) + " everything that rules do, on all hosts"
}

// question is what is to be confirmed.
func question(list []operator.Instruction) []string {
	lines := []string{"Ask the controller to:"}
	for i := range list {
		lines = append(lines, summary(&list[i]))
	}
	if hours := list[0].Hours; hours > 0 {
		lines = append(lines, fmt.Sprintf("for %g hours", hours))
	}
	if reason := list[0].Reason; reason != "" {
		lines = append(lines, "reason: "+draw.Shown(reason))
	}
	return lines
}

// holdOrRelease is what h asks for.
func (m *Model) holdOrRelease() operator.Verb {
	if m.scene != nil && m.scene.Hold != nil {
		return operator.Release
	}
	return operator.Hold
}
