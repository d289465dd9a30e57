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

// request is what a person is about to ask the controller for. It is bound to what was
// selected when the key was pressed, whatever happens to the rows meanwhile.
type request struct {
	kind    operator.Kind
	actions []operator.Action
	lines   []string // each action with its full identity, for people
}

// maxActions bounds a request, so that people can read what they confirm.
const maxActions = 20

// begin prepares a request for the tagged rows, or for the selected one.
func (m *Model) begin(kind operator.Kind) {
	if m.options.Act == nil {
		m.message = cmp.Or(m.options.NoAct, "this view is read-only")
		return
	}
	q := &request{kind: kind}
	if kind == operator.Hold || kind == operator.Release {
		q.add(operator.Action{}, string(kind)+" everything that rules do, on all hosts")
	} else if !m.collect(q) {
		return
	}
	if err := q.check(); err != nil {
		m.message = err.Error()
		return
	}
	m.request = q
	switch kind {
	case operator.Exempt:
		m.ask(inputHours, "for how many hours: ", "")
	case operator.Release:
		m.mode = confirm
	case operator.Unexempt, operator.Hold:
		m.ask(inputReason, "reason: ", "")
	}
}

// collect fills a request; false if there is nothing that could be asked for.
func (m *Model) collect(q *request) bool {
	var targets []*row
	for i := range m.rows {
		if m.tagged[m.rows[i].id] {
			targets = append(targets, &m.rows[i])
		}
	}
	if len(targets) == 0 {
		r := m.selectedOrSay()
		if r == nil {
			return false
		}
		targets = append(targets, r)
	}
	for _, r := range targets {
		if why := q.exempt(r); why != "" {
			m.message = why
			return false
		}
	}
	return true
}

func (q *request) add(a operator.Action, line string) {
	a.Schema, a.Kind = operator.ActionSchema, q.kind
	q.actions, q.lines = append(q.actions, a), append(q.lines, line)
}

// check says what the controller would refuse, before anything is typed.
func (q *request) check() error {
	if len(q.actions) > maxActions {
		return fmt.Errorf("that would be %d actions: choose at most %d at a time", len(q.actions), maxActions)
	}
	for i := range q.actions {
		a := q.actions[i]
		a.Reason = "x"
		if a.Kind == operator.Exempt {
			a.Hours = 1
		}
		if err := a.Check(); err != nil {
			return err
		}
	}
	return nil
}

// complete takes the hours or the reason that was typed.
func (m *Model) complete() {
	q, typed := m.request, strings.TrimSpace(m.input.text)
	hours := 0.0
	if m.input.kind == inputHours {
		var err error
		if hours, err = strconv.ParseFloat(strings.TrimSuffix(typed, "h"), 64); err != nil {
			m.message = "write a number of hours, such as 8"
			return
		}
	}
	next := slices.Clone(q.actions)
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
	q.actions = next
	if m.input.kind == inputHours {
		m.ask(inputReason, "reason: ", "")
		return
	}
	m.mode = confirm
}

// question is what is to be confirmed.
func (q *request) question() []string {
	lines := append([]string{"Ask the controller to:"}, q.lines...)
	if a := q.actions[0]; a.Hours > 0 {
		lines = append(lines, fmt.Sprintf("for %g hours", a.Hours))
	}
	if reason := q.actions[0].Reason; reason != "" {
		lines = append(lines, "reason: "+draw.Shown(reason))
	}
	return lines
}

// decided acts on a key while a request is to be confirmed.
func (m *Model) decided(name string) tea.Cmd {
	switch name {
	case "y", "Y":
		if !m.fits(m.request.question()) {
			m.message = "the window is too small to show all of it: enlarge it, or cancel with n"
			return nil
		}
	case "n", "N", "esc", "q":
		m.cancel()
		return nil
	default:
		return nil
	}
	q := m.request
	m.mode, m.request = browse, nil
	m.message = "asking the controller …"
	m.tagged = make(map[rowID]bool)
	return m.send(q)
}

func (m *Model) cancel() {
	m.mode, m.request = browse, nil
	m.message = "cancelled: nothing was asked for"
}

// send asks for one action after the other.
func (m *Model) send(q *request) tea.Cmd {
	ctx, act := m.context, m.options.Act
	return func() tea.Msg {
		var texts []string
		for i := range q.actions {
			answer, err := act(ctx, &q.actions[i])
			if err != nil {
				return answerMsg{strings.Join(texts, "; "), fmt.Errorf("refused: %s: %w", q.lines[i], err)}
			}
			texts = append(texts, answer.Text)
		}
		return answerMsg{text: strings.Join(texts, "; ")}
	}
}

// holdOrRelease is what h asks for.
func (m *Model) holdOrRelease() operator.Kind {
	if m.scene != nil && m.scene.Hold != nil {
		return operator.Release
	}
	return operator.Hold
}
