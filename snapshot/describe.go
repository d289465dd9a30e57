package snapshot

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Describe names the user of a process and what it runs, safe to show, as in " (user
// bob, python train.py, container web, MIG-…)"; "" when nothing of it is known.
func (p *Process) Describe() string {
	var parts []string
	switch {
	case p.Username != "":
		parts = append(parts, "user "+text.Shown(string(p.Username)))
	case p.UID != nil:
		parts = append(parts, fmt.Sprintf("uid %d", *p.UID))
	}
	if command := p.CommandOrName(); command != "" {
		parts = append(parts, text.ShownCommand(command))
	}
	if container := p.ContainerText(); container != "" {
		parts = append(parts, container)
	}
	for _, instance := range p.Instances {
		parts = append(parts, string(instance))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// CommandOrName is the command line of a process, or at least its name.
func (p *Process) CommandOrName() string { return cmp.Or(p.Command, p.Name) }

// HideCommand makes the command private, where /proc of its host hides it. Without this it is in texts and on
// pages for everybody.
func (p *Process) HideCommand() {
	p.PrivateCommand, p.Command, p.Name = cmp.Or(p.CommandOrName(), p.PrivateCommand), "", ""
}

// ShortID is a container's id as container runtimes show it, with 12 of its 64 digits.
func ShortID(id string) string {
	if len(id) == 64 {
		return id[:12]
	}
	return id
}
