package gpus

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// attachedTo is as in "alice train, bob 4242". Names that aren't ordinary words are quoted.
func attachedTo(g *GPU) string {
	list := make([]string, len(g.Attached))
	for i := range g.Attached {
		a := &g.Attached[i]
		list[i] = nameOf(a.User) + " " + text.Shown(cmp.Or(a.Name, string(a.EID)))
		for _, instance := range a.Instances {
			list[i] += " on " + string(instance)
		}
	}
	return strings.Join(list, ", ")
}

func nameOf(user snapshot.Username) string {
	if user == "" {
		return "?"
	}
	return ShownUser(user)
}

func shownUsers(r *Row, _ Times) string {
	var list []string
	for _, user := range r.Users() {
		list = append(list, nameOf(user))
	}
	return strings.Join(list, ", ")
}

// since is for how long the GPU has been attached, or since when.
func since(r *Row, times Times) string {
	if at := r.Since(); !at.IsZero() {
		return times(at)
	}
	return ""
}

// processesOf is as in "alice 4242 60.1 GiB python train.py; bob 77 0.5 GiB sleep 60 (container web (cuda:12))".
func processesOf(g *GPU) string {
	list := make([]string, len(g.Processes))
	for i := range g.Processes {
		p := &g.Processes[i]
		words := []string{nameOf(p.User), strconv.Itoa(int(p.PID))}
		if p.Memory != nil {
			words = append(words, text.GiB(*p.Memory))
		}
		if command := p.ShownCommand(); command != "" {
			words = append(words, command)
		}
		if p.Type.Draws() {
			words = append(words, "("+string(p.Type)+")")
		}
		for _, instance := range p.Instances {
			words = append(words, "on "+string(instance))
		}
		if container := p.ContainerText(); container != "" {
			words = append(words, "("+container+")")
		}
		list[i] = strings.Join(words, " ")
	}
	return strings.Join(list, "; ")
}

func problemAndProcesses(g *GPU) string {
	processes := processesOf(g)
	if g.Problem != "" && processes != "" {
		processes = "; " + processes
	}
	return text.Printable(string(g.Problem)) + processes
}

// ShownCommand is the command line without the folder of its program, in quotes unless all its words are ordinary.
func (p *Process) ShownCommand() string {
	command := p.CommandLine()
	program, _, _ := strings.Cut(command, " ")
	command = strings.TrimPrefix(command, program[:strings.LastIndexByte(program, '/')+1])
	if text.IsMadeOf(command, "._:@/+- ") {
		return strings.TrimSpace(command)
	}
	return text.Quoted(command, snapshot.MaxCommand)
}
