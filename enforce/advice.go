package enforce

import (
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Loss is what a user would lose: a process, or a device of an environment.
type Loss struct {
	Host  snapshot.Hostname
	PID   snapshot.PID // of a process; 0 for a device
	EID   snapshot.EnvID
	Index snapshot.DeviceIndex
	// Name is that of the environment; empty for none. Run says that it ends with its command: it has no shell.
	Name string
	Run  bool
}

// maxAdvised is how many commands Advice names: a message is short.
const maxAdvised = 4

// Advice names the commands that give back what a user would lose. genv detach alone detaches all, also what the user
// may keep. A process that goes on using a detached device breaks the rules and counts, too.
func Advice(losses []Loss, severalHosts bool) string {
	type place struct {
		how, where string
		eid        snapshot.EnvID
	}
	numbers := make(map[place][]int) // of processes or devices
	var places []place
	ending := make(map[snapshot.Hostname]bool)
	// what ends first
	slices.SortStableFunc(losses, func(a, b Loss) int { return min(int(b.PID), 1) - min(int(a.PID), 1) })
	for _, l := range losses {
		at, number := place{"genv detach --index ", " in the shell of environment " + l.shown(), l.EID}, int(l.Index)
		switch {
		case l.PID != 0:
			at, number, ending[l.Host] = place{how: "kill "}, int(l.PID), true
		case l.Run && ending[l.Host]:
			continue
		case l.Run:
			at.how, at.where = "", "end the command of environment "+l.shown()
		}
		if severalHosts {
			at.where += " on " + text.OneLine(string(l.Host))
		}
		if numbers[at] == nil {
			places = append(places, at)
		}
		numbers[at] = append(numbers[at], number)
	}
	if len(places) == 0 {
		return "End jobs that you need less."
	}
	var commands []string
	for _, at := range places[:min(len(places), maxAdvised)] {
		slices.Sort(numbers[at])
		list := text.JoinIndices(numbers[at])
		switch at.how {
		case "":
			list = ""
		case "kill ":
			list = strings.ReplaceAll(list, ",", " ")
		}
		commands = append(commands, at.how+list+at.where)
	}
	return "Give back GPUs that you need less, such as these: " + strings.Join(commands, "; ") + "."
}

// shown is the environment as its owner calls it.
func (l *Loss) shown() string {
	if l.Name != "" {
		return text.Shown(l.Name)
	}
	return text.Shown(string(l.EID))
}
