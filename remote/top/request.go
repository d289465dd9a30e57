package top

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

const maxActions = 20 // per request, to be readable before confirmation

// begin prepares a request for tagged rows, the selected one, or all hosts.
func (m *Model) begin(kind operator.ActionKind) {
	if m.options.Act == nil {
		m.message = cmp.Or(m.options.NoAct, "this view is read-only")
		return
	}
	list, err := []operator.Action{{}}, error(nil)
	if kind == operator.Exempt {
		list, err = m.exempted()
	}
	if err != nil {
		m.message = err.Error()
		return
	}
	for i := range list {
		list[i].Schema, list[i].Kind = operator.ActionSchema, kind
	}
	m.request = list
	switch kind {
	case operator.Exempt:
		m.ask("for how many hours: ", "", m.setHours)
	case operator.Release:
		m.mode = confirm
	default:
		m.ask("reason: ", "", m.setReason)
	}
}

// exempted are the narrowest exemptions of the tagged rows or the selected one.
func (m *Model) exempted() (list []operator.Action, err error) {
	targets := slices.DeleteFunc(slices.Clone(m.rows), func(r tabRow) bool { return !m.tagged[r.id] })
	if len(targets) == 0 {
		r := m.selectedOrSay()
		if r == nil {
			return nil, errors.New(m.message)
		}
		targets = []tabRow{*r}
	}
	if len(targets) > maxActions {
		return nil, fmt.Errorf("that would be %d actions: choose at most %d at a time", len(targets), maxActions)
	}
	for i := range targets {
		choices := exemptions(&targets[i])
		at := slices.IndexFunc(choices, func(a operator.Action) bool {
			e := a.Exemption()
			return e.Who.Check() == nil
		})
		if at < 0 {
			return nil, errors.New("select a user, a host, a GPU, a process or a finding")
		}
		list = append(list, choices[at])
	}
	return list, nil
}

// exemptions are sensible ones for a row, the narrowest first.
func exemptions(r *tabRow) []operator.Action {
	user, host := append(usersOf(r), "")[0], r.id.host
	switch {
	case r.gpu != nil:
		index := r.gpu.Index
		return []operator.Action{{Host: host, Device: &index, UUID: r.gpu.UUID}}
	case r.finding != nil:
		rule := r.finding.Rule
		return []operator.Action{
			{User: user, Host: host, Rule: rule}, {User: user, Rule: rule}, {Host: host, Rule: rule},
		}
	case r.process != nil && user == "": // one process shouldn't exempt the whole host
		return nil
	case r.user != nil, r.process != nil, r.event != nil:
		return []operator.Action{{User: user, Host: host}}
	}
	return []operator.Action{{Host: host}}
}

func (m *Model) setHours(typed string) error {
	hours, err := strconv.ParseFloat(strings.TrimSuffix(typed, "h"), 64)
	if err != nil {
		return errors.New("write a number of hours, such as 8")
	}
	err = m.complete(func(a *operator.Action) { a.Hours, a.Reason = hours, "x" }) // the reason is asked next
	if err == nil {
		m.ask("reason: ", "", m.setReason)
	}
	return err
}

func (m *Model) setReason(typed string) error {
	err := m.complete(func(a *operator.Action) { a.Reason = typed })
	if err == nil {
		m.mode = confirm
	}
	return err
}

// complete extends the request, unless the controller would refuse.
func (m *Model) complete(add func(*operator.Action)) error {
	next := slices.Clone(m.request)
	for i := range next {
		add(&next[i])
		if err := next[i].Check(); err != nil {
			return err
		}
	}
	m.request = next
	return nil
}

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
	send := m.send(m.request)
	m.mode, m.request, m.tagged = browse, nil, make(map[rowID]bool)
	m.message = "asking the controller …"
	return send
}

func (m *Model) cancel() {
	m.mode, m.request = browse, nil
	m.message = "cancelled: nothing was asked for"
}

func (m *Model) send(list []operator.Action) tea.Cmd {
	ctx, act := m.context, m.options.Act
	return func() tea.Msg {
		var done []string
		for i := range list {
			answer, err := act(ctx, &list[i])
			if err != nil {
				return m.answer(strings.Join(done, "; "), fmt.Errorf("refused: %s: %w", summary(&list[i]), err))
			}
			done = append(done, answer.Text)
		}
		return m.answer(strings.Join(done, "; "), nil)
	}
}

func summary(a *operator.Action) string {
	if a.Kind == operator.Exempt {
		e := a.Exemption()
		return "exempt " + draw.Shown(e.Who.String())
	}
	return string(a.Kind) + " everything that rules do, on all hosts"
}

func question(list []operator.Action) []string {
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
