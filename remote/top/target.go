package top

import (
	"cmp"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// target adds to a request what is asked for about a row. Otherwise it says why there is
// nothing.
func (s *scene) target(q *request, r *row) (why string) {
	if q.kind == operator.Exempt {
		return s.exempt(q, r)
	}
	switch p := s.processOf(r); {
	case p != nil && q.kind != operator.Detach:
		a := operator.Action{Host: r.id.host, PID: p.PID, Start: p.Start, User: p.User}
		q.add(a, fmt.Sprintf("%s process %d on %s, start %d, of user %s: %s", q.kind, p.PID, draw.Shown(string(r.id.host)), p.Start,
			cmp.Or(draw.Shown(string(p.User)), "unknown"), cmp.Or(draw.Shown(p.CommandLine()), "command unknown")))
		return ""
	case q.kind == operator.Terminate:
		return "select a process: Enter shows those of a host or GPU"
	}
	before := len(q.actions)
	for _, g := range gpusOf(r) {
		if r.gpu == nil && r.finding == nil || r.finding != nil && !slices.Contains(s.FindingsAbout(r.id.host, g), r.finding) {
			continue
		}
		for i := range g.Attached {
			if a := &g.Attached[i]; r.finding == nil || r.finding.EID == a.EID {
				q.attachment(r.id.host, g, a)
			}
		}
	}
	if len(q.actions) == before {
		return "select a GPU that is attached to an environment"
	}
	return ""
}

func (q *request) attachment(host snapshot.Hostname, g *gpus.GPU, a *gpus.Attachment) {
	index := g.Index
	q.add(operator.Action{Host: host, Device: &index, UUID: g.UUID, EID: a.EID, User: a.User},
		fmt.Sprintf("%s GPU %d of %s, environment %s (%s), of user %s", q.kind, index, draw.Shown(string(host)),
			draw.Shown(string(a.EID)), cmp.Or(draw.Shown(a.Name), "no name"), cmp.Or(draw.Shown(string(a.User)), "unknown")))
}

// processOf is the process that a row is about, as the host showed it; nil for none.
func (s *scene) processOf(r *row) *gpus.Process {
	if r.process != nil {
		return r.process.Process
	}
	if r.finding == nil || r.finding.PID == 0 || r.host == nil {
		return nil
	}
	for i := range r.host.GPUs {
		for j := range r.host.GPUs[i].Processes {
			if p := &r.host.GPUs[i].Processes[j]; p.PID == r.finding.PID {
				return p
			}
		}
	}
	return nil
}

// exempt adds the narrowest exemption for a row that there is for its rule.
func (s *scene) exempt(q *request, r *row) (why string) {
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
		return []operator.Action{{User: user, Host: host, Rule: rule}, {User: user, Rule: rule}, {Host: host, Rule: rule}}
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
