package top

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// exempt adds the narrowest exemption for a row that there is for its rule.
func (q *request) exempt(r *row) (why string) {
	for _, a := range exemptions(r) {
		e := a.Exemption()
		if e.Who.Check() == nil {
			q.add(a, "exempt "+draw.Shown(e.Who.String()))
			return ""
		}
	}
	return "select a user, a host, a GPU, a process or a finding"
}

// exemptions are those that a row may be meant to have, the narrowest first.
func exemptions(r *row) []operator.Action {
	user, host := append(usersOf(r), "")[0], r.id.host
	switch {
	case r.gpu != nil:
		index := r.gpu.Index
		return []operator.Action{{Host: host, Device: &index, UUID: r.gpu.UUID}}
	case r.finding != nil:
		rule := r.finding.Rule
		return []operator.Action{
			{User: user, Host: host, Rule: rule},
			{User: user, Rule: rule},
			{Host: host, Rule: rule},
		}
	case r.process != nil && user == "": // not all of the host for one process
		return nil
	case r.user != nil, r.process != nil, r.event != nil:
		return []operator.Action{{User: user, Host: host}}
	}
	return []operator.Action{{Host: host}}
}

// sshCommand is `ssh HOST` with arguments before the host, such as -F FILE. No shell sees
// it. A name that ssh could take for something else is refused.
func sshCommand(arguments []string, host string) (*exec.Cmd, error) {
	if host == "" || strings.HasPrefix(host, "-") || !text.IsMadeOf(host, "._-:%") {
		return nil, fmt.Errorf("%s isn't a name that ssh is called with", text.Shown(host))
	}
	words := append(append([]string{}, arguments...), "--", host)
	return exec.Command("ssh", words...), nil
}

// sshErrors keeps the end of what is written to it.
type sshErrors struct{ text []byte }

// Write implements io.Writer.
func (t *sshErrors) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-draw.MaxText):]
	return len(p), nil
}

// lastLine is the last line with a text.
func (t *sshErrors) lastLine() string {
	said := strings.TrimSpace(string(t.text))
	return strings.TrimSpace(said[strings.LastIndexByte(said, '\n')+1:])
}
