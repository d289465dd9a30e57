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

// begin prepares a request about the selected row: to exempt, or to hold and release everything that rules do.
func (m *Model) begin(kind operator.Kind) {
	if m.options.Act == nil {
		m.message = cmp.Or(m.options.NoAct, "this view is read-only")
		return
	}
	a := operator.Action{}
	if kind == operator.Exempt {
		r := m.selectedOrSay()
		if r == nil {
			return
		}
		list := exemptions(r)
		i := slices.IndexFunc(list, func(a operator.Action) bool {
			e := a.Exemption()
			return e.Who.Check() == nil
		})
		if i < 0 {
			m.message = "select a user, a host, a GPU, a process or a finding"
			return
		}
		a = list[i]
	}
	a.Schema, a.Kind = operator.ActionSchema, kind
	m.request = &a
	switch kind {
	case operator.Exempt:
		m.ask(inputHours, "for how many hours: ", "")
	case operator.Release:
		m.mode = confirm
	default:
		m.ask(inputReason, "reason: ", "")
	}
}

// complete takes the hours or the reason that was typed. One that the controller would refuse is typed further.
func (m *Model) complete() {
	next, typed := *m.request, strings.TrimSpace(m.input.text)
	if m.input.kind == inputReason {
		next.Reason = typed
	} else {
		var err error
		if next.Hours, err = strconv.ParseFloat(strings.TrimSuffix(typed, "h"), 64); err != nil {
			m.message = "write a number of hours, such as 8"
			return
		}
		next.Reason = "x" // it is asked for next
	}
	if err := next.Check(); err != nil {
		m.message = err.Error()
		return
	}
	if m.request = &next; m.input.kind == inputHours {
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
	a := m.request
	m.mode, m.request = browse, nil
	m.message = "asking the controller …"
	return m.send(a)
}

func (m *Model) cancel() {
	m.mode, m.request = browse, nil
	m.message = "cancelled: nothing was asked for"
}

func (m *Model) send(a *operator.Action) tea.Cmd {
	ctx, act := m.context, m.options.Act
	return func() tea.Msg {
		answer, err := act(ctx, a)
		if err != nil {
			err = fmt.Errorf("refused: %s: %w", summary(a), err)
		}
		return answerMsg{answer.Text, err}
	}
}

// summary is an action with its full identity, for people.
func summary(a *operator.Action) string {
	if a.Kind == operator.Exempt {
		e := a.Exemption()
		return "exempt " + draw.Shown(e.Who.String())
	}
	return string(a.Kind) + " everything that rules do, on all hosts"
}

func question(a *operator.Action) []string {
	lines := []string{"Ask the controller to:", summary(a)}
	if a.Hours > 0 {
		lines = append(lines, fmt.Sprintf("for %g hours", a.Hours))
	}
	if a.Reason != "" {
		lines = append(lines, "reason: "+draw.Shown(a.Reason))
	}
	return lines
}

// holdOrRelease is what h asks for.
func (m *Model) holdOrRelease() operator.Kind {
	if m.scene != nil && m.scene.Hold != nil {
		return operator.Release
	}
	return operator.Hold
}
