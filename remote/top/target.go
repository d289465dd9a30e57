package top

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// exemptions are those that a row may be meant to have, the narrowest first.
func exemptions(r *row) []operator.Instruction {
	user, host := append(usersOf(r), "")[0], r.id.host
	switch {
	case r.gpu != nil:
		index := r.gpu.Index
		return []operator.Instruction{{Host: host, Device: &index, UUID: r.gpu.UUID}}
	case r.finding != nil:
		rule := r.finding.Rule
		return []operator.Instruction{
			{User: user, Host: host, Rule: rule},
			{User: user, Rule: rule},
			{Host: host, Rule: rule},
		}
	case r.process != nil && user == "": // not all of the host for one process
		return nil
	case r.user != nil, r.process != nil, r.event != nil:
		return []operator.Instruction{{User: user, Host: host}}
	}
	return []operator.Instruction{{Host: host}}
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
